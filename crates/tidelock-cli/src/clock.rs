//! Time, to say how long something took. Leases are measured by the library, on its own clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time that the processes of one machine can compare.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    /// The time from `earlier` to this moment.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As a number, to hand it to another process.
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}
