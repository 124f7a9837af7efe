//! Time, to say how long something took. Leases are measured by the library, on its own clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// It runs on while the machine is suspended, as the library's does: a client of `tidelock serve` reads the same.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A point in time that the processes of one machine can compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(CLOCK);
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    /// The time from `earlier` to this moment.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `later` than this one.
    pub(crate) fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }

    /// As a number, to hand it to another process.
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}
