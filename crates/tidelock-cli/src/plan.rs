//! What was typed, checked and filled in: what it means.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use tidelock::{
    Locks, MAX_TTL, Name,
    backend::{Abilities, TokenGrade},
    backends::file::FileConfig,
};

use crate::{
    args,
    output::Trouble,
    program,
    values::{Permits, Span},
};

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

    /// The URL, which may hold a password.
    pub(crate) fn url(&self) -> &str {
        &self.0
    }

    /// Where its data is, if that is a directory which the URL does not name.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        (self.0 == DEFAULT_URL).then(|| FileConfig::of_user().directory().to_owned())
    }

    pub(crate) async fn connect(&self) -> Result<Locks, Trouble> {
        Ok(Locks::connect(&self.0).await?)
    }

    /// Connects for what has to outlive this process.
    pub(crate) async fn connect_beyond_process(&self) -> Result<Locks, Trouble> {
        let locks = self.connect().await?;
        let Abilities { store, token, .. } = *locks.abilities();
        if token == TokenGrade::Process {
            return Err(Trouble::Usage(format!(
                "locks on {store} end with this process, so there are no tickets for them: use another store"
            )));
        }
        Ok(locks)
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

/// A place in line to be asked for: by a command that runs under the lock, or by whoever gets a ticket.
#[derive(Debug)]
pub(crate) struct Ask {
    /// In the order in which they were typed; the first is the one the command is told as "the" name.
    pub(crate) names: Vec<Name>,
    pub(crate) share: Share,
    /// `None`: for ever.
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Duration,
    pub(crate) label: String,
    pub(crate) owner: Option<String>,
    /// Whether the hold may outlive this process.
    pub(crate) detached: bool,
    pub(crate) quiet: bool,
}

impl Ask {
    fn new(args: &args::Line, ttl: Duration, label: String) -> Result<Self, Trouble> {
        Ok(Self {
            names: vec![Name::new(&args.name)?],
            share: match args.permits {
                Some(permits) => Share::Permits(permits),
                None if args.shared => Share::Shared,
                None => Share::Exclusive,
            },
            wait: args.wait,
            ttl,
            label,
            owner: None,
            detached: false,
            quiet: args.quiet,
        })
    }
}

/// `tidelock run`, ready to be done.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) store: Store,
    pub(crate) ask: Ask,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// Checks all that can be known before the store is asked: nobody should wait an hour in line
    /// to learn of a typing mistake.
    pub(crate) fn new(args: args::Run) -> Result<Self, Trouble> {
        let Some(program) = args.command.first() else {
            return Err(Trouble::Usage("there is no command to run: write it after --".into()));
        };
        let label = args.label.unwrap_or_else(|| label(Path::new(program)));
        let mut ask = Ask { owner: args.owner, ..Ask::new(&args.line, args.ttl, label)? };
        for name in &args.more {
            let name = Name::new(name)?;
            if !ask.names.contains(&name) {
                ask.names.push(name);
            }
        }
        program::check(program)?;
        Ok(Self { store: Store::new(&args.store)?, ask, grace: args.kill_after, command: args.command })
    }
}

/// `tidelock acquire`, ready to be done.
#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) store: Store,
    pub(crate) ask: Ask,
    pub(crate) json: bool,
}

impl Acquire {
    /// Checks what can be known, as [`Run::new`] does.
    pub(crate) fn new(args: args::Acquire) -> Result<Self, Trouble> {
        if args.ttl > MAX_TTL {
            return Err(Trouble::Usage(format!(
                "a ttl of {} is too long, at most {} are allowed: renew the lock by its ticket",
                Span(args.ttl),
                Span(MAX_TTL)
            )));
        }
        let label = args.label.unwrap_or_else(label_of_caller);
        let ask = Ask { detached: true, ..Ask::new(&args.line, args.ttl, label)? };
        Ok(Self { store: Store::new(&args.store)?, ask, json: args.json })
    }
}

/// What others see when nothing was said: the command, and the process that can be looked for.
fn label(program: &Path) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).take(24).collect();
    format!("{name} (pid {})", std::process::id())
}

/// What others see of a hold that outlives this process: who called it, and may still be there.
fn label_of_caller() -> String {
    let pid = std::os::unix::process::parent_id();
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = String::from_utf8_lossy(&name).chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { format!("ticket of pid {pid}") } else { format!("ticket of {name} (pid {pid})") }
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

    #[test]
    fn a_label_of_a_ticket_names_who_called() {
        let label = label_of_caller();
        assert!(label.contains(&std::os::unix::process::parent_id().to_string()), "{label}");
        assert!(!label.contains(char::is_control) && label.len() < tidelock::MAX_OWNER_BYTES, "{label}");
    }
}
