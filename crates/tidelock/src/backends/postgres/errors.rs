//! What may be concluded from an error of the driver.

use std::error::Error as _;

use tokio_postgres::Error;

use crate::{
    backend::Failure,
    backends::shared::failures::{before_asking, one_line},
};

/// An error that came in answer to a statement, or instead of one. One that the server reports undid the statement,
/// unless the session ended over it.
pub(super) fn classify(error: Error) -> Failure {
    conclude(&error).caused_by(error)
}

/// What may be concluded from such an error, for those who keep it.
pub(super) fn conclude(error: &Error) -> Failure {
    let Some(told) = error.as_db_error() else {
        // The statement may have been sent, and its commit may have been done.
        return Failure::unknown(describe(error));
    };
    by_code(told.code().code(), describe(error))
}

fn by_code(code: &str, text: String) -> Failure {
    match code {
        "40001" | "40P01" | "55P03" => {
            Failure::unreachable(format!("{text}: another transaction was at the same row"))
        }
        "53300" => Failure::unreachable(format!(
            "{text}: raise max_connections of the server, or use fewer clients or a pooler"
        )),
        "28P01" | "28000" => Failure::denied(format!("{text}: correct the user and password in the URL")),
        "3D000" => Failure::denied(format!("{text}: make the database, or correct its name in the URL")),
        "25006" => {
            Failure::unreachable(format!("{text}: the server is read-only; name its primary in the URL"))
        }
        "42501" => {
            Failure::denied(format!("{text}: give the user the rights that docs/backends/postgres.md lists"))
        }
        "3F000" | "42883" | "42P01" => Failure::denied(format!(
            "{text}: the schema of tidelock is not there; have an administrator run what `tidelock schema --print postgres` prints"
        )),
        // The session was changed under our hands: it is made anew.
        "26000" => Failure::unreachable(text),
        "57P03" => Failure::unreachable(format!("{text}: the server starts or stops")),
        // The session ended while the statement was under way: it may have been committed.
        "57P01" | "57P02" | "57P05" => Failure::unknown(text),
        _ if code.starts_with("08") => Failure::unknown(text),
        // Full, out of memory, cancelled: it may go better later.
        _ if code.starts_with("53") || code.starts_with("57") => Failure::unreachable(text),
        _ => Failure::denied(text),
    }
}

/// Whether the server undid a statement because of another one: asking again is all that is needed.
pub(super) fn was_undone(error: &Error) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "40001" | "40P01"))
}

/// Whether the connection is of no use any more.
pub(super) fn ends_connection(error: &Error) -> bool {
    match error.as_db_error() {
        None => error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>()),
        Some(told) => {
            let code = told.code().code();
            code.starts_with("57P") || code.starts_with("08") || matches!(code, "25006" | "26000")
        }
    }
}

/// An error while connecting: no statement was sent.
pub(super) fn classify_connecting(error: Error) -> Failure {
    let is_of_server = error.as_db_error().is_some();
    let failure = classify(error);
    // The driver refuses to go on: the server wants a password, say, and the URL has none. No patience helps.
    if !is_of_server && failure.reason.starts_with("invalid configuration") {
        let reason = format!("{}: correct user and password in the URL", failure.reason);
        return Failure { cause: failure.cause, ..Failure::denied(reason) };
    }
    before_asking(failure)
}

/// One line, without what the driver adds around the server's words.
fn describe(error: &Error) -> String {
    let text = match error.as_db_error() {
        Some(told) => format!("{} ({})", told.message(), told.code().code()),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    };
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FailureKind::{Denied, Unknown, Unreachable};

    #[test]
    fn codes_lead_to_conclusions_and_fixes() {
        for (code, kind, says) in [
            ("40001", Unreachable, "same row"),
            ("40P01", Unreachable, "same row"),
            ("55P03", Unreachable, "same row"),
            ("53300", Unreachable, "raise max_connections"),
            ("53100", Unreachable, "text"),
            ("28P01", Denied, "correct the user and password"),
            ("28000", Denied, "correct the user and password"),
            ("3D000", Denied, "make the database"),
            ("25006", Unreachable, "name its primary"),
            ("42501", Denied, "docs/backends/postgres.md"),
            ("42883", Denied, "tidelock schema --print postgres"),
            ("3F000", Denied, "tidelock schema --print postgres"),
            ("26000", Unreachable, "text"),
            ("57P01", Unknown, "text"),
            ("57P02", Unknown, "text"),
            ("57P03", Unreachable, "starts or stops"),
            ("57014", Unreachable, "text"),
            ("08006", Unknown, "text"),
            ("XX000", Denied, "text"),
        ] {
            let failure = by_code(code, "text".to_owned());
            assert_eq!(failure.kind, kind, "{code}");
            assert!(failure.reason.contains(says) && !failure.reason.contains('\n'), "{code}: {failure}");
        }
    }
}
