//! How a client is printed: one line, without the engine behind it.

use std::fmt;

use crate::api::client::Locks;

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("store", &self.abilities().store).finish()
    }
}

/// Returns everything that can be printed about a client's engine and store, for tests that look for secrets.
#[cfg(feature = "testing")]
pub fn print_engine(locks: &Locks) -> String {
    format!("{:?}", locks.mutex("any").handle.engine)
}
