//! Who may read the terminal: this process group or the command's.

use std::{
    fs::File,
    io::{self, IsTerminal},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::{
    process::{self, Pid, getpgrp},
    termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp},
};

use crate::signals;

/// The terminal that this process is controlled from.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
    /// How it was set when the command began.
    settings: Option<Termios>,
}

impl Terminal {
    /// The terminal, if there is one.
    pub(crate) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let settings = tcgetattr(&tty).ok();
        Some(Self { tty, own: getpgrp(), settings })
    }

    /// Whether a command should have the terminal before it asks for it.
    ///
    /// Not if its output goes into a pipe: `tidelock run … | less` is one job, and less needs the
    /// terminal more. There it gets it when it asks, which is when it is stopped with TTIN; but in
    /// `x=$(tidelock run …)` shells ignore that signal, and a process that asks gets an error instead.
    pub(crate) fn is_wanted() -> bool {
        io::stdin().is_terminal()
            && (io::stdout().is_terminal() || signals::is_ignored(process::Signal::TTIN))
    }

    /// Whether this process group is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_of(self.own)
    }

    /// Whether a process group is in the foreground.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|now| now == group)
    }

    /// Puts the command into the foreground, if this process group is there. Says whether it is.
    pub(crate) fn give(&self, group: Pid) -> bool {
        self.is_ours() && self.set(group)
    }

    /// Takes the foreground back from the command, and from nobody else.
    pub(crate) fn take(&self, group: Pid) {
        if self.is_of(group) {
            self.set(self.own);
        }
    }

    /// Puts this process group into the foreground, even if another group is there.
    pub(crate) fn claim(&self) {
        self.set(self.own);
    }

    fn set(&self, group: Pid) -> bool {
        // A process that changes the foreground from the background is stopped with TTOU, unless the
        // thread that does it blocks that signal.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let Ok(before) = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
        // A terminal that is gone has no foreground.
        let set = tcsetpgrp(&self.tty, group).is_ok();
        before.thread_set_mask().is_ok() && set
    }

    /// Sets the terminal as it was, if this process group is in the foreground.
    pub(crate) fn restore(&self) {
        if let Some(settings) = self.settings.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, settings);
        }
    }
}
