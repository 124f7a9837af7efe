//! What may be concluded from an error.

use std::{error::Error, io};

use tonic::{Code, Status};

use super::link::Ended;
use crate::{backend::Failure, backends::shared::failures::one_line};

/// What the server said instead of an answer, or what became of the connection.
pub(super) fn classify(status: &Status) -> Failure {
    conclude(status).caused_by(status.clone())
}

fn conclude(status: &Status) -> Failure {
    let text = describe(status);
    let has = |part: &str| status.message().contains(part);
    match status.code() {
        Code::PermissionDenied => Failure::denied(format!(
            "{text}: give the user the rights to read and to write all keys that begin with the prefix"
        )),
        Code::Unauthenticated => Failure::denied(format!("{text}: correct the user and password in the URL")),
        Code::InvalidArgument if has("authentication failed") || has("user name") => {
            Failure::denied(format!("{text}: correct the user and password in the URL"))
        }
        Code::InvalidArgument if has("too many operations") => {
            Failure::denied(format!("{text}: start it with --max-txn-ops=128 or more"))
        }
        Code::InvalidArgument | Code::FailedPrecondition => Failure::denied(text),
        Code::Unimplemented => {
            Failure::denied(format!("{text}: this does not speak the protocol of etcd 3.4 or newer"))
        }
        Code::ResourceExhausted if has("space exceeded") => Failure::unreachable(format!(
            "{text}: compact and defragment it or raise its quota, then disarm the alarm with etcdctl"
        )),
        // Refused before anything was done.
        Code::ResourceExhausted if has("too many requests") => Failure::unreachable(text),
        Code::Unavailable if has("no leader") || has("not capable") || has("learner") => {
            Failure::unreachable(text)
        }
        // As if it had never been: the lease is asked for anew.
        Code::NotFound => Failure::unreachable(text),
        _ if was_not_sent(status) => Failure::unreachable(text),
        _ if is_refused(status) => {
            Failure::unreachable(format!("{text}: start the server, or correct the host and port in the URL"))
        }
        // Whatever else: the question may have been heard.
        _ => Failure::unknown(text),
    }
}

/// An error while connecting: nothing was asked.
pub(super) fn classify_connecting(error: tonic::transport::Error) -> Failure {
    conclude_connecting(&error).caused_by(error)
}

fn conclude_connecting(error: &tonic::transport::Error) -> Failure {
    if let Some(reason) = tls_error(error) {
        return Failure::denied(format!("{reason}: correct ca, cert and key in the URL"));
    }
    let text = deepest(error);
    if is_refused(error) {
        return Failure::unreachable(format!(
            "{text}: start the server, or correct the host and port in the URL"
        ));
    }
    Failure::unreachable(text)
}

/// Whether another login may help: the token is over, or rights were changed meanwhile.
pub(super) fn wants_login(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || status.message().contains("invalid auth token")
        || status.message().contains("revision of auth store is old")
}

/// Whether the login itself is not wanted.
pub(super) fn needs_no_login(status: &Status) -> bool {
    status.message().contains("authentication is not enabled")
}

/// Whether a lease that was to be used is over.
pub(super) fn lacks_lease(status: &Status) -> bool {
    status.code() == Code::NotFound && status.message().contains("lease not found")
}

/// Whether the member is worth asking anything more: it answered, and not about itself.
pub(super) fn is_broken(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::DeadlineExceeded => {
            !status.message().contains("too many requests")
        }
        _ => false,
    }
}

/// Whether a question was not sent, because its connection had ended before.
pub(super) fn was_not_sent(status: &Status) -> bool {
    sources(status).any(<dyn Error>::is::<Ended>)
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    sources(error).any(|source| {
        source.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// What is wrong with a certificate.
fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    sources(error).find_map(|source| {
        let tls = source.downcast_ref::<rustls::Error>();
        let inner = source.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        tls.or_else(|| inner?.downcast_ref::<rustls::Error>()).map(ToString::to_string)
    })
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
}

/// The first cause, in one line.
fn deepest(error: &(dyn Error + 'static)) -> String {
    let text = sources(error).last().map_or_else(String::new, ToString::to_string);
    one_line(&text)
}

/// One line, without what the driver adds around the server's words.
fn describe(status: &Status) -> String {
    let text = if status.message().is_empty() { deepest(status) } else { status.message().to_owned() };
    one_line(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FailureKind::{self, Denied, Unknown, Unreachable};

    #[test]
    fn each_error_of_the_server_says_what_may_be_concluded() {
        let table: [(Code, &str, FailureKind); 17] = [
            (Code::PermissionDenied, "etcdserver: permission denied", Denied),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Denied),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", Denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", Denied),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", Denied),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", Denied),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Unreachable),
            (Code::ResourceExhausted, "etcdserver: too many requests", Unreachable),
            (Code::Unavailable, "etcdserver: no leader", Unreachable),
            (Code::Unavailable, "etcdserver: rpc not supported for learner", Unreachable),
            (Code::NotFound, "etcdserver: requested lease not found", Unreachable),
            (Code::Unavailable, "etcdserver: request timed out", Unknown),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost", Unknown),
            (Code::Unavailable, "etcdserver: leader changed", Unknown),
            (Code::Unavailable, "etcdserver: server stopped", Unknown),
            (Code::Unknown, "transport error", Unknown),
            (Code::Cancelled, "h2 protocol error: stream closed", Unknown),
        ];
        for (code, message, kind) in table {
            let failure = classify(&Status::new(code, message));
            assert_eq!(failure.kind, kind, "{message}");
            assert!(failure.cause.as_ref().is_some_and(|cause| cause.is::<Status>()));
            assert!(failure.reason.starts_with(message), "{}", failure.reason);
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let refused = Status::from_error(Box::new(refused));
        assert_eq!(classify(&refused).kind, Unreachable, "{refused:?}");
        let reset = Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
        assert_eq!(classify(&reset).kind, Unknown, "{reset:?}");
    }

    #[test]
    fn another_login_is_tried_where_it_may_help() {
        assert!(wants_login(&Status::unauthenticated("etcdserver: invalid auth token")));
        assert!(wants_login(&Status::invalid_argument("etcdserver: revision of auth store is old")));
        assert!(!wants_login(&Status::permission_denied("etcdserver: permission denied")));
        assert!(needs_no_login(&Status::failed_precondition("etcdserver: authentication is not enabled")));
        assert!(lacks_lease(&Status::not_found("etcdserver: requested lease not found")));
    }
}
