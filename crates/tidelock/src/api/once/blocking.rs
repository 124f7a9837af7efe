//! Once per period without async.

use std::{fmt, time::Duration};

use super::Outcome;
use crate::{
    api::{blocking::block_on, guard::outcome},
    engine::Holding,
    error::{Error, Result},
};

/// [`Once`](crate::Once) without async.
///
/// ```
/// use tidelock::{Outcome, Period, blocking::Locks};
///
/// let report = Locks::connect("memory:")?.once("report", Period::weekly());
/// assert_eq!(report.run(|_held| 12)?, Outcome::Ran(12));
/// assert!(matches!(report.run(|_held| 12)?, Outcome::Done(_)));
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
pub struct Once {
    pub(crate) inner: crate::Once,
}

impl Once {
    /// Sets the slot by the time at which it begins. See [`crate::Once::slot`].
    #[must_use]
    pub fn slot(self, start: impl AsRef<str>) -> Self {
        Self { inner: self.inner.slot(start) }
    }

    /// Sets whether a run that fails gives its slot back. See [`crate::Once::retry_failed`].
    #[must_use]
    pub fn retry_failed(self, retry: bool) -> Self {
        Self { inner: self.inner.retry_failed(retry) }
    }

    /// Sets how long a runner that dies keeps its slot. See [`crate::Once::ttl`].
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { inner: self.inner.ttl(ttl) }
    }

    /// Sets the label that others see for the runner. See [`crate::Once::label`].
    #[must_use]
    pub fn label(self, label: impl AsRef<str>) -> Self {
        Self { inner: self.inner.label(label) }
    }

    /// Runs the work, unless the slot is done or somebody runs it now.
    ///
    /// Nothing can stop code without async: work that takes long asks [`Holding::is_held`] before each step that
    /// matters.
    ///
    /// # Errors
    /// As [`crate::Once::run`]. A loss is reported when the work has ended.
    pub fn run<T>(&self, work: impl FnOnce(Holding) -> T) -> Result<Outcome<T>> {
        self.try_run(|held| Ok(work(held)))
    }

    /// Runs work that can fail, unless the slot is done or somebody runs it now.
    ///
    /// # Errors
    /// As [`crate::Once::try_run`]. A loss is reported when the work has ended.
    pub fn try_run<T, E: From<Error>>(
        &self,
        work: impl FnOnce(Holding) -> Result<T, E>,
    ) -> Result<Outcome<T>, E> {
        let turn = match block_on(self.inner.start())? {
            Outcome::Ran(turn) => turn,
            Outcome::Done(done) => return Ok(Outcome::Done(done)),
            Outcome::Running(running) => return Ok(Outcome::Running(running)),
        };
        let done = work(turn.holding());
        let ended = block_on(async { if done.is_ok() { turn.done().await } else { turn.failed().await } });
        match ended {
            // The work's own error says more.
            Err(error) if done.is_ok() => Err(error.into()),
            ended => outcome(done.map(Outcome::Ran), ended),
        }
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
