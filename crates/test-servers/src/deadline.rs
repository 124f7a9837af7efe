//! Deadlines: the only place of the crate that reads the clock.

use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// How long a server may take to become ready, and a killed one to be gone.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(5);

/// The time now.
#[allow(
    clippy::disallowed_methods,
    reason = "waiting for real processes happens in real time; nothing of the lock library runs here"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `condition` holds; after `limit`, fails with a sentence about `what`.
///
/// # Errors
///
/// When the condition still does not hold after `limit`.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<(), Error> {
    wait_for_value(what, limit, || condition().then_some(()))
}

/// As [`wait_for`], until there is a value.
pub(crate) fn wait_for_value<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T, Error> {
    let start = now();
    loop {
        if let Some(value) = look() {
            return Ok(value);
        }
        if start.elapsed() > limit {
            return Err(Error::new(format!("waited {limit:?} in vain until {what}")));
        }
        thread::sleep(POLL);
    }
}
