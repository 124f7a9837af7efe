//! What a contestant says after a turn.

use serde::{Deserialize, Serialize};

/// What ends a program whose library has no such thing.
pub(crate) const NO_SUCH_THING: u8 = 3;
/// How long a contestant's leases are, in milliseconds.
pub(crate) const LEASE: &str = "LEASE_MS";
/// How many threads our own programs have.
pub(crate) const THREADS: &str = "THREADS";
/// A file that all processes on one name write their number to while they hold it.
pub(crate) const HANDS: &str = "HANDS";

/// One turn of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) pairs: u64,
    pub(crate) seconds: f64,
    #[serde(default)]
    pub(crate) waits_us: Waits,
    /// How many came from another process.
    #[serde(default)]
    pub(crate) handed: Option<u64>,
}

/// How long was waited for the lock, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Waits {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Waits {
    /// Of what was waited for, in nanoseconds.
    pub(crate) fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let last = nanos.len().saturating_sub(1);
        let at = |part: f64| {
            let index = ((nanos.len() as f64 * part) as usize).min(last);
            nanos.get(index).map_or(0.0, |nanos| *nanos as f64 / 1e3)
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_waits() {
        let waits = Waits::of((0..100).rev().map(|n| n * 1_000).collect());
        assert_eq!(waits, Waits { p50: 50.0, p99: 99.0, max: 99.0 });
        assert_eq!(Waits::of(Vec::new()), Waits::default());
    }

    #[test]
    fn a_turn_may_leave_out_what_it_does_not_know() {
        let turn: Turn = serde_json::from_str(r#"{"pairs": 3, "seconds": 0.5}"#).unwrap();
        assert_eq!((turn.pairs, turn.handed), (3, None));
    }
}
