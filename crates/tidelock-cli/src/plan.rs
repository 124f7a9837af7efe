//! What was typed, checked and filled in: what it means.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use tidelock::{Locks, Name, backends::file::FileConfig};

use crate::{args, output::Trouble, program, values::Permits};

/// The store when nothing else is said: it needs no server.
const DEFAULT_URL: &str = "file:";

/// Which store, by its URL. Shown without what may be secret.
#[derive(Clone)]
pub(crate) struct Store(String);

impl Store {
    /// From the flag, else from the environment, else the default.
    pub(crate) fn new(args: &args::Store) -> Result<Self, Trouble> {
        if let Some(url) = &args.url {
            return Ok(Self(url.clone()));
        }
        match std::env::var_os("TIDELOCK_URL").filter(|url| !url.is_empty()) {
            None => Ok(Self(DEFAULT_URL.to_owned())),
            Some(url) => url
                .into_string()
                .map(Self)
                .map_err(|_| Trouble::Usage("TIDELOCK_URL is not valid UTF-8: mend it or use --url".into())),
        }
    }

    /// Where its data is, if that is a directory which the URL does not name.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        (self.0 == DEFAULT_URL).then(|| FileConfig::of_user().directory().to_owned())
    }

    pub(crate) async fn connect(&self) -> Result<Locks, Trouble> {
        Ok(Locks::connect(&self.0).await?)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
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

/// How much of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Exclusive,
    Shared,
    Permits(Permits),
}

/// `tidelock run`, ready to be done.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) store: Store,
    /// In the order in which they were typed; the first is the one the command is told as "the" name.
    pub(crate) names: Vec<Name>,
    pub(crate) share: Share,
    /// `None`: for ever.
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Duration,
    pub(crate) label: String,
    pub(crate) owner: Option<String>,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
    pub(crate) quiet: bool,
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// Checks all that can be known before the store is asked: nobody should wait an hour in line
    /// to learn of a typing mistake.
    pub(crate) fn new(args: args::Run) -> Result<Self, Trouble> {
        let mut names = Vec::new();
        for name in [&args.name].into_iter().chain(&args.more) {
            let name = Name::new(name)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let Some(program) = args.command.first() else {
            return Err(Trouble::Usage("there is no command to run: write it after --".into()));
        };
        program::check(program)?;
        Ok(Self {
            store: Store::new(&args.store)?,
            names,
            share: match args.permits {
                Some(permits) => Share::Permits(permits),
                None if args.shared => Share::Shared,
                None => Share::Exclusive,
            },
            wait: args.wait,
            ttl: args.ttl,
            label: args.label.unwrap_or_else(|| label(Path::new(program))),
            owner: args.owner,
            grace: args.kill_after,
            quiet: args.quiet,
            command: args.command,
        })
    }
}

/// What others see when nothing was said: the command, and the process that can be looked for.
fn label(program: &Path) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(24).collect();
    format!("{name} (pid {})", std::process::id())
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
            assert!(!format!("{:?}", Store(url.to_owned())).contains("secret"));
        }
    }

    #[test]
    fn a_label_names_the_command_and_has_room_for_the_longest() {
        assert!(label(Path::new("./bin/report.sh")).starts_with("report.sh (pid "));
        assert!(label(Path::new(&"ü".repeat(500))).len() < tidelock::MAX_OWNER_BYTES);
        assert!(!label(Path::new("a\nb")).contains('\n'));
    }
}
