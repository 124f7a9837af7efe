//! Time and numbers as stores have them: whole microseconds, and signed numbers for what is never negative.

use std::time::Duration;

pub(crate) use crate::clock::micros;

/// Microseconds that a server can add to its clock: far from where the sum overflows.
pub(crate) fn addable_micros(time: Duration) -> i64 {
    natural_or_most(micros(time)).min(i64::MAX / 4)
}

/// A number for a store that has none above `i64::MAX`.
pub(crate) fn natural_or_most(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that is not negative, unless the store is broken.
pub(crate) fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A count.
pub(crate) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// A time in microseconds.
pub(crate) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(natural(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_keeps_its_microseconds() {
        let time = Duration::from_micros(1_234_567);
        assert_eq!((micros(time), addable_micros(time)), (1_234_567, 1_234_567));
        assert_eq!(from_micros(addable_micros(time)), time);
        assert_eq!(micros(time + Duration::from_nanos(999)), 1_234_567, "what is finer is cut off");
    }

    #[test]
    fn the_longest_time_overflows_nowhere() {
        assert_eq!(micros(Duration::MAX), u64::MAX);
        assert!(addable_micros(Duration::MAX).checked_mul(4).is_some());
        assert_eq!(natural_or_most(u64::MAX), i64::MAX);
    }

    #[test]
    fn a_negative_number_counts_as_none() {
        assert_eq!((natural(-1), count(-1), from_micros(-1)), (0, 0, Duration::ZERO));
        assert_eq!((natural(i64::MAX), count(i64::MAX)), (i64::MAX as u64, u32::MAX));
    }
}
