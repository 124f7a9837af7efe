//! What went wrong, as kind and status.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use tidelock::{Error, ErrorKind};

use super::answer::{self, Answer};

/// An error as a client reads it: `{"kind":"busy","message":"…","retryable":true}` and details.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) message: String,
    retryable: bool,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), retryable: false, details: Map::new() }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(super) fn unauthorized(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(super) fn forbidden(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn lost(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "lost", message).retryable()
    }

    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message).retryable()
    }

    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// The server ends.
    pub(super) fn closing() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "this server is shutting down").retryable()
    }

    /// A task of the server ended without a word, which is a defect.
    pub(super) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed; its log may say why")
    }

    pub(super) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn into_answer(self) -> Answer {
        let allow = self.details.get("allow").and_then(Value::as_str).map(ToOwned::to_owned);
        let mut answer = answer::json(self.status, &self);
        if let Some(allow) = allow.and_then(|allow| allow.parse().ok()) {
            answer.headers_mut().insert(hyper::header::ALLOW, allow);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = hyper::header::HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(hyper::header::WWW_AUTHENTICATE, scheme);
        }
        answer
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, kind) = match error.kind() {
            ErrorKind::TimedOut => (StatusCode::REQUEST_TIMEOUT, "timed_out"),
            ErrorKind::Lost => (StatusCode::GONE, "lost"),
            ErrorKind::Unavailable | ErrorKind::Closed => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            // The server's own login to its store: the client can do nothing about it.
            ErrorKind::Denied => (StatusCode::SERVICE_UNAVAILABLE, "denied"),
            ErrorKind::CapacityMismatch => (StatusCode::CONFLICT, "capacity_mismatch"),
            ErrorKind::Upgrade => (StatusCode::CONFLICT, "upgrade"),
            ErrorKind::OtherSale => (StatusCode::CONFLICT, "other_sale"),
            ErrorKind::OrderMismatch => (StatusCode::CONFLICT, "order_mismatch"),
            ErrorKind::NoSuchStock => (StatusCode::NOT_FOUND, "not_found"),
            ErrorKind::InvalidName | ErrorKind::InvalidOption | ErrorKind::InvalidUrl => {
                (StatusCode::BAD_REQUEST, "config")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let mut problem = Self::new(status, kind, error.to_string());
        problem.retryable = error.is_retryable();
        match error.loss_reason() {
            Some(reason) => problem.with("reason", super::hold::reason(reason)),
            None => problem,
        }
    }
}
