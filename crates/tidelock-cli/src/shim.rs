//! This program again, in two small parts: one begins a command, one watches over it.
//!
//! If tidelock is killed with -9 its lock is soon somebody else's, so the command must not go on.
//! The kernel kills a process whose parent dies if the process asked for it, and only the process
//! itself can ask: after it was forked, before it becomes the command. So a command begins as this
//! program, which asks and then becomes the command. The ask survives the change, except into a
//! program with special rights (setuid), where the kernel forgets it.
//!
//! What the command started has not asked. For that there is a [`Watcher`], which outlives tidelock
//! by a moment and kills the whole group.

use std::{
    ffi::OsString,
    io::{self, ErrorKind, PipeWriter, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{exit::Exit, output, program, terminal::Terminal};

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

/// A command that becomes `command`, in the foreground of the terminal or not.
pub(crate) fn command(command: &[OsString], foreground: bool) -> Command {
    // Where this program cannot be found again (no /proc) the command has to do without: it is not
    // tied to tidelock's life, and gets the terminal when it asks.
    let Ok(mut begin) = ourselves() else { return plain(command) };
    begin.arg0("tidelock").arg(BEGIN).arg(std::process::id().to_string());
    begin.arg(if foreground { FOREGROUND } else { BACKGROUND }).args(command);
    begin
}

fn plain(command: &[OsString]) -> Command {
    let mut words = command.iter();
    let mut plain = Command::new(words.next().cloned().unwrap_or_default());
    plain.args(words);
    plain
}

/// Does its part if this process is not the tidelock that a user started.
pub(crate) fn run_if_asked() -> Option<Exit> {
    let mut words = std::env::args_os().skip(1);
    let word = words.next()?;
    if word != BEGIN && word != WATCH {
        return None;
    }
    let Some(pid) = words.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?)) else {
        output::complain(&"that is for tidelock itself to use");
        return Some(Exit::Failed);
    };
    if word == WATCH {
        return Some(watch(pid));
    }
    let foreground = words.next().is_some_and(|word| word == FOREGROUND);
    Some(begin(pid, foreground, &words.collect::<Vec<_>>()))
}

/// Ties this process to its parent and becomes the command. Returns only if that fails.
fn begin(parent: Pid, foreground: bool, command: &[OsString]) -> Exit {
    #[cfg(target_os = "linux")]
    {
        // KILL: what can be caught can be ignored, and somebody else holds the lock by then.
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            output::complain(&format!("cannot tie the command to this process: {error}"));
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

/// Kills a group when the other end of standard input is gone.
fn watch(group: Pid) -> Exit {
    // Nobody writes: reading ends when tidelock does, in whatever way.
    let _ = io::stdin().read(&mut [0]);
    let _ = kill_process_group(group, Signal::KILL);
    Exit::Done
}

/// Somebody who kills a process group when this process dies, and not before.
#[derive(Debug)]
pub(crate) struct Watcher {
    child: Child,
    /// The kernel closes it when this process dies. Nobody else has it.
    _alive: PipeWriter,
}

impl Watcher {
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let (reader, alive) = io::pipe()?;
        let child = ourselves()?
            .arg0("tidelock")
            .args([WATCH, &group.as_raw_nonzero().to_string()])
            // Of its own, so that what ends the command or tidelock does not end it too.
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, _alive: alive })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Before the pipe is closed: what the command left behind on purpose may stay.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
