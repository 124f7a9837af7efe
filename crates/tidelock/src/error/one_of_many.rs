//! What is said about leaders and slots.

use std::{fmt, sync::Arc, time::Duration};

use super::{Error, ErrorKind, Inner, span::Span};
use crate::model::name::Name;

impl Error {
    /// Creates the error for the work of a leader that was dropped because it did not end when it was told to.
    pub(crate) fn not_stopped(name: &Name, limit: Duration) -> Self {
        Self::new(
            ErrorKind::TimedOut,
            Some(name),
            format!(
                "the work of the leader of {name:?} did not end within {} after it was told to, and was dropped: set a longer max_stop",
                Span(limit)
            ),
        )
    }

    /// Returns the same error, about a slot whose work was done and that could not be recorded.
    pub(crate) fn not_recorded(&self, slot: impl fmt::Display) -> Self {
        let text = format!(
            "the work for the slot {slot} ended, but could not be recorded as done, and may run again: {}",
            self.0.text
        );
        Self(Arc::new(Inner { text, ..Inner::clone(&self.0) }))
    }
}
