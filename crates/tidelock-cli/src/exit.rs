//! What the shell is told.

use std::{fmt::Write, process::ExitCode};

/// How a run ended. The codes are those of `timeout`, `env` and shells, so that scripts can tell
/// what tidelock says from what the command under the lock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Done,
    /// The lock was lost while the command ran, and the command was stopped.
    Lost,
    /// The lock was not acquired in time.
    NotAcquired,
    /// tidelock itself failed: wrong arguments, a store that does not answer.
    Failed,
    /// The command was found but cannot be run.
    NotRunnable,
    /// The command was not found.
    NotFound,
}

impl Exit {
    /// All of them, in the order of their codes.
    const ALL: [Self; 6] =
        [Self::Done, Self::Lost, Self::NotAcquired, Self::Failed, Self::NotRunnable, Self::NotFound];

    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Lost => 123,
            Self::NotAcquired => 124,
            Self::Failed => 125,
            Self::NotRunnable => 126,
            Self::NotFound => 127,
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Done => "all went well",
            Self::Lost => "the lock was lost while the command ran",
            Self::NotAcquired => "the lock was not acquired in time",
            Self::Failed => "tidelock itself failed",
            Self::NotRunnable => "the command cannot be run",
            Self::NotFound => "the command was not found",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The end of the help: an example and the codes.
pub(crate) fn help() -> String {
    let mut text = "Example:\n  tidelock stores\n\nExit codes:".to_owned();
    for exit in Exit::ALL {
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
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
        assert!(Exit::ALL.iter().all(|exit| help().contains(exit.meaning())));
    }
}
