//! What may be concluded from an error.

use std::io;

use mysql_async::{DriverError, Error, IoError};

use crate::{
    backend::Failure,
    backends::shared::failures::{before_asking, one_line},
};

/// What procedures say when the server was made read-only between their first look and their commit.
const WAS_DEMOTED: u16 = 31290;

/// An error that came in answer to a call, or instead of one.
pub(super) fn classify(error: Error) -> Failure {
    conclude(&error).caused_by(error)
}

/// What may be concluded from such an error, for those who keep it.
pub(super) fn conclude(error: &Error) -> Failure {
    let text = describe(error);
    match error {
        Error::Server(server) => by_code(server.code, text),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => Failure::denied(
            "the server has no TLS: enable it there, or accept that all is sent in the clear with ?tls=off in the URL",
        ),
        Error::Driver(DriverError::UnknownAuthPlugin { .. } | DriverError::CleartextPluginDisabled) => {
            Failure::denied(format!("{text}: give the user another way to log in"))
        }
        Error::Driver(DriverError::MysqlOldPasswordDisabled) => Failure::denied(text),
        Error::Io(IoError::Tls(_)) => tls(&text),
        Error::Io(IoError::Io(error)) if is_tls(error) => tls(&text),
        Error::Io(IoError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Failure::unreachable(format!("{text}: start the server, or correct the host and port in the URL"))
        }
        // Whatever else: the call may have been heard.
        _ => Failure::unknown(text),
    }
}

fn by_code(code: u16, text: String) -> Failure {
    match code {
        1045 | 1698 | 1820 | 1862 | 3118 | 4151 => {
            Failure::denied(format!("{text}: correct the user and password in the URL"))
        }
        1049 => Failure::denied(format!("{text}: create the database, or name another one in the URL")),
        1130 => Failure::denied(format!("{text}: let the user in from this host")),
        1044 | 1142 | 1143 | 1227 | 1370 => {
            Failure::denied(format!("{text}: grant EXECUTE on the database of the locks"))
        }
        3159 => Failure::denied(format!("{text}: write ?tls=on in the URL")),
        1040 | 1203 | 1226 => Failure::unreachable(format!("{text}: raise the limit, or let fewer connect")),
        1129 => Failure::unreachable(format!("{text}: unblock it with FLUSH HOSTS")),
        1290 | 1792 | 1836 => Failure::unreachable(format!(
            "{text}: it was demoted or is a replica; let the URL lead to the server that takes writes"
        )),
        // The change was committed there, and may be missing on the server that was promoted.
        WAS_DEMOTED => Failure::unknown(format!("{text}: let the URL lead to the server that takes writes")),
        1037 | 1038 | 1041 | 1135 => {
            Failure::unreachable(format!("{text}: give the server more memory, or let fewer connect"))
        }
        1021 | 1114 => Failure::unreachable(format!("{text}: make room on its disk")),
        // Rolled back: somebody else was faster, or had the line for long.
        1205 | 1213 => Failure::unreachable(text),
        // It is being stopped, or an administrator ended the statement or the connection: maybe after the change.
        1053 | 1077 | 1152 | 1184 | 1317 | 1927 | 1969 | 3024 => Failure::unknown(text),
        1305 | 1146 => Failure::unreachable(format!("{text}: tables and procedures of locks are missing")),
        1665 => Failure::denied(format!("{text}: set binlog_format to MIXED or ROW")),
        _ => Failure::denied(text),
    }
}

/// An error while connecting: nothing was asked.
pub(super) fn classify_connecting(error: Error) -> Failure {
    before_asking(classify(error))
}

/// The number of an error of the server; 0 for others.
pub(super) fn code(error: &Error) -> u16 {
    match error {
        Error::Server(server) => server.code,
        _ => 0,
    }
}

/// Whether the user may not do it.
pub(super) fn is_no_right(error: &Error) -> bool {
    matches!(code(error), 1044 | 1142 | 1143 | 1227 | 1370 | 1419)
}

/// Whether nothing was changed, and the same may well be done now.
pub(super) fn is_rolled_back(error: &Error) -> bool {
    matches!(code(error), 1205 | 1213)
}

/// Whether what the call needs is not in the database any more.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(code(error), 1146 | 1305 | 1318)
}

/// Whether the connection leads nowhere: to a server that stops, or that takes no writes.
pub(super) fn is_broken(error: &Error) -> bool {
    error.is_fatal()
        || matches!(code(error), 1053 | 1077 | 1152 | 1184 | 1290 | 1792 | 1836 | 1927 | WAS_DEMOTED)
}

/// A certificate that is not good, as the driver says it.
fn is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| {
        inner.is::<rustls::Error>() || inner.source().is_some_and(|source| source.is::<rustls::Error>())
    })
}

fn tls(text: &str) -> Failure {
    Failure::denied(format!("{text}: correct ca, cert and key in the URL"))
}

/// One line, without what the driver adds around the server's words.
fn describe(error: &Error) -> String {
    let text = match error {
        Error::Server(server) => format!("{} {}", server.code, server.message),
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Io(IoError::Tls(error)) => error.to_string(),
        Error::Driver(error) => error.to_string(),
        other => other.to_string(),
    };
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;
    use crate::backend::FailureKind::{Denied, Unknown, Unreachable};

    #[test]
    fn each_error_of_the_server_says_what_may_be_concluded() {
        for (code, kind, fix) in [
            (1045, Denied, "password"),
            (1049, Denied, "create the database"),
            (1044, Denied, "grant EXECUTE"),
            (1142, Denied, "grant EXECUTE"),
            (1370, Denied, "grant EXECUTE"),
            (1130, Denied, "from this host"),
            (3159, Denied, "tls=on"),
            (1665, Denied, "binlog_format"),
            (1064, Denied, ""),
            (1040, Unreachable, "limit"),
            (1226, Unreachable, "limit"),
            (1205, Unreachable, ""),
            (1213, Unreachable, ""),
            (1290, Unreachable, "takes writes"),
            (31290, Unknown, "takes writes"),
            (1041, Unreachable, "memory"),
            (1114, Unreachable, "room"),
            (1053, Unknown, ""),
            (1317, Unknown, ""),
            (1927, Unknown, ""),
        ] {
            let said = ServerError { code, message: "words\nmore".into(), state: "HY000".into() };
            let failure = classify(said.into());
            assert_eq!(failure.kind, kind, "{code}");
            assert!(failure.cause.as_ref().is_some_and(|cause| cause.is::<Error>()));
            assert!(failure.reason.contains(fix) && !failure.reason.contains('\n'), "{failure}");
        }
    }

    #[test]
    fn a_connection_that_breaks_leaves_the_outcome_unknown() {
        let io = |kind| Error::from(io::Error::from(kind));
        assert_eq!(classify(io(io::ErrorKind::UnexpectedEof)).kind, Unknown);
        assert_eq!(classify_connecting(io(io::ErrorKind::UnexpectedEof)).kind, Unreachable);
        assert_eq!(classify(io(io::ErrorKind::ConnectionRefused)).kind, Unreachable);
        let no_tls = Error::from(DriverError::NoClientSslFlagFromServer);
        assert!(classify(no_tls).reason.contains("tls=off"));
    }
}
