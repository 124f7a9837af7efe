//! What was typed, checked and filled in: what it means.

use std::{ffi::OsString, path::Path, time::Duration};

use tidelock::{MAX_TTL, Name, Period};

use crate::{
    args,
    output::Trouble,
    program,
    store::Store,
    values::{Permits, Span},
};

/// The exit code if a lock is not acquired and nothing else was asked for.
const NOT_ACQUIRED: u8 = 124;

/// How much of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Exclusive,
    /// The write half of a read-write lock.
    Write,
    Shared,
    Permits(Permits),
}

/// A place in line to be asked for: by a command that runs under the lock, or by the one that gets a ticket.
#[derive(Debug)]
pub(crate) struct Ask {
    /// In the order in which they were typed; the first is the one the command is told as "the" name.
    pub(crate) names: Vec<Name>,
    pub(crate) share: Share,
    /// `None`: for ever.
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Duration,
    /// For how long others are kept out, even if the command ends earlier.
    pub(crate) at_least: Duration,
    pub(crate) label: String,
    pub(crate) owner: Option<String>,
    /// After how long it is lost, whatever its holder does.
    pub(crate) max_hold: Option<Duration>,
    /// Whether the hold may outlive this process.
    pub(crate) detached: bool,
    pub(crate) quiet: bool,
    /// The exit code if the lock is not acquired.
    pub(crate) busy_code: u8,
    /// Whether a store that fails is an error at once.
    pub(crate) fail_fast: bool,
}

impl Ask {
    fn new(args: &args::Line, ttl: Duration, label: String) -> Result<Self, Trouble> {
        Ok(Self {
            names: vec![Name::new(args.which.name())?],
            share: match args.permits {
                Some(permits) => Share::Permits(permits),
                None if args.shared => Share::Shared,
                None if args.write => Share::Write,
                None => Share::Exclusive,
            },
            wait: if args.no_wait { Some(Duration::ZERO) } else { args.wait },
            ttl,
            at_least: Duration::ZERO,
            label,
            owner: None,
            max_hold: None,
            detached: false,
            quiet: args.quiet,
            busy_code: args.busy_code.unwrap_or(NOT_ACQUIRED),
            fail_fast: args.fail_fast,
        })
    }
}

/// `tidelock run`, ready to be done.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) store: Store,
    /// Whether the command is told the URL with its password.
    pub(crate) pass_url: bool,
    pub(crate) ask: Ask,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
    pub(crate) command: Vec<OsString>,
    /// Whether it runs once per period.
    pub(crate) once: Option<Once>,
}

/// Which slot of which period a command runs for.
#[derive(Debug)]
pub(crate) struct Once {
    pub(crate) period: Period,
    /// `None`: the slot of now.
    pub(crate) slot: Option<String>,
    pub(crate) retry_failed: bool,
}

impl Run {
    /// Checks all that can be known before the store is asked: nobody should wait an hour in line
    /// to learn of a typing mistake.
    pub(crate) fn new(args: args::Run) -> Result<Self, Trouble> {
        let Some(program) = args.command.first() else {
            return Err(Trouble::Usage("there is no command to run: write it after --".into()));
        };
        let label = args.label.unwrap_or_else(|| label(Path::new(program)));
        let at_least = args.once.hold_at_least.unwrap_or_default();
        let mut ask = Ask { owner: args.owner, at_least, ..Ask::new(&args.line, args.ttl, label)? };
        for name in &args.more {
            let name = Name::new(name)?;
            if !ask.names.contains(&name) {
                ask.names.push(name);
            }
        }
        let args::OncePer { once_per, slot, retry_failed, .. } = args.once;
        let once = once_per.map(|period| Once { period, slot, retry_failed });
        if once.is_some() && args.line.busy_code.is_none() {
            // Who is not needed has not failed.
            ask.busy_code = 0;
        }
        program::check(program)?;
        Ok(Self {
            store: Store::new(&args.store)?,
            pass_url: args.pass_url,
            ask,
            grace: args.kill_after,
            command: args.command,
            once,
        })
    }
}

/// `tidelock elect`, ready to be done.
#[derive(Debug)]
pub(crate) struct Elect {
    /// The command, and the name, label and ttl of the candidate.
    pub(crate) run: Run,
    pub(crate) advertise: Option<String>,
    /// Whether to lead for one term only.
    pub(crate) once: bool,
    pub(crate) restart: args::Restart,
}

impl Elect {
    /// Checks what can be known, as [`Run::new`] does.
    pub(crate) fn new(args: args::Elect) -> Result<Self, Trouble> {
        let Some(program) = args.command.first() else {
            return Err(Trouble::Usage("there is no command to run: write it after --".into()));
        };
        let ask = Ask {
            names: vec![Name::new(args.which.name())?],
            share: Share::Exclusive,
            wait: None,
            ttl: args.ttl,
            at_least: Duration::ZERO,
            label: args.label.unwrap_or_else(|| label(Path::new(program))),
            owner: None,
            max_hold: None,
            detached: false,
            quiet: args.quiet,
            busy_code: 0,
            fail_fast: false,
        };
        program::check(program)?;
        let run = Run {
            store: Store::new(&args.store)?,
            pass_url: args.pass_url,
            ask,
            grace: args.kill_after,
            command: args.command,
            once: None,
        };
        Ok(Self { run, advertise: args.advertise, once: args.once, restart: args.restart })
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
