//! A line that says how far something is, for those who watch.

use std::io::{IsTerminal, Write, stderr};

/// A line on standard error that is written over and over. Logs do not get it.
#[derive(Debug)]
pub(crate) struct Progress {
    watched: bool,
}

impl Progress {
    /// Empty, and silent unless somebody watches.
    pub(crate) fn new() -> Self {
        Self { watched: stderr().is_terminal() }
    }

    /// Writes over what was there.
    pub(crate) fn show(&self, text: &str) {
        if self.watched {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
