//! Mutexes that outlive a panic: what they guard is changed whole or not at all.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one that a panic left locked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
