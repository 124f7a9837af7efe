//! Conclusions and sentences that are the same for every store.

use std::{fmt::Display, io, time::Duration};

use crate::backend::{Failure, FailureKind};

/// A failure while connecting. No question was sent, so nothing changed.
pub(crate) fn before_asking(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Unknown => Failure { kind: FailureKind::Unreachable, ..failure },
        FailureKind::Unreachable | FailureKind::Denied => failure,
    }
}

/// A failure after which the outcome is unknown, whatever it meant where it happened.
pub(crate) fn in_doubt(failure: Failure) -> Failure {
    Failure { kind: FailureKind::Unknown, ..failure }
}

/// The same error once more, as the cause of a failure: errors of the system cannot be cloned.
pub(crate) fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Says which server it was.
pub(crate) fn at(address: impl Display, failure: Failure) -> Failure {
    Failure { reason: format!("{address}: {}", failure.reason).into(), ..failure }
}

/// A server took longer than this to be connected.
pub(crate) fn no_answer_within(limit: Duration) -> Failure {
    Failure::unreachable(format!("no answer within {limit:?}"))
}

/// All that could send news is gone, so a wake would wait forever.
pub(crate) fn no_more_news() -> Failure {
    Failure::unreachable("nobody can tell anything any more")
}

/// The turns for connections ended with the client.
pub(crate) fn client_is_closed() -> Failure {
    Failure::unreachable("the client is closed")
}

/// What a server or a driver says, for a sentence: its first line, and not too much of that.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FailureKind::{Denied, Unreachable};

    #[test]
    fn while_connecting_no_outcome_is_unknown() {
        let kinds = [Failure::unknown("x"), Failure::unreachable("x"), Failure::denied("x")]
            .map(|failure| before_asking(failure).kind);
        assert_eq!(kinds, [Unreachable, Unreachable, Denied]);
    }

    #[test]
    fn a_failure_keeps_its_cause_whatever_is_concluded_from_it() {
        let refused = || Failure::unknown("x").caused_by(io::Error::from(io::ErrorKind::ConnectionRefused));
        for failure in [before_asking(refused()), in_doubt(refused()), at("[::1]:7", refused())] {
            assert!(failure.cause.is_some_and(|cause| cause.is::<io::Error>()));
        }
    }

    #[test]
    fn a_server_is_named_and_the_conclusion_stays() {
        let failure = at("[::1]:7", Failure::denied("no"));
        assert_eq!((failure.kind, &*failure.reason), (Denied, "[::1]:7: no"));
    }

    #[test]
    fn a_sentence_has_one_line() {
        assert_eq!(one_line("first\nsecond"), "first");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"é".repeat(500)).chars().count(), 200);
    }
}
