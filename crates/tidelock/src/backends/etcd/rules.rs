//! Who holds, from the keys of a line: the rules of [`line`](crate::line), worked out by each client for itself.
//!
//! All clients see the same keys in the same order, so all come to the same result. And what one has come to
//! stays right for as long as the claim's key is there: those ahead of it only go away, and never ask for more.
//!
//! 1. A *hold* is a claim, and the claims of its owner that ride on it. They write down on which before they
//!    rely on it, so it goes on when the claim itself is gone. Its epoch is the revision at which that came.
//! 2. It takes as much as the largest of its claims.
//! 3. In order of epochs, those hold that fit together, until the first that does not; and whatever is ridden on.
//! 4. A claim that could hold, and could as well ride, has to ride. Until it has written that down it does not
//!    hold, and nobody behind it does: it takes less by riding, and others rely on that.

use std::collections::BTreeMap;

use super::codec::Seen;
use crate::backend::{Capacity, Share};

/// A line with who holds and who waits, as indices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) holders: Vec<usize>,
    pub(super) waiters: Vec<usize>,
    /// Whether one of those who wait is about to ride.
    pub(super) is_boarding: bool,
}

/// Works out who holds.
pub(super) fn order(seen: &[Seen]) -> Order {
    // Nearly every line is one claim.
    if let [_] = seen {
        return Order { holders: vec![0], ..Order::default() };
    }
    let mut holds: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, claim) in seen.iter().enumerate() {
        holds.entry(claim.hold()).or_default().push(index);
    }
    let mut order = Order::default();
    let mut taken = Taken::default();
    let mut is_full = false;
    for (_, mut claims) in holds {
        let share = claims.iter().map(|index| seen[*index].share).max_by_key(|share| size(*share));
        let Some(share) = share else { continue };
        let is_ridden_on = claims.iter().any(|index| seen[*index].rides.is_some());
        if !is_ridden_on && order.holders.iter().any(|holder| carries(&seen[*holder], &seen[claims[0]])) {
            order.is_boarding = true;
            is_full = true;
        }
        if is_ridden_on || !is_full && taken.fits(share) {
            taken.take(share);
            order.holders.append(&mut claims);
        } else {
            is_full = true;
            order.waiters.append(&mut claims);
        }
    }
    order
}

/// Whether a claim may ride on what another holds.
fn carries(holder: &Seen, claim: &Seen) -> bool {
    claim.owner.is_some() && holder.owner == claim.owner && holder.share.covers(claim.share)
}

fn size(share: Share) -> u64 {
    match share {
        Share::Exclusive => u64::MAX,
        sharing => u64::from(sharing.weight()),
    }
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

/// What sharing claims in line agree on, if there are any.
pub(super) fn capacity(seen: &[Seen]) -> Option<Capacity> {
    seen.iter().find_map(|claim| claim.share.capacity())
}

/// Whether a claim may ride on a hold of its owner.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ride<'a> {
    /// Its owner holds nothing.
    None,
    /// On this holder's hold.
    On(&'a Seen),
    /// Its owner holds this, which is too little.
    TooSmall(Share),
}

/// Whether a claim may ride.
pub(super) fn ride<'a>(seen: &'a [Seen], order: &Order, claim: &Seen) -> Ride<'a> {
    if claim.owner.is_none() {
        return Ride::None;
    }
    let mut ride = Ride::None;
    for holder in order.holders.iter().map(|index| &seen[*index]) {
        // What came later rides on this one, not the other way round.
        if holder.owner != claim.owner || holder.hold() >= claim.hold() {
            continue;
        }
        if carries(holder, claim) {
            return Ride::On(holder);
        }
        ride = Ride::TooSmall(holder.share);
    }
    ride
}
