//! The operator's own command, which fails the servers.

use std::{
    io,
    process::{Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use crate::clock::Moment;

/// The operator's own command for faults of servers.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    pub(super) command: String,
    pub(super) faults: Vec<String>,
    pub(super) every: Duration,
}

/// What the hook does at the moment.
#[derive(Debug)]
pub(super) enum Hooked {
    /// Called, and not back yet: with the fault, or to heal it.
    Running { fault: u32, heals: bool, done: Receiver<io::Result<bool>> },
    /// The fault is there until then.
    Broken { fault: u32, heals: Moment },
}

impl Hook {
    /// Calls it after a moment, in a thread: it may take long. Says whether it succeeded.
    pub(super) fn call(&self, what: &str, after: Duration) -> Receiver<io::Result<bool>> {
        let (tell, done) = channel();
        let command = format!("{} \"$1\"", self.command);
        let what = what.to_owned();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            let status = Command::new("sh")
                .args(["-c", &command, "tidelock-torture", &what])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status();
            // Nobody listens when the run was ended.
            let _ = tell.send(status.map(|status| status.success()));
        });
        done
    }
}
