//! Which servers' clocks agree with those of a majority. Pure: no server, no clock.
//!
//! Leases end by the server's wall clock. A server whose clock steps ahead ends leases that others rely on, so its vote is
//! worth nothing; and a client that never heard of it before has only the other servers to compare it with.

use std::time::Duration;

use super::super::redis::Reading;
use crate::clock::{Moment, nanos};

/// Clocks that differ by more do not agree. A step of less than twice as much may go unseen: a lease is shortened by that at
/// most, which a holder that renews in time does not notice.
pub(super) const APART: Duration = Duration::from_millis(500);
/// A reading that is older says nothing: since then the clock may have stepped, ours too.
const FRESH: Duration = Duration::from_secs(10);

/// How a server's clock compares with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// It agrees with a majority of all servers, itself included.
    Agrees,
    /// It may, when those that are awaited have told their time.
    Open,
    /// It does not.
    Differs,
}

/// Whether a reading says something about now.
pub(super) fn is_fresh(reading: &Reading, now: Moment) -> bool {
    now.since(reading.at) <= FRESH
}

/// Compares the clocks of all servers. `awaited` has a bit for each whose answer is under way.
pub(super) fn agreement(
    readings: &[Option<Reading>],
    awaited: u16,
    needed: usize,
    now: Moment,
) -> Vec<Agreement> {
    let fresh = |reading: &&Reading| is_fresh(reading, now);
    let readings: Vec<_> = readings.iter().map(|reading| reading.as_ref().filter(fresh)).collect();
    let is_awaited = |server: usize| awaited & 1 << server != 0;
    let of = |server: usize| {
        let (mut agree, mut open) = (0, 0);
        for (other, theirs) in readings.iter().enumerate() {
            // What is awaited replaces what was told before.
            if is_awaited(other) {
                open += 1;
            } else if readings[server].zip(*theirs).is_some_and(|(a, b)| agree_with_each_other(a, b)) {
                agree += 1;
            }
        }
        match () {
            () if is_awaited(server) => Agreement::Open,
            () if agree >= needed => Agreement::Agrees,
            () if agree > 0 && agree + open >= needed => Agreement::Open,
            () => Agreement::Differs,
        }
    };
    (0..readings.len()).map(of).collect()
}

/// Whether two clocks may be equal, give or take: nobody knows when within a round trip they were read.
fn agree_with_each_other(a: &Reading, b: &Reading) -> bool {
    let apart = (a.least - b.most).max(b.least - a.most);
    apart <= i128::from(nanos(APART))
}

/// The time by the clocks that agree with a majority, in microseconds: the middle one of them.
pub(super) fn time(readings: &[Option<Reading>], needed: usize, now: Moment) -> Option<u64> {
    let agreement = agreement(readings, 0, needed, now);
    let agree = readings.iter().zip(&agreement).filter(|(_, agreement)| **agreement == Agreement::Agrees);
    let mut ahead: Vec<_> =
        agree.filter_map(|(reading, _)| reading.map(|reading| (reading.least + reading.most) / 2)).collect();
    ahead.sort_unstable();
    let middle = ahead.get(ahead.len() / 2)?;
    u64::try_from((i128::from(now.as_nanos()) + middle) / 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        Agreement::{Agrees as A, Differs as D, Open as O},
        *,
    };

    const NOW: Moment = Moment::from_nanos(3_600_000_000_000);

    /// A clock that is ahead of ours by so many milliseconds, told in a round trip of so many.
    fn reading(ahead: i128, round_trip: i128) -> Option<Reading> {
        let least = ahead * 1_000_000;
        Some(Reading { least, most: least + round_trip * 1_000_000, at: NOW })
    }

    fn near(ahead: i128) -> Option<Reading> {
        reading(ahead, 1)
    }

    #[test]
    fn a_clock_needs_a_majority_that_agrees_with_it() {
        let old = Some(Reading { at: Moment::default(), ..near(0).unwrap() });
        let hour = 3_600_000;
        type Case<'a> = (&'a [Option<Reading>], u16, &'a [Agreement]);
        let table: &[Case<'_>] = &[
            (&[near(0), near(3), near(-7)], 0, &[A, A, A]),
            (&[near(0), near(hour), near(-7)], 0, &[A, D, A]),
            (&[near(0), near(-hour), near(-7)], 0, &[A, D, A]),
            // Of two that differ nobody knows which is right.
            (&[None, near(hour), near(0)], 0, &[D, D, D]),
            (&[old, near(hour), near(0)], 0, &[D, D, D]),
            (&[near(0), near(hour), near(2 * hour)], 0, &[D, D, D]),
            // A server that is awaited may decide it; what it told before does not count.
            (&[near(0), near(hour), near(0)], 0b100, &[O, O, O]),
            (&[near(0), near(0), near(0)], 0b100, &[A, A, O]),
            (&[near(0), near(0), near(hour), None, None], 0b11000, &[O, O, O, O, O]),
            (&[near(0), near(0), near(hour), near(1), None], 0b10000, &[A, A, D, A, O]),
            // An answer that took long says little.
            (&[near(0), reading(-1_000, 2_000), near(0)], 0, &[A, A, A]),
            (&[near(0), near(502), near(0)], 0, &[A, D, A]),
            (&[near(0), near(400), near(0)], 0, &[A, A, A]),
        ];
        for (readings, awaited, expected) in table {
            let needed = readings.len() / 2 + 1;
            assert_eq!(agreement(readings, *awaited, needed, NOW), *expected, "{readings:?}");
        }
    }

    #[test]
    fn the_time_is_that_of_those_who_agree() {
        let second = 1_000_000;
        let at = |readings: &[_]| time(readings, readings.len() / 2 + 1, NOW);
        assert_eq!(at(&[near(10), near(3_600_000), near(10)]), Some(3_600 * second + 10_500));
        assert_eq!(at(&[near(0), near(3_600_000), None]), None);
    }
}
