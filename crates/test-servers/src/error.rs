//! The error of the crate: a sentence for the person who reads the failed test.

use std::fmt;

/// What went wrong, in words. Errors of a server carry the end of its log.
pub struct Error {
    message: String,
    /// The start may be tried again on other ports.
    address_in_use: bool,
}

impl Error {
    /// An error with this sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), address_in_use: false }
    }

    pub(crate) fn address_in_use(message: impl Into<String>) -> Self {
        Self { message: message.into(), address_in_use: true }
    }

    pub(crate) fn is_address_in_use(&self) -> bool {
        self.address_in_use
    }

    /// For `map_err`: says what was being done when the other error came.
    pub(crate) fn context<E: fmt::Display>(doing: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{doing}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// As `Display`: `unwrap` in a test prints this one, and a log with `\n` in it cannot be read.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
