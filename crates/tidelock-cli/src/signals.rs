//! Signals that are meant for the command, and the one that says something happened to it.

use std::{future::poll_fn, io, task::Poll};

use nix::sys::signal::{self, SigSet, SigmaskHow};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// What a user or a supervisor sends to end a command or to talk to it.
const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// What a user or a supervisor sends to end a command.
const ENDS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// The signals that this process catches, except those that it was started to ignore.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// The last one that asks for an end.
    end: Option<Signal>,
}

impl Signals {
    /// Those to be forwarded. From here on they do not end this process.
    pub(crate) fn forwarded() -> io::Result<Self> {
        Self::of(&FORWARDED)
    }

    /// Those of job control: a child changed, a stop from the terminal, going on after a stop.
    pub(crate) fn job_control() -> io::Result<Self> {
        Self::of(&[Signal::CHILD, Signal::TSTP, Signal::CONT])
    }

    fn of(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let mut streams = Vec::new();
        for &name in signals {
            // Under `nohup` the command is to ignore HUP, and it would not if we caught it: what is
            // caught here starts out as the default there. A child's end must be seen in any case.
            if name == Signal::CHILD || ignored & bit(name) == 0 {
                streams.push((name, unix::signal(SignalKind::from_raw(name.as_raw()))?));
            }
        }
        Ok(Self { streams, end: None })
    }

    /// The next one that comes in. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = poll_fn(|context| {
            for (name, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*name);
                }
            }
            Poll::Pending
        })
        .await;
        if ENDS.contains(&signal) {
            self.end = Some(signal);
        }
        signal
    }

    /// Waits for a signal that asks for an end, and passes over others: a candidate has no command to send
    /// them to. Cancel safe.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDS.contains(&signal) {
                return signal;
            }
        }
    }

    /// The last signal that came in and asks for an end, if any did.
    pub(crate) fn asked_to_end(&self) -> Option<Signal> {
        self.end
    }
}

/// Whether this process was started to ignore a signal.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    ignored() & bit(signal) != 0
}

/// The signals that this process was started to ignore, where the system tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// What ends or stops a process that does not expect it.
const DEADLY: [signal::Signal; 10] = [
    signal::Signal::SIGTERM,
    signal::Signal::SIGINT,
    signal::Signal::SIGHUP,
    signal::Signal::SIGQUIT,
    signal::Signal::SIGUSR1,
    signal::Signal::SIGUSR2,
    signal::Signal::SIGALRM,
    signal::Signal::SIGTSTP,
    signal::Signal::SIGTTIN,
    signal::Signal::SIGTTOU,
];

/// Keeps from this thread, and from those that it starts, what would end or stop it. Says which signals
/// were not kept from it before: a child that is to hear them [unblocks](unblock) them.
pub(crate) fn block() -> u64 {
    let Ok(before) = SigSet::from_iter(DEADLY).thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return 0 };
    let fresh = DEADLY.into_iter().filter(|signal| !before.contains(*signal));
    fresh.fold(0, |bits, signal| bits | 1 << (signal as i32 - 1))
}

/// Lets signals through again.
pub(crate) fn unblock(bits: u64) {
    let fresh = DEADLY.into_iter().filter(|signal| bits & 1 << (*signal as i32 - 1) != 0);
    // It fails only for sets that are no sets.
    let _ = SigSet::from_iter(fresh).thread_unblock();
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}
