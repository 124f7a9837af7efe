//! Faults on purpose, for tests: a process that kills or stops itself inside a change.
//!
//! `TIDELOCK_FAULT=half-written:kill:17` strikes when the process comes to that point for the 17th
//! time. From outside nobody could hit these microseconds. Without the feature `testing` there is
//! nothing of it in the program.

/// Where a change can be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// The first half of a slot is written.
    HalfWritten,
    /// The slot is written and the shard is still locked.
    Written,
    /// The shard is free, and the bells that follow were not rung.
    Unrung,
}

#[cfg(not(feature = "testing"))]
#[inline(always)]
pub(super) fn strike_at(_: Point, _: impl FnOnce()) {}

#[cfg(feature = "testing")]
pub(super) use self::armed::strike_at;

#[cfg(feature = "testing")]
mod armed {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };

    use rustix::process::{Signal, getpid, kill_process};

    use super::Point;

    #[derive(Debug)]
    struct Fault {
        point: Point,
        signal: Signal,
        left: AtomicU64,
    }

    static FAULT: LazyLock<Option<Fault>> = LazyLock::new(|| {
        let text = std::env::var("TIDELOCK_FAULT").ok()?;
        Some(read(&text).expect("TIDELOCK_FAULT is POINT:SIGNAL:NTH, as in half-written:kill:17"))
    });

    fn read(text: &str) -> Option<Fault> {
        let mut words = text.split(':');
        let point = match words.next()? {
            "half-written" => Point::HalfWritten,
            "written" => Point::Written,
            "unrung" => Point::Unrung,
            _ => return None,
        };
        let signal = match words.next()? {
            "kill" => Signal::KILL,
            "stop" => Signal::STOP,
            _ => return None,
        };
        Some(Fault { point, signal, left: AtomicU64::new(words.next()?.parse().ok()?) })
    }

    /// Comes to a point. If the fault is due there, `first` makes the point what it is.
    #[inline]
    pub(in super::super) fn strike_at(point: Point, first: impl FnOnce()) {
        let Some(fault) = &*FAULT else { return };
        if fault.point != point || fault.left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        first();
        kill_process(getpid(), fault.signal).expect("a process may signal itself");
        // Another thread may take the signal: once it is not pending any more, it stops this one too.
        while is_stop_pending() {}
    }

    fn is_stop_pending() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        pending >> (Signal::STOP.as_raw() - 1) & 1 == 1
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn faults_are_read_and_nonsense_is_none() {
            let fault = read("written:stop:3").unwrap();
            assert_eq!((fault.point, fault.signal), (Point::Written, Signal::STOP));
            assert_eq!(fault.left.into_inner(), 3);
            for nonsense in ["", "written", "written:kill", "written:kill:x", "read:kill:1", "written:term:1"]
            {
                assert!(read(nonsense).is_none(), "{nonsense}");
            }
        }
    }
}
