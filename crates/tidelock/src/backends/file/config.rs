//! From a URL to a directory that may be used.

use std::{
    env, fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use crate::{
    backend::Failure,
    error::{Error, Result},
};

/// The longest path of a socket, without the end mark; 104 on BSDs and Apple systems.
const LONGEST_SOCKET: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// What a session adds to the directory: `/s/`, 16 digits, `.life`.
const SESSION: usize = 3 + 16 + 5;

/// Where the files are, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    directory: PathBuf,
    allow_network: bool,
}

impl FileConfig {
    /// The files in this directory. It is made, for this user alone, when a client connects.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), allow_network: false }
    }

    /// The directory of this user: `$TIDELOCK_DIR`, else `$XDG_STATE_HOME/tidelock`, else
    /// `$HOME/.local/state/tidelock`, else `/tmp/tidelock-UID`.
    pub fn of_user() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = rustix::process::geteuid().as_raw();
        let directory = set("TIDELOCK_DIR")
            .or_else(|| {
                set("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("tidelock"))
            })
            .or_else(|| {
                set("HOME").filter(|path| path.is_absolute()).map(|path| path.join(".local/state/tidelock"))
            })
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/tidelock-{user}")));
        Self::new(directory)
    }

    /// Uses the directory even if it is on a network file system. Only safe if a single machine uses it.
    #[must_use]
    pub fn allow_network(mut self) -> Self {
        self.allow_network = true;
        self
    }

    /// Reads what follows `file:`: nothing, a path, `///path`, and `?allow=network`.
    pub(crate) fn from_url(rest: &str) -> Result<Self> {
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
        let mut config = if path.is_empty() { Self::of_user() } else { Self::new(path) };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option {
                "allow=network" => config = config.allow_network(),
                other => {
                    return Err(Error::invalid_url(format!(
                        "the file store has no option {:?}: it has allow=network",
                        other.chars().take(32).collect::<String>()
                    )));
                }
            }
        }
        Ok(config)
    }

    /// The directory, as it was given.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory if it is not there, and checks that it may be used. Says its full path.
    pub(super) fn prepare(&self) -> Result<PathBuf, Failure> {
        let given = self.directory.display();
        let cannot = |what: &str, error: io::Error| {
            Failure::denied(format!(
                "cannot {what} the directory {given}: {error}; name another with file:/path"
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
        if !self.allow_network
            && let Some(kind) = network(&directory)
        {
            return Err(Failure::denied(format!(
                "the directory {given} is on a network file system ({kind}), where other machines could not be told and locks may not hold: use a local one, or ?allow=network if only one machine uses it"
            )));
        }
        builder
            .create(directory.join("s"))
            .map_err(|error| Failure::denied(format!("cannot write to the directory {given}: {error}")))?;
        Ok(directory)
    }
}

/// The kind of network file system that this is on, if it is.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn network(directory: &Path) -> Option<&'static str> {
    // From the kernel's list of magic numbers. FUSE may be local, but it does not say so.
    const KINDS: [(u64, &str); 13] = [
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFF53_4D42, "CIFS"),
        (0xFE53_4D42, "SMB"),
        (0x00C3_6400, "Ceph"),
        (0x0102_1997, "9p"),
        (0x5346_414F, "AFS"),
        (0x6B41_4653, "AFS"),
        (0x7375_7245, "Coda"),
        (0x564C, "NCP"),
        (0x0BD0_0BD0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x6573_5546, "FUSE, such as sshfs"),
    ];
    let found = rustix::fs::statfs(directory).ok()?.f_type as u64 & 0xFFFF_FFFF;
    KINDS.iter().find(|(magic, _)| *magic == found).map(|(_, name)| *name)
}

/// Elsewhere the system is not asked.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn network(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_directories() {
        for (url, directory) in
            [("/a/b", "/a/b"), ("///a", "/a"), ("//localhost/a", "/a"), ("./x", "./x"), ("x", "x")]
        {
            assert_eq!(FileConfig::from_url(url).unwrap().directory(), Path::new(directory), "{url}");
        }
        let config = FileConfig::from_url("/a?allow=network").unwrap();
        assert_eq!(config, FileConfig::new("/a").allow_network());
    }

    #[test]
    fn bad_urls_get_one_clear_sentence() {
        for (url, says) in [("//server/a", "on this machine"), ("/a?ttl=5", "allow=network")] {
            let error = FileConfig::from_url(url).unwrap_err();
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
        let directory = env::temp_dir().join(format!("{}-{}", "x".repeat(90), std::process::id()));
        let failure = FileConfig::new(&directory).prepare().unwrap_err();
        fs::remove_dir(&directory).unwrap();
        assert!(failure.reason.contains("use a shorter one"), "{failure}");
    }
}
