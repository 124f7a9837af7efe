//! Who gives way when nobody has a majority.
//!
//! Claims that come at the same moment may be first in line on different servers. Then the one that holds on most
//! servers stays, of several the one with the smallest id; the others leave, and come again a little later. All
//! of them look at the same lines, so they nearly always agree on who that is; if not, they try again, after a
//! pause that is longer each time and never the same for two of them.

use std::{collections::HashMap, time::Duration};

use crate::backend::{ClaimId, LockView};

/// What a claim without a majority does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Somebody has a majority, so all is well.
    Wait,
    /// It is the one that stays.
    Stay,
    /// It comes again later.
    GiveWay,
}

/// What to do, by what is in line on each server that answered.
pub(super) fn turn(mine: ClaimId, views: &[Option<LockView>], needed: usize) -> Turn {
    // Where another program is in the way nobody of us holds, and nobody gains by giving way to another of us.
    if views.iter().flatten().flat_map(|view| &view.holders).any(|holder| holder.foreign.is_some()) {
        return Turn::Wait;
    }
    let mut holds: HashMap<ClaimId, usize> = HashMap::new();
    for holder in views.iter().flatten().flat_map(|view| &view.holders) {
        *holds.entry(holder.id).or_default() += 1;
    }
    // The most servers first, then the smallest id.
    let best = holds.iter().max_by_key(|(id, count)| (**count, std::cmp::Reverse(**id)));
    match best {
        Some((_, count)) if *count >= needed => Turn::Wait,
        Some((id, _)) if *id != mine => Turn::GiveWay,
        _ => Turn::Stay,
    }
}

/// How long to wait before looking, for the first, second, … time.
pub(super) fn pause(mine: ClaimId, round: u32) -> Duration {
    let longest = 8_000_u64 << round.min(5);
    // Different for each claim and round, and the same when a run is repeated.
    let mut mixed = mine.get() as u64 ^ (mine.get() >> 64) as u64 ^ u64::from(round) << 56;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    Duration::from_micros(longest / 4 + (mixed ^ mixed >> 31) % longest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        backend::{Claim, ClaimView, Share},
        model::name::Name,
    };

    fn view(holders: &[u128]) -> Option<LockView> {
        let name = Name::new("a").unwrap();
        let mut view = LockView::new(name.clone(), None, 1);
        for id in holders {
            let claim = Claim {
                id: ClaimId::from_u128(*id),
                name: name.clone(),
                share: Share::Exclusive,
                owner: None,
                ttl: Duration::from_secs(1),
                label: Arc::from(""),
                detached: false,
                auto_renew: true,
                writes: false,
            };
            view.holders.push(ClaimView::new(&claim, Some(1), Duration::ZERO, Duration::ZERO));
        }
        Some(view)
    }

    #[test]
    fn one_stays_and_all_others_give_way() {
        let turns = |views: &[Option<LockView>]| [1, 2, 3].map(|id| turn(ClaimId::from_u128(id), views, 3));
        use Turn::{GiveWay, Stay, Wait};
        let two_two_one = [view(&[1]), view(&[3]), view(&[3]), view(&[2]), view(&[2])];
        assert_eq!(turns(&two_two_one), [GiveWay, Stay, GiveWay]);
        let a_majority = [view(&[1]), view(&[3]), view(&[3]), view(&[3]), None];
        assert_eq!(turns(&a_majority), [Wait, Wait, Wait]);
        let few_answers = [view(&[1]), view(&[2]), None, None, None];
        assert_eq!(turns(&few_answers), [Stay, GiveWay, GiveWay]);
        assert_eq!(turns(&[view(&[1, 3]), view(&[3]), view(&[2])]), [GiveWay, GiveWay, Stay]);
    }

    #[test]
    fn pauses_grow_and_differ() {
        let pauses = |id| [0, 1, 2, 9].map(|round| pause(ClaimId::from_u128(id), round));
        assert_ne!(pauses(1), pauses(2));
        for (round, pause) in [0, 1, 2, 5].into_iter().zip(pauses(7)) {
            let longest = Duration::from_micros(8_000 << round);
            assert!(pause >= longest / 4 && pause < longest * 5 / 4, "{pause:?}");
        }
    }
}
