//! The only place that reads time.
//!
//! Leases are measured on a clock that never jumps and keeps running while the machine is suspended
//! (`CLOCK_BOOTTIME` on Linux): a laptop that slept for an hour must find that its leases have expired. The
//! clock of [`Instant`](std::time::Instant) stops during suspend, and the wall clock jumps.
#![allow(clippy::disallowed_methods, reason = "this is the one file that may read clocks")]
#![cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "the module testing exports the clock")
)]

mod alarm;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot_timer;

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) use self::alarm::Alarm;

/// A point in time on a lease clock. Comparable only with moments of the same clock.
// One more than the nanoseconds: every claim has several moments that may be missing, and this leaves room for that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64);

impl Moment {
    /// Creates the moment `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Returns the nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moment").field(&self.as_nanos()).finish()
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl std::ops::Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(nanos(duration)))
    }
}

/// Converts to nanoseconds in 64 bits, which are enough for 584 years and much faster than 128.
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

/// Converts to whole microseconds, the unit of the stores.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A clock for leases: the machine's, or one that a test controls.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
#[allow(dead_code, reason = "without the feature testing there is no way to drive a clock")]
enum Source {
    #[default]
    Machine,
    Driven(Arc<Driven>),
}

/// The runtime's clock, which tests can pause, with its own rate and jumps.
#[derive(Debug)]
struct Driven {
    start: tokio::time::Instant,
    rate_ppm: i64,
    jumped: AtomicI64,
}

/// Two clocks are equal if they are the same clock.
impl PartialEq for Clock {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Source::Machine, Source::Machine) => true,
            (Source::Driven(one), Source::Driven(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Clock {}

impl Clock {
    /// Returns the machine's clock.
    pub fn machine() -> Self {
        Self(Source::Machine)
    }

    pub(crate) fn is_machine(&self) -> bool {
        matches!(self.0, Source::Machine)
    }

    /// Returns a clock that follows tokio's, which a test can pause and advance.
    ///
    /// Must be called within a tokio runtime. Clones are the same clock.
    #[cfg(feature = "testing")]
    pub fn tokio() -> Self {
        Self::driven(0)
    }

    /// Returns a clock that follows tokio's, fast or slow by `rate_ppm` millionths.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn driven(rate_ppm: i64) -> Self {
        Self(Source::Driven(Arc::new(Driven {
            start: tokio::time::Instant::now(),
            rate_ppm,
            jumped: AtomicI64::new(0),
        })))
    }

    /// Makes a clock of a test jump ahead, as a machine's clock does while the machine is suspended.
    ///
    /// Timers of tokio do not see the jump. The machine's clock does not jump.
    #[cfg(any(test, feature = "testing"))]
    pub fn jump(&self, ahead: Duration) {
        if let Source::Driven(driven) = &self.0 {
            driven.jumped.fetch_add(ahead.as_nanos() as i64, Ordering::SeqCst);
        }
    }

    /// Returns the current moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Machine => boot_time(),
            Source::Driven(driven) => {
                let elapsed = driven.start.elapsed().as_nanos() as i64;
                let drift = (i128::from(elapsed) * i128::from(driven.rate_ppm) / 1_000_000) as i64;
                // Not from zero, so that a test may look at moments before the start.
                let base = 1_000_000_000_000;
                Moment::from_nanos(
                    (base + elapsed + drift + driven.jumped.load(Ordering::SeqCst)).max(0) as u64
                )
            }
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Moment {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

// CLOCK_MONOTONIC runs on in suspend on Apple systems and OpenBSD; FreeBSD and NetBSD stop it.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn boot_time() -> Moment {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Other systems have no such timer, or no safe way to it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod boot_timer {
    use std::{convert::Infallible, io};

    #[derive(Debug)]
    pub(super) struct BootTimer(Infallible);

    impl BootTimer {
        pub(super) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) async fn sleep_towards(&mut self, _: super::Moment, _: super::Moment) -> io::Result<()> {
            match self.0 {}
        }
    }
}

#[cfg(unix)]
fn from_timespec(time: rustix::time::Timespec) -> Moment {
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(not(unix))]
fn boot_time() -> Moment {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    Moment::from_nanos(START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

/// Returns the microseconds of the wall clock, for tokens only: it may jump.
pub(crate) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_clock_moves_on() {
        let clock = Clock::machine();
        let first = clock.now();
        while clock.now() == first {}
        assert!(clock.now() > first);
        assert!(wall_micros() > 1_700_000_000_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_driven_clock_has_a_rate_and_jumps() {
        let fast = Clock::driven(10_000);
        let start = fast.now();
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(fast.now().since(start), Duration::from_secs(101));
        fast.jump(Duration::from_secs(3_600));
        assert_eq!(fast.now().since(start), Duration::from_secs(3_701));
    }
}
