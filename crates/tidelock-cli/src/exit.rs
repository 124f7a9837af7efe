//! What the shell is told.

use std::{fmt::Write, process::ExitCode};

/// How a run ended. The codes are those of `timeout`, `env` and shells, so that scripts can tell
/// what tidelock says from what the command under the lock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Done,
    /// The answer is no: the lock is free, nothing to break, something to fix.
    No,
    /// The lock was lost: while the command ran, which was stopped, or before its ticket was used.
    Lost,
    /// The lock was not acquired in time.
    NotAcquired,
    /// tidelock itself failed: wrong arguments, a store that does not answer.
    Failed,
    /// The command was found but cannot be run.
    NotRunnable,
    /// The command was not found.
    NotFound,
    /// The lock was not acquired in time, with the code that was asked for.
    Busy(u8),
    /// What the command under the lock said.
    Command(u8),
    /// A signal ended the command, or the wait for the lock.
    Signal(i32),
}

impl Exit {
    /// Those with a fixed code, in the order of their codes.
    const FIXED: [Self; 7] = [
        Self::Done,
        Self::No,
        Self::Lost,
        Self::NotAcquired,
        Self::Failed,
        Self::NotRunnable,
        Self::NotFound,
    ];

    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Lost => 123,
            Self::NotAcquired => 124,
            Self::Failed => 125,
            Self::NotRunnable => 126,
            Self::NotFound => 127,
            Self::Busy(code) | Self::Command(code) => code,
            // As shells do. Signals end at 64, so the sum fits.
            Self::Signal(signal) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Done => "all went well",
            Self::No => "the answer is no: the lock is free, nothing to break, or something to fix",
            Self::Lost => "the lock was lost: while the command ran, or before its ticket was used",
            Self::NotAcquired | Self::Busy(_) => "the lock was not acquired in time (--busy-code changes it)",
            Self::Failed => "tidelock itself failed",
            Self::NotRunnable => "the command cannot be run",
            Self::NotFound => "the command was not found",
            Self::Command(_) => "the command said so",
            Self::Signal(_) => "a signal ended it",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The end of the help: examples and the codes.
pub(crate) fn help() -> String {
    let mut text = "Examples:
  tidelock run nightly-report -- ./report.sh
  ticket=$(tidelock acquire deploy)
  tidelock ls --url redis://127.0.0.1

Options of the store and --json may stand before or after the command.

Exit codes of run are those of the command, 128+N if signal N ended it, and:"
        .to_owned();
    for exit in Exit::FIXED {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {:>3}  {}", exit.code(), exit.meaning());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_means_one_thing() {
        assert!(Exit::FIXED.windows(2).all(|pair| pair[0].code() < pair[1].code()));
        assert!(Exit::FIXED.iter().all(|exit| help().contains(exit.meaning())));
    }

    #[test]
    fn signals_are_counted_from_128_as_shells_do() {
        assert_eq!((Exit::Signal(2).code(), Exit::Signal(9).code()), (130, 137));
    }
}
