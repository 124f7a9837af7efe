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

/// A time in milliseconds since 1970, as the world writes it.
pub(crate) fn utc(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Years that begin in March: the leap day is their last. 1970 began 719,468 days after 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// A moment by the machine's wall clock, in milliseconds since 1970. For people to read.
pub(crate) fn unix_ms(moment: Moment) -> u64 {
    let (base, wall) = *WALL;
    let at = if moment > base { wall + moment.since(base) } else { wall.saturating_sub(base.since(moment)) };
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_world_writes_them() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_123, "2024-12-31T23:59:59.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
