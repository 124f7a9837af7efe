//! Time, to say how long something took. Leases are measured by the library, on its own clock.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

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

    /// The moment `earlier` than this one.
    pub(crate) fn minus(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }

    /// The time between two moments, whichever is first.
    pub(crate) fn distance(self, other: Self) -> Duration {
        self.0.abs_diff(other.0)
    }

    /// As a number, to hand it to another process.
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}

/// When the wall clock was first read, by both clocks. It is read once, so that what is shown of one moment is always
/// the same, even if somebody sets the clock.
#[allow(clippy::disallowed_methods, reason = "people read wall clocks; nothing is decided by it")]
static WALL: LazyLock<(Moment, Duration)> = LazyLock::new(|| {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (Moment::now(), wall)
});

/// A moment by the machine's wall clock, in milliseconds since 1970. For people to read.
pub(crate) fn unix_ms(moment: Moment) -> u64 {
    let (base, wall) = *WALL;
    let at = if moment > base { wall + moment.since(base) } else { wall.saturating_sub(base.since(moment)) };
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}
