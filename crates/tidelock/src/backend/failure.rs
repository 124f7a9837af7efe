//! Why a call failed, and what may be concluded from it.

use std::{fmt, sync::Arc};

use crate::error::Error;

/// Why a call failed, as far as a backend can know.
///
/// ```
/// use tidelock::backend::Failure;
///
/// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// let failure = Failure::unreachable("10.0.0.7:6379 refused the connection").caused_by(refused);
/// assert!(std::error::Error::source(&failure).is_some());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// What may be concluded.
    pub kind: FailureKind,
    /// One line, without the names of the store and the lock: the engine adds them.
    pub reason: Arc<str>,
    /// The error of the driver, if there was one.
    pub cause: Option<Cause>,
}

/// The error that caused a [`Failure`].
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// What may be concluded from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The store was not reached: nothing changed.
    Unreachable,
    /// The request was sent and no answer came: the outcome is unknown.
    Unknown,
    /// The store refused permanently: wrong password, no permission, broken configuration. Nothing changed.
    Denied,
}

impl Failure {
    /// Creates a failure.
    pub fn new(kind: FailureKind, reason: impl Into<Arc<str>>) -> Self {
        Self { kind, reason: reason.into(), cause: None }
    }

    /// Creates a failure for a store that was not reached: nothing changed.
    pub fn unreachable(reason: impl Into<Arc<str>>) -> Self {
        Self::new(FailureKind::Unreachable, reason)
    }

    /// Creates a failure for a request that was sent and got no answer: the outcome is unknown.
    pub fn unknown(reason: impl Into<Arc<str>>) -> Self {
        Self::new(FailureKind::Unknown, reason)
    }

    /// Creates a failure for a store that refused permanently.
    pub fn denied(reason: impl Into<Arc<str>>) -> Self {
        Self::new(FailureKind::Denied, reason)
    }

    /// Adds the error that caused it, for programs that look for it.
    ///
    /// Neither the text of the error nor that of its sources may contain a password or a key.
    #[must_use]
    pub fn caused_by(mut self, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(error));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// For code that talks to a backend itself, so that `?` works there. The engine says more: which store, and
/// which lock.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::failure("the store", None, &failure)
    }
}
