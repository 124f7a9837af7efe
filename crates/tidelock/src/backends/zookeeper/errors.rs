//! What may be concluded from an error of ZooKeeper.

use std::{fmt, sync::Arc};

use crate::backend::Failure;

pub(super) const UNIMPLEMENTED: i32 = -6;
pub(super) const NO_NODE: i32 = -101;
pub(super) const NO_AUTH: i32 = -102;
pub(super) const BAD_VERSION: i32 = -103;
pub(super) const NODE_EXISTS: i32 = -110;
pub(super) const AUTH_FAILED: i32 = -115;

/// Why there is no answer, or no good one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ZkError {
    /// It was never sent.
    NotSent(Arc<str>),
    /// It was sent, and the connection ended before an answer came.
    Lost(Arc<str>),
    /// The session is over, and with it all its nodes. Nothing was sent.
    Expired,
    /// The login or the set-up of the server makes it useless to ask.
    Denied(Arc<str>),
    /// The server's answer is that it will not.
    Code(i32),
}

impl ZkError {
    /// Bytes that make no sense.
    pub(super) fn garbled() -> Self {
        Self::Lost("an answer of the server cannot be read".into())
    }

    pub(super) fn is(&self, code: i32) -> bool {
        *self == Self::Code(code)
    }
}

impl fmt::Display for ZkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) | Self::Lost(why) | Self::Denied(why) => f.write_str(why),
            Self::Expired => f.write_str("the session has expired"),
            Self::Code(code) => write!(f, "ZooKeeper answers with error {code}"),
        }
    }
}

impl std::error::Error for ZkError {}

/// What an error means for the call that got it.
pub(super) fn classify(error: &ZkError) -> Failure {
    conclude(error).caused_by(error.clone())
}

fn conclude(error: &ZkError) -> Failure {
    match error {
        ZkError::NotSent(why) => Failure::unreachable(Arc::clone(why)),
        ZkError::Lost(why) => Failure::unknown(Arc::clone(why)),
        ZkError::Expired => Failure::unreachable("the session with ZooKeeper is over; a new one is made"),
        ZkError::Denied(why) => Failure::denied(Arc::clone(why)),
        ZkError::Code(code) => by_code(*code),
    }
}

fn by_code(code: i32) -> Failure {
    let text = |what: &str| format!("ZooKeeper answers {what} ({code})");
    match code {
        -3..=-1 => Failure::unknown(text("that something is wrong with the server")),
        -4 => Failure::unknown(text("that it lost a connection")),
        -5 => Failure::denied(text("that it does not understand the request: use ZooKeeper 3.5 or newer")),
        UNIMPLEMENTED => {
            Failure::denied(text("that it does not know the request: use ZooKeeper 3.5 or newer"))
        }
        -7 | -122 => Failure::unknown(text("that it took too long")),
        -8 => Failure::denied(text("that the request is wrong: correct the path in the URL")),
        NO_NODE => Failure::unreachable(text("that the lock's node vanished again and again")),
        NO_AUTH => Failure::denied(text(
            "that this client may not do that: give the URL the login that the nodes were made with, or change their ACL",
        )),
        BAD_VERSION | NODE_EXISTS => Failure::unreachable(text("that others changed the same node")),
        -108 => Failure::denied(text(
            "that an ephemeral node stands where locks should be: use another path in the URL",
        )),
        -112 => Failure::unreachable(text("that the session is over")),
        -114 => Failure::denied(text("that the ACL is wrong: correct the option acl in the URL")),
        AUTH_FAILED | -124 => {
            Failure::denied(text("that the login failed: correct the user and password in the URL"))
        }
        -118 => Failure::unreachable(text("that the session moved to another server")),
        -119 => Failure::unreachable(text("that it is read-only, without a majority")),
        -125 => Failure::denied(text("that a quota is used up: raise it or remove nodes")),
        -127 => Failure::unreachable(text("that it has too much to do")),
        // Whatever else: it may have been done.
        _ => Failure::unknown(text("with an error that is not known here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FailureKind::{Denied, Unknown, Unreachable};

    #[test]
    fn every_error_has_its_meaning() {
        let code = ZkError::Code;
        for (error, kind) in [
            (ZkError::NotSent("refused".into()), Unreachable),
            (ZkError::Lost("cut".into()), Unknown),
            (ZkError::garbled(), Unknown),
            (ZkError::Expired, Unreachable),
            (ZkError::Denied("no".into()), Denied),
            (code(-1), Unknown),
            (code(-4), Unknown),
            (code(-6), Denied),
            (code(-7), Unknown),
            (code(NO_NODE), Unreachable),
            (code(NO_AUTH), Denied),
            (code(BAD_VERSION), Unreachable),
            (code(NODE_EXISTS), Unreachable),
            (code(-112), Unreachable),
            (code(-114), Denied),
            (code(AUTH_FAILED), Denied),
            (code(-118), Unreachable),
            (code(-119), Unreachable),
            (code(-125), Denied),
            (code(-127), Unreachable),
            (code(-4_711), Unknown),
        ] {
            let failure = classify(&error);
            assert_eq!(failure.kind, kind, "{error:?}");
            assert_eq!(failure.cause.as_ref().and_then(|cause| cause.downcast_ref()), Some(&error));
            assert!(!failure.reason.contains('\n'), "{error:?}: {failure}");
        }
    }
}
