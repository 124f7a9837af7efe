//! Which store: where its URL comes from, and what a command under the lock is told of it.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf, absolute},
    process::Command,
    time::Duration,
};

use tidelock::{
    Locks,
    backend::{Abilities, TokenGrade},
    backends::file::FileConfig,
};

use crate::{
    args,
    output::{self, Trouble},
};

/// The store when nothing else is said: it needs no server.
const DEFAULT_URL: &str = "file:";

/// The URL.
const URL: &str = "TIDELOCK_URL";
/// A file with the URL.
const URL_FILE: &str = "TIDELOCK_URL_FILE";
/// In a command under the lock: the store whose URL was not passed on because of its password, for people.
const WITHHELD: &str = "TIDELOCK_URL_WITHHELD";

/// More than any URL has. What is longer is not read to its end.
const MAX_BYTES: u64 = 64 * 1024;

/// Which store, by its URL. Shown without what may be secret.
#[derive(Clone)]
pub(crate) struct Store {
    url: String,
    source: Source,
}

/// Where a URL comes from.
#[derive(Clone, Debug)]
enum Source {
    /// It was typed, or is in a file that can be read only once, such as a pipe.
    Typed,
    /// It is in a file that was named on the command line.
    File(PathBuf),
    /// The environment says it, or nothing does. What we start has the same environment.
    Inherited,
}

impl Store {
    /// From the flags, else from the environment, else the default.
    pub(crate) fn new(args: &args::Store) -> Result<Self, Trouble> {
        if let Some(url) = &args.url {
            return Ok(Self { url: url.clone(), source: Source::Typed });
        }
        if let Some(path) = &args.url_file {
            let (url, source) = read(path)?;
            return Ok(Self { url, source });
        }
        let url = match (variable(URL), variable(URL_FILE), variable(WITHHELD)) {
            (Some(_), Some(_), _) => Err(format!("{URL} and {URL_FILE} are both set: unset one of them")),
            (Some(url), None, _) => {
                url.into_string().map_err(|_| format!("{URL} is not valid UTF-8: correct it or use --url"))
            }
            (None, Some(path), _) => Ok(read(Path::new(&path))?.0),
            // Not the default: the command would be under the lock of one store, and its own locks in another.
            (None, None, Some(url)) => Err(format!(
                "the tidelock around this command does not pass on the password of its store {}: \
                 use --url-file there or here, or --pass-url there",
                url.to_string_lossy()
            )),
            (None, None, None) => Ok(DEFAULT_URL.to_owned()),
        };
        Ok(Self { url: url.map_err(Trouble::Usage)?, source: Source::Inherited })
    }

    /// The store that flags or environment name; `None` if they name none.
    pub(crate) fn named(args: &args::Store) -> Result<Option<Self>, Trouble> {
        let is_named = !args.is_empty() || variable(URL).is_some() || variable(URL_FILE).is_some();
        is_named.then(|| Self::new(args)).transpose()
    }

    /// The URL, which may hold a password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where its data is, if that is a directory which the URL does not name.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        (self.url == DEFAULT_URL).then(|| Some(FileConfig::of_user().ok()?.directory().to_owned())).flatten()
    }

    /// Tells a command of the store, so that a tidelock inside uses the same. A password is not told
    /// unless somebody asks for it; the user's own environment stays as it is.
    pub(crate) fn introduce(&self, pass_url: bool, command: &mut Command) {
        if !pass_url && matches!(self.source, Source::Inherited) {
            return;
        }
        for variable in [URL, URL_FILE, WITHHELD] {
            command.env_remove(variable);
        }
        match &self.source {
            _ if pass_url || !has_password(&self.url) => command.env(URL, from_anywhere(&self.url)),
            Source::File(path) => command.env(URL_FILE, path),
            _ => command.env(WITHHELD, self.to_string()),
        };
    }

    pub(crate) async fn connect(&self) -> Result<Locks, Trouble> {
        Ok(Locks::connect(&self.url).await?)
    }

    /// Connects within a time, and tells of each failure.
    pub(crate) async fn connect_within(
        &self,
        limit: Duration,
        tell: impl FnMut(&tidelock::Error),
    ) -> Result<Locks, Trouble> {
        Ok(Locks::builder(&self.url).connect_reporting(limit, tell).await?)
    }

    /// Connects for what has to outlive this process.
    pub(crate) async fn connect_beyond_process(&self) -> Result<Locks, Trouble> {
        let locks = self.connect().await?;
        Self::check_beyond_process(&locks)?;
        Ok(locks)
    }

    /// Whether locks of this store outlive this process.
    pub(crate) fn check_beyond_process(locks: &Locks) -> Result<(), Trouble> {
        let Abilities { store, token, .. } = *locks.abilities();
        if token == TokenGrade::Process {
            return Err(Trouble::Usage(format!(
                "locks on {store} end with this process, so there are no tickets for them: use another store"
            )));
        }
        Ok(())
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.url))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A variable of the environment; an empty one says nothing.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The URL in a file, and how others can read it.
fn read(path: &Path) -> Result<(String, Source), Trouble> {
    let wrong =
        |what: &str| Trouble::Usage(format!("the file {} with the store's URL {what}", path.display()));
    let (text, metadata) = contents(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let text = String::from_utf8(text).map_err(|_| wrong("is not valid UTF-8"))?;
    let url = match text.trim() {
        "" => return Err(wrong("is empty: write the URL into it")),
        url if url.contains(char::is_control) => {
            return Err(wrong("has more than one line: keep only the URL"));
        }
        url => url.to_owned(),
    };
    if !metadata.is_file() {
        return Ok((url, Source::Typed));
    }
    if metadata.permissions().mode() & 0o004 != 0 && has_password(&url) {
        output::complain(&format!(
            "warning: every user of this machine can read the password in {0}: run chmod o= {0}",
            path.display()
        ));
    }
    // The command may change its directory before it starts another tidelock.
    Ok((url, Source::File(absolute(path)?)))
}

fn contents(path: &Path) -> io::Result<(Vec<u8>, std::fs::Metadata)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok((text, metadata))
}

/// A URL that means the same in another directory.
fn from_anywhere(url: &str) -> String {
    let relative =
        url.strip_prefix(DEFAULT_URL).filter(|path| !path.is_empty() && !path.starts_with(['/', '?']));
    let here = std::env::current_dir().ok();
    match (relative, here.as_deref().and_then(Path::to_str)) {
        (Some(path), Some(here)) if !here.contains('?') => format!("{DEFAULT_URL}{here}/{path}"),
        _ => url.to_owned(),
    }
}

/// Whether a URL may hold a password. In doubt it does.
fn has_password(url: &str) -> bool {
    let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map_or("", |(user, _)| user);
    let options = url.split_once('?').map_or("", |(_, options)| options);
    user.contains(':') || options.contains("pass")
}

/// A URL without user, password and options.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.split('?').next().unwrap_or_default().to_owned();
    };
    // From the last `@`: a password may hold any character, this one too, and what is cut too
    // short tells less, not more.
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split('?').next().unwrap_or_default();
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("file:", "file:"),
            ("file:/var/lib/locks", "file:/var/lib/locks"),
            ("redis://host:6379/0", "redis://host:6379/0"),
            ("redis://:secret@host:6379/0", "redis://host:6379/0"),
            ("postgres://me:se@cret@host/db?password=secret", "postgres://host/db"),
            ("postgres://me:secret@one,me:secret@two/db", "postgres://two/db"),
            ("memory:x?password=secret", "memory:x"),
        ] {
            assert_eq!(without_password(url), shown);
            let store = Store { url: url.to_owned(), source: Source::Typed };
            assert!(!format!("{store:?}").contains("secret"));
        }
    }

    #[test]
    fn a_password_in_a_url_is_noticed_wherever_it_is() {
        for url in [
            "redis://:secret@host",
            "redis://me:secret@host/0",
            "postgres://me:se/c?r@et@host/db",
            "postgres://me@host/db?password=secret",
            "redis+sentinel://me@host/main?sentinel_password=secret",
            "postgres://me:secret@one,me:secret@two/db",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "file:",
            "file:/x",
            "redis://host:6379/0?prefix=a:",
            "postgres://me@host:5432/db",
            "file:/passwords",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn a_relative_directory_is_told_in_full() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(from_anywhere("file:locks"), format!("file:{}/locks", here.display()));
        for url in ["file:", "file:/x", "file:///x", "file:?allow=network", "redis://host"] {
            assert_eq!(from_anywhere(url), url);
        }
    }
}
