//! How long a question may take, and how long to pause before it is asked again: pure, so that it can
//! be tested. The loops are in [`retry`](super::retry).

use std::time::Duration;

/// How long one call about a claim with this ttl may take: two more tries must fit behind it.
pub(super) fn call_limit(ttl: Duration) -> Duration {
    (ttl / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
}

/// The pause after the nth of the first failures. A short lease has no time for long pauses: the tries
/// must fit into it.
pub(super) fn at_first(nth: u32, ttl: Duration) -> Duration {
    (Duration::from_millis(25) * 4_u32.pow(nth.min(4) - 1)).min(ttl / 16)
}

/// The pause before a claim that nobody needs is left again: it lapses after its ttl anyway.
pub(super) fn until_lapsed(ttl: Duration) -> Duration {
    (ttl / 8).min(Duration::from_secs(1))
}

/// The pause before a renewal that was not answered is sent again.
pub(super) fn of_renewal(ttl: Duration) -> Duration {
    (ttl / 16).min(Duration::from_secs(1))
}

/// The pause before the store is listened to again after `failures` in a row.
pub(super) fn of_listening(failures: u32) -> Duration {
    Duration::from_millis(10) * 2_u32.pow(failures.min(7))
}

/// The first pause, and the longest: a store that is back is noticed after this long at the latest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// How long to wait before the question that failed for the nth time is asked again.
///
/// It doubles up to two seconds. Half of it depends on `seed`, which differs between clients: those who
/// were cut off together must not come back together.
pub(crate) fn pause(nth: u32, seed: u64) -> Duration {
    let longest = (FIRST * 2_u32.pow(nth.saturating_sub(1).min(8))).min(LONGEST);
    let spread = mix(seed ^ u64::from(nth)) >> 48;
    longest / 2 + longest / 2 * spread as u32 / (1 << 16)
}

/// Spreads what is nearly alike over all numbers (the end of splitmix64).
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::{super::lease::usable, *};

    #[test]
    fn three_calls_fit_into_a_lease() {
        for ms in [50, 100, 1_000, 30_000] {
            let ttl = Duration::from_millis(ms);
            assert!(ttl / 3 + call_limit(ttl) * 2 + of_renewal(ttl) < usable(ttl), "{ttl:?}");
            assert!(call_limit(ttl) * 3 + at_first(1, ttl) + at_first(2, ttl) < usable(ttl));
        }
    }

    #[test]
    fn pauses_double_up_to_two_seconds_and_never_vanish() {
        for seed in 0..1_000 {
            for nth in 1..100 {
                let longest = Duration::from_millis(100 << (nth - 1).min(5)).min(LONGEST);
                let pause = pause(nth, seed);
                assert!(longest / 2 <= pause && pause <= longest, "{nth}: {pause:?} of {longest:?}");
            }
        }
    }

    #[test]
    fn clients_that_were_cut_off_together_come_back_apart() {
        let mut pauses: Vec<_> = (0..1_000).map(|seed| pause(20, seed)).collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 900, "{} different pauses", pauses.len());
        let early = pauses.iter().filter(|pause| **pause < LONGEST * 3 / 4).count();
        assert!((400..600).contains(&early), "{early} in the earlier half");
    }
}
