//! The reference: claims in order, holders first. Nothing is counted, everything is looked for.

use std::sync::Arc;

use tidelock::{
    Name,
    backend::{
        Ask, Capacity, Claim, ClaimId, ClaimView, Entered, Grant, Leave, LockView, Place, Refusal, Share,
        Standing, What,
    },
    line::{Effect, Line, Moment, StoreTime},
};

pub(crate) fn name() -> Name {
    Name::new("line").expect("a name")
}

/// What obeys the rules.
pub(crate) trait Rules {
    fn enter(&mut self, claim: &Arc<Claim>, ask: Ask, at: StoreTime, effects: &mut Vec<Effect>) -> Entered;
    fn renew(&mut self, id: ClaimId, at: StoreTime, effects: &mut Vec<Effect>) -> Standing;
    fn leave(&mut self, id: ClaimId, why: Leave, at: StoreTime, effects: &mut Vec<Effect>) -> bool;
    fn look(&self, at: StoreTime) -> LockView;
}

impl Rules for Line {
    fn enter(&mut self, claim: &Arc<Claim>, ask: Ask, at: StoreTime, effects: &mut Vec<Effect>) -> Entered {
        Line::enter(self, claim, ask, at, effects)
    }
    fn renew(&mut self, id: ClaimId, at: StoreTime, effects: &mut Vec<Effect>) -> Standing {
        Line::renew(self, id, at, effects)
    }
    fn leave(&mut self, id: ClaimId, why: Leave, at: StoreTime, effects: &mut Vec<Effect>) -> bool {
        Line::leave(self, id, why, at, effects)
    }
    fn look(&self, at: StoreTime) -> LockView {
        Line::look(self, &name(), at)
    }
}

/// A line as a plain list.
#[derive(Default)]
pub(crate) struct Naive {
    spots: Vec<Spot>,
    last_epoch: u64,
}

struct Spot {
    id: ClaimId,
    claim: Arc<Claim>,
    since: Moment,
    lapses: Moment,
    hold: Option<(u64, Moment)>,
}

impl Naive {
    fn held(&self) -> usize {
        self.spots.iter().take_while(|spot| spot.hold.is_some()).count()
    }

    fn fits(&self, share: Share) -> bool {
        let held = self.spots.iter().map_while(|spot| Some((spot.hold?.0, spot.claim.share)));
        fits(&taken(held), share)
    }

    fn capacity(&self) -> Option<Capacity> {
        self.spots.iter().find_map(|spot| spot.claim.share.capacity())
    }

    fn grant(&self, claim: &Claim, epoch: u64) -> Grant {
        Grant::new(epoch, claim.ttl, (self.spots.len() - self.held()) as u32)
    }

    fn standing(&self, id: ClaimId, at: StoreTime) -> Standing {
        let Some(index) = self.spots.iter().position(|spot| spot.id == id) else { return Standing::Gone };
        let spot = &self.spots[index];
        if let Some((epoch, _)) = spot.hold {
            return Standing::Held(self.grant(&spot.claim, epoch));
        }
        let holders = self.spots[..self.held()].iter();
        let lapse_in = holders.map(|holder| holder.lapses.since(at.lease)).min();
        Standing::Waiting(Place::new(index as u32, lapse_in.filter(|_| index == self.held())))
    }

    fn advance(&mut self, at: StoreTime, effects: &mut Vec<Effect>) {
        while let Some(spot) = self.spots.get(self.held()) {
            let claim = Arc::clone(&spot.claim);
            if !self.fits(claim.share) {
                return;
            }
            let (next, epoch) = (self.held(), at.micros.max(self.last_epoch + 1));
            self.last_epoch = epoch;
            self.spots[next].hold = Some((epoch, at.lease));
            effects.push(Effect { id: claim.id, what: What::Granted(self.grant(&claim, epoch)) });
            // Whatever else the owner waits for comes along.
            let rides = |spot: &Spot| {
                claim.owner.is_some()
                    && spot.hold.is_none()
                    && spot.claim.owner == claim.owner
                    && claim.share.covers(spot.claim.share)
            };
            while let Some(index) = self.spots.iter().position(rides) {
                let mut rider = self.spots.remove(index);
                rider.hold = Some((epoch, at.lease));
                let rider_claim = Arc::clone(&rider.claim);
                self.spots.insert(self.held(), rider);
                let grant = self.grant(&rider_claim, epoch);
                effects.push(Effect { id: rider_claim.id, what: What::Granted(grant) });
            }
        }
    }

    fn reap(&mut self, at: StoreTime, effects: &mut Vec<Effect>) {
        self.spots.retain(|spot| spot.lapses > at.lease);
        self.advance(at, effects);
    }
}

impl Rules for Naive {
    fn enter(&mut self, claim: &Arc<Claim>, ask: Ask, at: StoreTime, effects: &mut Vec<Effect>) -> Entered {
        match self.renew(claim.id, at, effects) {
            Standing::Held(grant) => return Entered::Held(grant),
            Standing::Waiting(place) => return Entered::Waiting(place),
            _ => {}
        }
        if let (Some(asked), Some(agreed)) = (claim.share.capacity(), self.capacity())
            && asked != agreed
        {
            return Entered::Refused(Refusal::Capacity(agreed));
        }
        let lapses = at.lease + claim.ttl;
        let spot = |hold| Spot { id: claim.id, claim: Arc::clone(claim), since: at.lease, lapses, hold };
        let held = self.held();
        let owners = |holder: &&Spot| claim.owner.is_some() && holder.claim.owner == claim.owner;
        let own: Vec<_> = self.spots[..held].iter().filter(owners).collect();
        if let Some(covering) = own.iter().find(|holder| holder.claim.share.covers(claim.share)) {
            let hold = covering.hold.map(|(epoch, _)| (epoch, at.lease));
            self.spots.insert(held, spot(hold));
            return Entered::Held(self.grant(claim, hold.map_or(0, |(epoch, _)| epoch)));
        }
        if let Some(too_small) = own.last() {
            return Entered::Refused(Refusal::Upgrade(too_small.claim.share));
        }
        if ask == Ask::Try && !(held == self.spots.len() && self.fits(claim.share)) {
            return Entered::Busy;
        }
        self.spots.push(spot(None));
        // A claim that holds at once hears it as the answer.
        self.advance(at, &mut Vec::new());
        match self.standing(claim.id, at) {
            Standing::Held(grant) => Entered::Held(grant),
            Standing::Waiting(place) => Entered::Waiting(place),
            _ => unreachable!("it was just put there"),
        }
    }

    fn renew(&mut self, id: ClaimId, at: StoreTime, effects: &mut Vec<Effect>) -> Standing {
        self.reap(at, effects);
        if let Some(spot) = self.spots.iter_mut().find(|spot| spot.id == id) {
            spot.lapses = at.lease + spot.claim.ttl;
        }
        self.standing(id, at)
    }

    fn leave(&mut self, id: ClaimId, why: Leave, at: StoreTime, effects: &mut Vec<Effect>) -> bool {
        self.reap(at, effects);
        let Some(index) = self.spots.iter().position(|spot| spot.id == id) else { return false };
        self.spots.remove(index);
        if let Leave::Evicted(reason) = why {
            effects.push(Effect { id, what: What::Evicted(reason) });
        }
        self.advance(at, effects);
        true
    }

    fn look(&self, at: StoreTime) -> LockView {
        let mut view = LockView::new(name(), self.capacity(), self.last_epoch);
        for spot in self.spots.iter().filter(|spot| spot.lapses > at.lease) {
            let (epoch, since) = spot.hold.map_or((None, spot.since), |(epoch, since)| (Some(epoch), since));
            let lapse_in = spot.lapses.since(at.lease);
            let seen = ClaimView::new(&spot.claim, epoch, at.lease.since(since), lapse_in);
            if epoch.is_some() { view.holders.push(seen) } else { view.waiters.push(seen) }
        }
        view
    }
}

/// What each hold takes: claims with one epoch hold together, as the largest of them.
pub(crate) fn taken(holders: impl Iterator<Item = (u64, Share)>) -> Vec<Share> {
    let mut holds: Vec<(u64, Share)> = Vec::new();
    for (epoch, share) in holders {
        match holds.iter_mut().find(|(known, _)| *known == epoch) {
            Some((_, largest)) if largest.covers(share) => {}
            Some((_, largest)) => *largest = share,
            None => holds.push((epoch, share)),
        }
    }
    holds.into_iter().map(|(_, share)| share).collect()
}

/// Whether one more fits beside what is taken.
pub(crate) fn fits(taken: &[Share], share: Share) -> bool {
    match share {
        Share::Exclusive => taken.is_empty(),
        _ if taken.contains(&Share::Exclusive) => false,
        Share::Shared => true,
        Share::Permits { n, of } => taken.iter().map(|share| share.weight()).sum::<u32>() + n <= of,
        _ => unreachable!("no other share is played"),
    }
}
