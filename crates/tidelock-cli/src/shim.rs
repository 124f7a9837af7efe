//! This program again, in two small parts: one begins a command, one watches over it.
//!
//! If tidelock is killed with -9 its lock is soon somebody else's, so the command must not go on.
//! A [`watcher`] outlives tidelock by a moment and ends the command and what it started. If somebody
//! kills the watcher, the kernel ends the command: it kills a process whose parent dies if the process
//! asked for it, and only the process itself can ask, after it was forked and before it becomes the
//! command. So a command begins as this program, which asks and then becomes the command. The ask
//! survives the change, except into a program with special rights (setuid), where the kernel forgets it.

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    os::unix::process::CommandExt,
    process::Command,
};

use rustix::process::{Pid, Signal};

use crate::{exit::Exit, output, program, signals, terminal::Terminal, watcher};

/// The words that no user types.
const BEGIN: &str = "__child";
const WATCH: &str = "__watch";
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// This program.
fn ourselves() -> io::Result<Command> {
    // On Linux the link and not the path behind it: after an update that path may be another
    // program or none.
    let path = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    std::fs::exists(&path)?.then(|| Command::new(path)).ok_or_else(|| ErrorKind::NotFound.into())
}

/// A process that starts a command and watches over it.
pub(crate) fn watcher(command: &[OsString], foreground: bool) -> io::Result<Command> {
    let mut watcher = ourselves()?;
    watcher.arg0("tidelock").arg(WATCH).arg(ground(foreground)).args(command);
    Ok(watcher)
}

/// A process that becomes a command, in the foreground of the terminal or not, and dies with us. It does
/// not block these signals, which we do.
pub(crate) fn beginner(command: &[OsString], foreground: bool, blocked: u64) -> Command {
    let Ok(mut begin) = ourselves() else { return plain(command) };
    begin.arg0("tidelock").arg(BEGIN).arg(ground(foreground)).arg(std::process::id().to_string());
    begin.arg(blocked.to_string()).args(command);
    begin
}

/// A command as it is.
pub(crate) fn plain(command: &[OsString]) -> Command {
    let mut words = command.iter();
    let mut plain = Command::new(words.next().cloned().unwrap_or_default());
    plain.args(words);
    plain
}

fn ground(foreground: bool) -> &'static str {
    if foreground { FOREGROUND } else { BACKGROUND }
}

/// Does its part if this process is not the tidelock that a user started.
pub(crate) fn run_if_asked() -> Option<Exit> {
    let mut words = std::env::args_os().skip(1);
    let word = words.next()?;
    if word != BEGIN && word != WATCH {
        return None;
    }
    let foreground = words.next().is_some_and(|word| word == FOREGROUND);
    if word == WATCH {
        return Some(watcher::watch(&words.collect::<Vec<_>>(), foreground));
    }
    let pid = words.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let blocked = words.next().and_then(|blocked| blocked.to_str()?.parse().ok());
    let (Some(pid), Some(blocked)) = (pid, blocked) else {
        output::complain(&"that is for tidelock itself to use");
        return Some(Exit::Failed);
    };
    signals::unblock(blocked);
    Some(begin(pid, foreground, &words.collect::<Vec<_>>()))
}

/// Ties this process to its parent and becomes the command. Returns only if that fails.
fn begin(parent: Pid, foreground: bool, command: &[OsString]) -> Exit {
    #[cfg(target_os = "linux")]
    {
        // KILL: what can be caught can be ignored, and somebody else holds the lock by then.
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            output::complain(&format!("cannot tie the command to tidelock: {error}"));
            return Exit::Failed;
        }
    }
    // A parent that died before the ask sends no signal.
    if rustix::process::getppid() != Some(parent) {
        return Exit::Failed;
    }
    if foreground && let Some(terminal) = Terminal::open() {
        // Here and not by the parent: the command may ask for the terminal in its first instruction.
        terminal.claim();
    }
    failed(&command.first().cloned().unwrap_or_default(), &plain(command).exec())
}

/// Says why a command did not start.
pub(crate) fn failed(program: &OsString, error: &io::Error) -> Exit {
    match error.kind() {
        ErrorKind::NotFound => output::report(&program::trouble(program, Exit::NotFound)),
        _ => {
            output::complain(&format!("command {program:?} cannot be run: {error}"));
            Exit::NotRunnable
        }
    }
}
