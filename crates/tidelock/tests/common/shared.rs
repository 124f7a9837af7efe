//! A server that many trials share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the first who needs it starts. It is to be stopped at the end: statics are not dropped.
pub(crate) struct Shared<T>(Mutex<Option<Arc<T>>>);

impl<T> Shared<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        Arc::clone(self.started().get_or_insert_with(|| Arc::new(start())))
    }

    pub(crate) fn stop(&self) {
        drop(self.started().take());
    }

    fn started(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
