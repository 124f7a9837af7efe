//! Who holds and who waits in a line that a store only keeps: the rules of [`line`](crate::model::line), which
//! each client applies for itself.
//!
//! All clients see the same line, so all come to the same result. A result stays right while its claim is in
//! line: claims ahead of it only go away, and never ask for more.
//!
//! 1. A *hold* is a claim and the claims of its owner that ride on it. A claim writes down which hold it rides on
//!    before it relies on that, so the hold goes on when the first claim is gone.
//! 2. A hold takes as much as the largest of its claims.
//! 3. In order, those hold that fit together, up to the first that does not. A hold that is ridden on holds.
//! 4. A claim that could hold, and could as well ride, has to ride. [`InLine::RIDES_FIRST`] says what it counts
//!    for until then.
//!
//! What a store watches for a claim that waits, and how it writes that a claim rides, is not here.

use crate::backend::{Capacity, Claim, Refusal, Share};

/// A claim in line, as a store keeps it.
pub(crate) trait InLine {
    /// What a claim counts for that could ride and has not written that down. `true`: it does not hold, and no
    /// claim behind it does, until it rides. `false`: it holds with its own share, and rides when it notices.
    const RIDES_FIRST: bool;

    fn share(&self) -> Share;

    fn owner(&self) -> Option<&str>;

    /// Whether it has written down that it rides on a hold.
    fn rides(&self) -> bool;
}

/// A line, divided into holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// In order.
    pub(crate) holds: Vec<Hold>,
    /// Whether one of those that wait is about to ride.
    pub(crate) is_boarding: bool,
}

/// Claims that hold together, or will.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Their indices in the line.
    pub(crate) claims: Vec<usize>,
    /// The largest share of theirs.
    pub(crate) share: Share,
    pub(crate) is_held: bool,
}

/// Whether a claim may ride on a hold of its owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ride {
    /// Its owner holds nothing.
    None,
    /// On the hold of the claim with this index.
    On(usize),
    /// Its owner holds this, which is too little.
    TooSmall(Share),
}

impl Order {
    /// Works out who holds. Claims with the same `number` are one hold, and holds stand in order of their numbers.
    pub(crate) fn of<C: InLine, N: Ord>(line: &[C], number: impl Fn(&C) -> N) -> Self {
        // Nearly every line is one claim.
        if let [only] = line {
            let hold = Hold { claims: vec![0], share: only.share(), is_held: true };
            return Self { holds: vec![hold], is_boarding: false };
        }
        let mut order = Self { holds: divide(line, number), is_boarding: false };
        let (mut taken, mut is_full) = (Taken::default(), false);
        for index in 0..order.holds.len() {
            let (before, hold) = (&order.holds[..index], &order.holds[index]);
            let is_ridden_on = hold.claims.iter().any(|claim| line[*claim].rides());
            let boards = C::RIDES_FIRST && !is_ridden_on && {
                let first = &line[hold.claims[0]];
                held(before).any(|holder| carries(&line[holder], first.owner(), first.share()))
            };
            order.is_boarding |= boards;
            is_full |= boards;
            if is_ridden_on || !is_full && taken.fits(hold.share) {
                taken.take(hold.share);
                order.holds[index].is_held = true;
            } else {
                is_full = true;
            }
        }
        order
    }

    /// Who holds, in order.
    pub(crate) fn holders(&self) -> impl Iterator<Item = usize> {
        held(&self.holds)
    }

    /// Who waits, in order.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = usize> {
        self.holds.iter().filter(|hold| !hold.is_held).flat_map(|hold| &hold.claims).copied()
    }

    /// The index of the hold that a claim is part of.
    pub(crate) fn hold_of(&self, claim: usize) -> Option<usize> {
        self.holds.iter().position(|hold| hold.claims.contains(&claim))
    }

    /// Whether a claim would hold at once that comes now and rides on nothing.
    pub(crate) fn has_room_for(&self, share: Share) -> bool {
        let mut taken = Taken::default();
        for hold in &self.holds {
            taken.take(hold.share);
        }
        self.holds.iter().all(|hold| hold.is_held) && taken.fits(share)
    }

    /// Whether a claim may ride on something that is held before the hold with this index: on what comes later
    /// it does not ride, that rides on it. A claim that comes now is behind all holds.
    pub(crate) fn ride<C: InLine>(&self, line: &[C], claim: &Claim, before: usize) -> Ride {
        let mut ride = Ride::None;
        let Some(owner) = claim.owner.as_ref().map(|owner| owner.as_str()) else { return ride };
        for holder in held(&self.holds[..before.min(self.holds.len())]) {
            if carries(&line[holder], Some(owner), claim.share) {
                return Ride::On(holder);
            }
            if line[holder].owner() == Some(owner) {
                ride = Ride::TooSmall(line[holder].share());
            }
        }
        ride
    }
}

fn divide<C: InLine, N: Ord>(line: &[C], number: impl Fn(&C) -> N) -> Vec<Hold> {
    let mut numbered: Vec<_> = line.iter().map(number).enumerate().collect();
    numbered.sort_by(|(_, a), (_, b)| a.cmp(b));
    let alike = numbered.chunk_by(|(_, a), (_, b)| a == b);
    let hold = |alike: &[(usize, N)]| {
        let claims: Vec<_> = alike.iter().map(|(claim, _)| *claim).collect();
        let share = claims.iter().map(|claim| line[*claim].share()).max_by_key(|share| size(*share))?;
        Some(Hold { claims, share, is_held: false })
    };
    alike.filter_map(hold).collect()
}

fn held(holds: &[Hold]) -> impl Iterator<Item = usize> {
    holds.iter().filter(|hold| hold.is_held).flat_map(|hold| &hold.claims).copied()
}

/// Whether a claim may ride on what another holds.
fn carries(holder: &impl InLine, owner: Option<&str>, share: Share) -> bool {
    owner.is_some() && holder.owner() == owner && holder.share().covers(share)
}

/// For comparing the claims of one hold.
pub(crate) fn size(share: Share) -> u64 {
    match share {
        Share::Exclusive => u64::MAX,
        sharing => u64::from(sharing.weight()),
    }
}

/// What sharing claims in line agree on, if there are any.
pub(crate) fn capacity<C: InLine>(line: &[C]) -> Option<Capacity> {
    line.iter().find_map(|claim| claim.share().capacity())
}

/// Why a claim is refused that assumes another capacity than the one agreed on.
pub(crate) fn mismatch(share: Share, agreed: Option<Capacity>) -> Option<Refusal> {
    match (share.capacity(), agreed) {
        (Some(asked), Some(agreed)) if asked != agreed => Some(Refusal::Capacity(agreed)),
        _ => None,
    }
}

/// A number of claims, as answers say it.
pub(crate) fn count(claims: usize) -> u32 {
    u32::try_from(claims).unwrap_or(u32::MAX)
}

/// What holders have taken.
#[derive(Default)]
struct Taken {
    holds: usize,
    exclusive: bool,
    permits: u64,
}

impl Taken {
    fn fits(&self, share: Share) -> bool {
        match share {
            Share::Exclusive => self.holds == 0,
            Share::Shared => !self.exclusive,
            Share::Permits { n, of } => !self.exclusive && self.permits + u64::from(n) <= u64::from(of),
        }
    }

    fn take(&mut self, share: Share) {
        self.holds += 1;
        match share {
            Share::Exclusive => self.exclusive = true,
            sharing => self.permits += u64::from(sharing.weight()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        backend::{ClaimId, ClientId},
        model::{name::Name, owner::Owner},
    };

    /// A claim in a line, in a store where riders go first or not.
    #[derive(Clone)]
    struct Standing<const RIDES_FIRST: bool> {
        number: u32,
        share: Share,
        owner: Option<&'static str>,
        rides: bool,
    }

    impl<const RIDES_FIRST: bool> InLine for Standing<RIDES_FIRST> {
        const RIDES_FIRST: bool = RIDES_FIRST;

        fn share(&self) -> Share {
            self.share
        }

        fn owner(&self) -> Option<&str> {
            self.owner
        }

        fn rides(&self) -> bool {
            self.rides
        }
    }

    fn at<const F: bool>(number: u32, share: Share) -> Standing<F> {
        Standing { number, share, owner: None, rides: false }
    }

    fn of<const F: bool>(owner: &'static str, number: u32, share: Share) -> Standing<F> {
        Standing { owner: Some(owner), ..at(number, share) }
    }

    fn riding<const F: bool>(owner: &'static str, number: u32, share: Share) -> Standing<F> {
        Standing { rides: true, ..of(owner, number, share) }
    }

    fn order<const F: bool>(line: &[Standing<F>]) -> Order {
        Order::of(line, |standing| standing.number)
    }

    fn who<const F: bool>(line: &[Standing<F>]) -> (Vec<usize>, Vec<usize>) {
        let order = order(line);
        (order.holders().collect(), order.waiters().collect())
    }

    fn claim(owner: Option<&str>, share: Share) -> Claim {
        Claim {
            id: ClaimId::new(ClientId::from_u64(0), 1),
            name: Name::new("a").unwrap(),
            share,
            owner: owner.map(|owner| Owner::new(owner).unwrap()),
            ttl: Duration::from_secs(1),
            label: Arc::from("x"),
            detached: false,
            auto_renew: true,
            writes: false,
        }
    }

    const ALL: Share = Share::Exclusive;
    const READ: Share = Share::Shared;

    fn permits(n: u32) -> Share {
        Share::Permits { n, of: 3 }
    }

    #[test]
    fn those_hold_that_fit_together_from_the_first_on() {
        assert_eq!(who::<true>(&[]), (vec![], vec![]));
        assert_eq!(who(&[at::<true>(7, ALL)]), (vec![0], vec![]));
        assert_eq!(who(&[at::<true>(1, ALL), at(2, READ), at(3, ALL)]), (vec![0], vec![1, 2]));
        assert_eq!(
            who(&[at::<true>(1, READ), at(2, READ), at(3, ALL), at(4, READ)]),
            (vec![0, 1], vec![2, 3])
        );
        // What would fit does not overtake what does not.
        let line = [at::<true>(1, permits(2)), at(2, permits(2)), at(3, permits(1))];
        assert_eq!(who(&line), (vec![0], vec![1, 2]));
    }

    #[test]
    fn numbers_say_who_is_first_wherever_a_claim_is_listed() {
        assert_eq!(who(&[at::<true>(9, ALL), at(3, ALL), at(5, ALL)]), (vec![1], vec![2, 0]));
    }

    #[test]
    fn a_hold_takes_as_much_as_the_largest_of_its_claims_and_shrinks_with_them() {
        let line = [of::<true>("o", 1, ALL), riding("o", 1, READ), at(2, READ)];
        assert_eq!(who(&line), (vec![0, 1], vec![2]));
        assert_eq!(order(&line).holds[0].share, ALL);
        assert_eq!(who(&line[1..]), (vec![0, 1], vec![]));
    }

    #[test]
    fn whatever_is_ridden_on_holds() {
        // Nobody holds by this: it holds already, and others see it late.
        let line = [at::<true>(1, ALL), riding("o", 2, READ)];
        assert_eq!(who(&line), (vec![0, 1], vec![]));
    }

    #[test]
    fn where_riders_go_first_nobody_behind_one_holds_until_it_rides() {
        let line = [of::<true>("o", 1, permits(2)), of("o", 2, permits(1)), at(3, permits(1))];
        assert_eq!(who(&line), (vec![0], vec![1, 2]));
        assert!(order(&line).is_boarding);
        let rides = [line[0].clone(), riding("o", 1, permits(1)), line[2].clone()];
        assert_eq!(who(&rides), (vec![0, 1, 2], vec![]));
        assert!(!order(&rides).is_boarding);
    }

    #[test]
    fn where_they_do_not_a_claim_counts_for_what_it_asks_until_it_rides() {
        let line = [of::<false>("o", 1, permits(2)), of("o", 2, permits(1)), at(3, permits(1))];
        assert_eq!(who(&line), (vec![0, 1], vec![2]));
        assert!(!order(&line).is_boarding);
        let rides = [line[0].clone(), riding("o", 1, permits(1)), line[2].clone()];
        assert_eq!(who(&rides), (vec![0, 1, 2], vec![]));
    }

    #[test]
    fn a_claim_rides_on_what_its_owner_holds_if_that_is_enough() {
        let line = [of::<true>("o", 1, permits(2)), of("p", 2, permits(1)), of("o", 3, permits(3))];
        let order = order(&line);
        let ride = |owner, share| order.ride(&line, &claim(owner, share), usize::MAX);
        assert_eq!(ride(Some("o"), permits(2)), Ride::On(0));
        assert_eq!(ride(Some("p"), permits(1)), Ride::On(1));
        assert_eq!(ride(Some("p"), permits(2)), Ride::TooSmall(permits(1)));
        assert_eq!(ride(Some("q"), permits(1)), Ride::None);
        assert_eq!(ride(None, permits(1)), Ride::None);
        // Nor on what is not before it.
        assert_eq!(order.ride(&line, &claim(Some("p"), permits(1)), 1), Ride::None);
        assert_eq!((order.hold_of(2), order.hold_of(3)), (Some(2), None));
    }

    #[test]
    fn there_is_room_only_if_nobody_waits_and_it_fits_beside_all() {
        assert!(order::<true>(&[]).has_room_for(ALL));
        assert!(order(&[at::<true>(1, READ)]).has_room_for(READ));
        assert!(!order(&[at::<true>(1, READ)]).has_room_for(ALL));
        assert!(!order(&[at::<true>(1, READ), at(2, ALL)]).has_room_for(READ));
        assert!(order(&[at::<true>(1, permits(2))]).has_room_for(permits(1)));
        assert!(!order(&[at::<true>(1, permits(2))]).has_room_for(permits(2)));
    }

    #[test]
    fn sharing_claims_agree_on_a_capacity() {
        let line = [at::<true>(1, ALL), at(2, permits(1))];
        assert_eq!((capacity(&line), capacity(&line[..1])), (Some(Capacity::Of(3)), None));
        assert_eq!(mismatch(READ, capacity(&line)), Some(Refusal::Capacity(Capacity::Of(3))));
        assert_eq!(mismatch(permits(2), capacity(&line)), None);
        assert_eq!((mismatch(ALL, capacity(&line)), mismatch(READ, None)), (None, None));
    }
}
