//! What may be concluded from an error of the driver.

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{
    backend::Failure,
    backends::shared::failures::{before_asking, one_line},
};

/// An error that came in answer to a command, or instead of one.
pub(super) fn classify(error: &RedisError) -> Failure {
    conclude(error).caused_by(error.clone())
}

fn conclude(error: &RedisError) -> Failure {
    let text = describe(error);
    match error.kind() {
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::NoPerm => no_rights(&text),
            ServerErrorKind::ReadOnly => {
                Failure::unreachable(format!("{text}: this server is a replica now"))
            }
            ServerErrorKind::TryAgain => {
                Failure::unreachable(format!("{text}: its slot is being moved to another member"))
            }
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => Failure::unreachable(text),
            _ => by_code(error.code().unwrap_or_default(), text),
        },
        ErrorKind::AuthenticationFailed => {
            Failure::denied(format!("{text}: correct the user and password in the URL"))
        }
        ErrorKind::Extension => by_code(error.code().unwrap_or_default(), text),
        ErrorKind::Io if error.is_connection_refusal() => {
            Failure::unreachable(format!("{text}: start the server, or correct the host and port in the URL"))
        }
        ErrorKind::Io => Failure::unknown(text),
        ErrorKind::RESP3NotSupported => {
            Failure::denied("the server is older than Redis 6 and does not speak RESP3: use 6.2 or newer")
        }
        // Whatever else: the command may have been sent.
        _ => Failure::unknown(text),
    }
}

/// Whether the server does not have a script or function.
pub(super) fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        || error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
}

/// An error while connecting: no command was sent.
pub(super) fn classify_connecting(error: &RedisError) -> Failure {
    // Trying again does not help, and a patient client would try forever.
    if is_certificate(error) {
        return Failure::denied(format!(
            "{}: correct the server's certificate, or ca, cert and key in the URL",
            describe(error)
        ))
        .caused_by(error.clone());
    }
    before_asking(classify(error))
}

/// Whether a certificate was refused, by this client or by the server.
fn is_certificate(error: &RedisError) -> bool {
    // The driver keeps the cause behind an `Arc`, which hides its type from the chain of sources.
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    let tls = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)))
}

fn by_code(code: &str, text: String) -> Failure {
    match code {
        "OOM" => Failure::unreachable(format!("{text}: raise maxmemory or free some")),
        "MISCONF" => Failure::unreachable(format!("{text}: fix its persistence")),
        "NOREPLICAS" | "BUSY" | "UNKILLABLE" => Failure::unreachable(text),
        "WRONGPASS" | "NOAUTH" => {
            Failure::denied(format!("{text}: correct the user and password in the URL"))
        }
        "WRONGTYPE" => Failure::denied(format!(
            "{text}: something else is kept under the key of this lock; use another ?prefix= in the URL"
        )),
        // As Redis 7.0 says it within scripts, and the driver about what it does to open a connection.
        "ERR" if text.contains("The user executing the script") || text.contains("has no permissions") => {
            no_rights(&text)
        }
        "ERR" if text.contains("Function not found") => Failure::denied(format!(
            "{text}: have an administrator load the library with FUNCTION LOAD, or leave scripting=functions out of the URL"
        )),
        // A script that stumbles has read what no script of ours wrote.
        "ERR" if text.contains("user_script:") || text.contains("user_function:") => {
            Failure::denied(format!(
                "{text}: something else is kept under the key of this lock; use another ?prefix= in the URL"
            ))
        }
        _ => Failure::denied(text),
    }
}

fn no_rights(text: &str) -> Failure {
    Failure::denied(format!("{text}: give the user the rights that docs/backends/redis.md lists"))
}

/// One line, without what the driver adds around the server's words.
fn describe(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    one_line(&text)
}
