//! Histories of fair lines: clean as they are, and found with one mistake.

use proptest::prelude::{Strategy, any, proptest};

use super::{MS, Rule, Tale};

/// A fair line of one exclusive lock: clients ask at these times and hold for these times.
fn line() -> impl Strategy<Value = Vec<(u32, u64, u64)>> {
    proptest::collection::vec((0_u32..4, 0_u64..400, 1_u64..50), 2..60)
}

/// What a right store makes of it. Each client asks again only after it released.
fn played(asks: &[(u32, u64, u64)]) -> Tale {
    let mut tale = Tale::new();
    let mut free_at = 1_u64;
    let mut idle_at = [0_u64; 4];
    for (epoch, (client, pause, hold)) in (1..).zip(asks) {
        let idle = &mut idle_at[*client as usize];
        // In the order of the list, which is thus the order of arrival.
        let asked = (*idle + pause % 20).max(free_at.saturating_sub(*pause));
        let granted = asked.max(free_at) + 1;
        let index = tale.holds(*client, epoch, asked, granted, granted + hold);
        tale.writes(index, granted);
        free_at = granted + hold + 1;
        *idle = free_at + 1;
    }
    tale
}

proptest! {
    #[test]
    fn what_a_right_store_does_is_clean(asks in line()) {
        assert_eq!(played(&asks).broken(), []);
    }

    #[test]
    fn a_grant_inside_the_hold_before_is_found(asks in line(), which in any::<proptest::sample::Index>()) {
        let mut tale = played(&asks);
        let second = which.index(asks.len() - 1) + 1;
        tale.0.ops[second].answered = tale.0.ops[second - 1].releasing - MS / 2;
        tale.0.ops[second].asked = tale.0.ops[second - 1].asked;
        assert!(tale.broken().contains(&Rule::Overlap));
    }

    #[test]
    fn a_token_of_an_earlier_hold_is_found(asks in line(), which in any::<proptest::sample::Index>()) {
        let mut tale = played(&asks);
        let second = which.index(asks.len() - 1) + 1;
        tale.0.ops[second].asked = tale.0.ops[second - 1].answered + 1;
        tale.0.ops[second].token = tale.0.ops[second - 1].token - 1;
        assert!(tale.broken().contains(&Rule::TokenOrder));
    }
}
