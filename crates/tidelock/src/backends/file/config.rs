//! From a URL to a directory that may be used.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use super::{FileBackend, boot, earlier, filesystem, home};
use crate::{
    backend::{Backend, ClientId, Failure},
    backends::{
        OptionDefault::Words,
        StoreOption,
        registry::{Connecting, connected},
        shared::options::UrlOption,
        target::{Config, Target},
    },
    error::{Error, Result},
};

/// The longest path of a socket, without the end mark; 104 on BSDs and Apple systems.
const LONGEST_SOCKET: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// What a session adds to the directory: `/s/`, 16 digits, `.life`.
const SESSION: usize = 3 + 16 + 5;

pub(super) const OPTIONS: &[StoreOption] = &[ALLOW.about];

const ALLOW: UrlOption<bool> = UrlOption {
    about: StoreOption::new(
        "allow",
        Words("file systems that are known to be local"),
        "`network`: a directory on any file system; safe only if a single machine uses it",
    ),
    read: |about, text| match text {
        None => Ok(false),
        Some("network") => Ok(true),
        Some(_) => Err(about.has_to_be("network")),
    },
};

/// The directory of the files, and what is allowed.
///
/// ```no_run
/// use tidelock::{Locks, backends::file::FileConfig};
///
/// # async fn connect() -> tidelock::Result<()> {
/// let config = FileConfig::new("/var/lib/shop/locks");
/// assert_eq!(config, FileConfig::from_url("file:/var/lib/shop/locks")?);
/// let locks = Locks::connect_with(config).await?;
/// # drop(locks);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    directory: PathBuf,
    allow_network: bool,
    /// Where the previous version would have looked for them.
    earlier: Option<PathBuf>,
    /// Set by tests: the number of another start of the machine.
    boot: Option<u64>,
}

impl FileConfig {
    /// Uses the files in this directory. It is created, for this user only, when a client connects.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), allow_network: false, earlier: None, boot: None }
    }

    /// Uses the directory of this user.
    ///
    /// This is `$TIDELOCK_DIR`, or else `.local/state/tidelock` in the user's home directory according to the
    /// user database. It does not depend on `$HOME` or `$XDG_STATE_HOME`.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied) when `$TIDELOCK_DIR` is relative, or when the user has no home
    /// directory.
    pub fn of_user() -> Result<Self> {
        let home::UserDirectory { directory, earlier } =
            home::of_user().map_err(|failure| Error::failure("file", None, &failure))?;
        Ok(Self { earlier, ..Self::new(directory) })
    }

    /// Uses the directory even if its file system is not known to be local.
    ///
    /// This is only safe if a single machine uses the directory.
    #[must_use]
    pub fn allow_network(mut self) -> Self {
        self.allow_network = true;
        self
    }

    /// Uses another boot id than the machine's, as processes in some containers see it.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_boot(mut self, boot: u64) -> Self {
        self.boot = Some(boot);
        self
    }

    /// The number of this start of the machine.
    pub(super) fn boot(&self) -> Result<u64, Failure> {
        self.boot.map_or_else(|| boot::read(Path::new(boot::PROC)), Ok)
    }

    /// Reads a URL such as `file:/path?allow=network`, or a path as it is.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl); otherwise as [`of_user`](Self::of_user) for a URL
    /// without a path.
    pub fn from_url(url: &str) -> Result<Self> {
        if url.starts_with(['/', '.']) {
            return Ok(Self::new(url));
        }
        Self::read(url.split_once(':').map_or("", |(_, rest)| rest))
    }

    /// Reads what follows `file:`: nothing, a path, `///path`, and `?allow=network`.
    fn read(rest: &str) -> Result<Self> {
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            None => path,
            Some(path) if path.starts_with('/') => path,
            Some(path) => {
                path.strip_prefix("localhost").filter(|path| path.starts_with('/')).ok_or_else(|| {
                    Error::invalid_url("a file store is on this machine: write file:/path or file:///path")
                })?
            }
        };
        let mut config = if path.is_empty() { Self::of_user()? } else { Self::new(path) };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let value = option.strip_prefix(ALLOW.about.name).and_then(|rest| rest.strip_prefix('='));
            let Some(Ok(true)) = value.map(|value| ALLOW.value(Some(value))) else {
                return Err(Error::invalid_url(format!(
                    "the file store has no option {:?}: it has {}=network",
                    option.chars().take(32).collect::<String>(),
                    ALLOW.about.name
                )));
            };
            config = config.allow_network();
        }
        Ok(config)
    }

    /// Returns the directory as it was given.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the directory if it does not exist, checks that it may be used, and returns its full path.
    pub(super) fn prepare(&self) -> Result<PathBuf, Failure> {
        let given = self.directory.display();
        let cannot = |what: &str, error: io::Error| {
            Failure::denied(format!(
                "cannot {what} the directory {given}: {error}; name another with file:/path or TIDELOCK_DIR"
            ))
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.directory).map_err(|error| cannot("make", error))?;
        let directory = self.directory.canonicalize().map_err(|error| cannot("find", error))?;
        let data = fs::metadata(&directory).map_err(|error| cannot("examine", error))?;
        let user = rustix::process::geteuid().as_raw();
        if data.uid() != user {
            return Err(Failure::denied(format!(
                "the directory {given} belongs to user {} and this is user {user}: use one of your own",
                data.uid()
            )));
        }
        if data.mode() & 0o022 != 0 {
            return Err(Failure::denied(format!(
                "others may write to the directory {given} (mode {:o}): use one of your own, or chmod go-w it",
                data.mode() & 0o7777
            )));
        }
        let len = directory.as_os_str().as_bytes().len();
        if len + SESSION > LONGEST_SOCKET {
            return Err(Failure::denied(format!(
                "the path of the directory has {len} bytes and sockets in it may have {}: use a shorter one",
                LONGEST_SOCKET - SESSION
            )));
        }
        if !self.allow_network {
            filesystem::check(&directory)?;
        }
        if let Some(earlier) = &self.earlier {
            earlier::lead(earlier, &directory)?;
        }
        builder
            .create(directory.join("s"))
            .map_err(|error| Failure::denied(format!("cannot write to the directory {given}: {error}")))?;
        Ok(directory)
    }
}

impl Config for FileConfig {
    fn connect(&self, client: ClientId) -> Connecting<'_, dyn Backend> {
        Box::pin(async move { connected("file", FileBackend::connect(self, client)) })
    }
}

impl From<FileConfig> for Target {
    fn from(config: FileConfig) -> Self {
        Self::config(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_directories() {
        for (url, directory) in
            [("/a/b", "/a/b"), ("///a", "/a"), ("//localhost/a", "/a"), ("./x", "./x"), ("x", "x")]
        {
            assert_eq!(FileConfig::read(url).unwrap().directory(), Path::new(directory), "{url}");
        }
        let config = FileConfig::read("/a?allow=network").unwrap();
        assert_eq!(config, FileConfig::new("/a").allow_network());
    }

    #[test]
    fn bad_urls_get_one_clear_sentence() {
        for (url, says) in [("//server/a", "on this machine"), ("/a?ttl=5", "allow=network")] {
            let error = FileConfig::read(url).unwrap_err();
            assert!(error.is_invalid_url() && error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let failure = FileConfig::new("/tmp").prepare().unwrap_err();
        assert!(failure.reason.contains("use one of your own"), "{failure}");
    }

    #[test]
    fn a_path_too_long_for_sockets_is_refused() {
        let directory = std::env::temp_dir().join(format!("{}-{}", "x".repeat(90), std::process::id()));
        let failure = FileConfig::new(&directory).prepare().unwrap_err();
        fs::remove_dir(&directory).unwrap();
        assert!(failure.reason.contains("use a shorter one"), "{failure}");
    }
}
