//! The model: a lock is a line.
//!
//! Pure: no clock, no I/O. A [`Line`] takes an event and the time at which it happens, changes its state, and
//! returns the effects. It is the logic of the `memory:` store and the oracle with which every other backend
//! is compared.
//!
//! # Rules
//!
//! 1. **Order.** A claim holds once it and everything ahead of it fit. No claim overtakes another, so holders
//!    are always the head of the line.
//! 2. **Lease.** A claim lives for its ttl from its last `enter` or `renew`. An expired claim is gone before
//!    anything else happens at that time, and the line moves.
//! 3. **Token.** A grant's epoch is the larger of the last epoch + 1 and the store's time in µs: it grows
//!    even if the line was forgotten in between.
//! 4. **Identity.** Everything is idempotent by claim id; only the same id releases what it acquired.
//! 5. **Owner.** A claim of an owner that holds rides on that hold: it holds at once, with the same epoch. So
//!    do claims that were waiting when their owner became a holder. The hold ends when the last of them has
//!    left. Asking for more than is held is refused, because the claim would wait for itself.
//! 6. **Shape.** Sharing claims agree on the capacity while any of them is in line; exclusive claims fit any.
//!
//! # Example
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tidelock::{
//!     Name,
//!     backend::{Ask, Claim, ClaimId, ClientId, Entered, Leave, Share},
//!     line::{Line, Moment, PartHold, StoreTime},
//! };
//!
//! let (client, name) = (ClientId::random(), Name::new("orders/42")?);
//! let claim = |serial| {
//!     let id = ClaimId::new(client, serial);
//!     Arc::new(Claim::new(id, name.clone(), Share::Exclusive, Duration::from_secs(30)))
//! };
//! let (first, second) = (claim(1), claim(2));
//! let now = StoreTime { lease: Moment::from_nanos(1_000_000), micros: 1_000 };
//! let (mut line, mut effects) = (Line::default(), Vec::new());
//!
//! assert!(matches!(line.enter(&first, Ask::Queue, now, &mut effects), Entered::Held(_)));
//! assert!(matches!(line.enter(&second, Ask::Queue, now, &mut effects), Entered::Waiting(_)));
//! assert_eq!(line.parts().next().and_then(|part| part.hold), Some(PartHold::of_first(0, now)));
//!
//! assert!(line.leave(first.id, Leave::Done, now, &mut effects));
//! assert_eq!(effects[0].id, second.id); // it is told that it holds
//! # Ok::<(), tidelock::Error>(())
//! ```

mod flaws;
mod parts;
mod places;

use std::{sync::Arc, time::Duration};

pub use self::parts::{Part, PartHold};
use self::{
    flaws::Flaws,
    places::{Hold, Places, Standee},
};
pub use crate::clock::Moment;
#[cfg(feature = "testing")]
use crate::testing::defect::Defects;
use crate::{
    backend::{
        Ask, Capacity, Claim, ClaimId, ClaimView, Entered, Grant, Leave, LockView, Place, Refusal, Share,
        Standing, What,
    },
    model::name::Name,
};

/// The store's time: one clock for leases, and a lower bound for epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTime {
    /// A clock that does not jump.
    pub lease: Moment,
    /// The lower bound of epochs, usually microseconds of the wall clock.
    pub micros: u64,
}

/// An event that a claim's client should be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The claim.
    pub id: ClaimId,
    /// What happened to it.
    pub what: What,
}

/// The line of one name.
#[derive(Clone, Debug, Default)]
pub struct Line {
    places: Places,
    /// The first `held` places hold.
    held: usize,
    /// Holders that do not ride on another.
    bases: usize,
    /// Whether the one base is exclusive.
    exclusive: bool,
    /// Permits taken by sharing bases.
    used: u64,
    /// Sharing claims in line, and what they agreed on.
    sharing: usize,
    capacity: Option<Capacity>,
    last_epoch: u64,
    /// No lease lapses before this.
    earliest: Moment,
    flaws: Flaws,
}

impl Line {
    /// Creates a line with deliberate defects.
    #[cfg(feature = "testing")]
    pub fn with_defects(defects: Defects) -> Self {
        Self { flaws: defects.into(), ..Self::default() }
    }

    /// Puts a claim in line; for a try, only if it would hold at once.
    pub fn enter(
        &mut self,
        claim: &Arc<Claim>,
        ask: Ask,
        at: StoreTime,
        effects: &mut Vec<Effect>,
    ) -> Entered {
        self.reap(at, effects);
        match self.renew_one(claim.id, at) {
            Standing::Held(grant) => return Entered::Held(grant),
            Standing::Waiting(place) => return Entered::Waiting(place),
            Standing::Gone | Standing::Unknown => {}
        }
        if let Some(refusal) = self.mismatch(claim.share) {
            return Entered::Refused(refusal);
        }
        match self.ridden_by(claim) {
            Some(Ok(epoch)) => {
                self.admit(claim, at, Some(Hold { epoch, since: at.lease, rides: true }));
                return Entered::Held(self.grant(claim, epoch));
            }
            Some(Err(held)) => return Entered::Refused(Refusal::Upgrade(held)),
            None => {}
        }
        if let Some(entered) = self.overtake(claim, at) {
            return entered;
        }
        let holds_at_once = self.held == self.places.len() && self.fits(claim.share);
        if ask == Ask::Try && !holds_at_once {
            return Entered::Busy;
        }
        self.admit(claim, at, None);
        if holds_at_once {
            let epoch = self.promote_next(at);
            Entered::Held(self.grant(claim, epoch))
        } else {
            Entered::Waiting(self.place(self.places.len() - 1, at))
        }
    }

    /// Renews a claim and returns its standing.
    pub fn renew(&mut self, id: ClaimId, at: StoreTime, effects: &mut Vec<Effect>) -> Standing {
        self.reap(at, effects);
        self.renew_one(id, at)
    }

    /// Removes a claim from the line and returns whether it was there.
    pub fn leave(&mut self, id: ClaimId, why: Leave, at: StoreTime, effects: &mut Vec<Effect>) -> bool {
        self.reap(at, effects);
        let Some(index) = self.places.position(id) else {
            return false;
        };
        self.remove(index);
        if let Leave::Evicted(reason) = why {
            effects.push(Effect { id, what: What::Evicted(reason) });
        }
        self.advance(at, effects);
        true
    }

    /// Removes a claim from the line if no other claim is in it, and returns whether it did.
    ///
    /// The time does not matter then: no other claim can become a holder, and it makes no difference whether
    /// the claim had expired before.
    pub fn leave_alone(&mut self, id: ClaimId) -> bool {
        let alone = self.places.len() == 1 && self.places.at(0).claim.id == id;
        if alone {
            self.remove(0);
        }
        alone
    }

    /// Removes expired claims and moves the line.
    pub fn reap(&mut self, at: StoreTime, effects: &mut Vec<Effect>) {
        if at.lease < self.earliest || self.places.is_empty() {
            return;
        }
        // Backwards, so that the indices still to come stay right.
        for index in (0..self.places.len()).rev() {
            if self.places.at(index).lapses <= at.lease {
                self.remove(index);
            }
        }
        self.earliest = self.places.iter().map(|standee| standee.lapses).min().unwrap_or_default();
        self.advance(at, effects);
    }

    /// Returns whether the line can be dropped now.
    ///
    /// That is so when no live claim is in line and the next epoch will be larger even without the line.
    pub fn may_be_forgotten(&self, at: StoreTime) -> bool {
        let over = at.lease >= self.earliest && self.places.iter().all(|standee| standee.lapses <= at.lease);
        (self.places.is_empty() || over) && self.last_epoch < at.micros
    }

    /// Returns the view for people. Expired claims are left out.
    pub fn look(&self, name: &Name, at: StoreTime) -> LockView {
        let mut view = LockView::new(name.clone(), self.capacity, self.last_epoch);
        for standee in self.places.iter().filter(|standee| standee.lapses > at.lease) {
            let since = standee.hold.map_or(standee.since, |hold| hold.since);
            let seen = ClaimView::new(
                &standee.claim,
                standee.hold.map(|hold| hold.epoch),
                at.lease.since(since),
                standee.lapses.since(at.lease),
            );
            if standee.hold.is_some() { view.holders.push(seen) } else { view.waiters.push(seen) }
        }
        view
    }

    fn renew_one(&mut self, id: ClaimId, at: StoreTime) -> Standing {
        let Some(index) = self.places.position(id) else {
            return Standing::Gone;
        };
        let standee = self.places.at_mut(index);
        standee.lapses = at.lease + standee.claim.ttl;
        match standee.hold {
            Some(hold) => {
                let claim = Arc::clone(&standee.claim);
                Standing::Held(self.grant(&claim, hold.epoch))
            }
            None => Standing::Waiting(self.place(index, at)),
        }
    }

    fn grant(&self, claim: &Claim, epoch: u64) -> Grant {
        let waiting = u32::try_from(self.places.len() - self.held).unwrap_or(u32::MAX);
        Grant::new(epoch, claim.ttl, waiting)
    }

    fn place(&self, index: usize, at: StoreTime) -> Place {
        // Only the first that waits is told when to look again: one question, not a herd.
        let lapse_in = (index == self.held)
            .then(|| self.places.iter().take(self.held).map(|holder| holder.lapses.since(at.lease)).min())
            .flatten();
        Place { ahead: u32::try_from(index).unwrap_or(u32::MAX), lapse_in }
    }

    fn mismatch(&self, share: Share) -> Option<Refusal> {
        match (share.capacity(), self.capacity) {
            (Some(asked), Some(agreed)) if asked != agreed => Some(Refusal::Capacity(agreed)),
            _ => None,
        }
    }

    /// The epoch of the hold that this claim may ride on, or the share that is too small for it.
    fn ridden_by(&self, claim: &Claim) -> Option<Result<u64, Share>> {
        let owner = claim.owner.as_ref()?;
        let mut too_small = None;
        for standee in self.places.iter().take(self.held).filter(|s| s.claim.owner.as_ref() == Some(owner)) {
            if standee.claim.share.covers(claim.share) {
                return standee.hold.map(|hold| Ok(hold.epoch));
            }
            too_small = Some(Err(standee.claim.share));
        }
        too_small
    }

    fn fits(&self, share: Share) -> bool {
        match share {
            Share::Exclusive => self.bases == 0,
            Share::Shared => !self.exclusive || self.flaws.let_readers_pass(),
            Share::Permits { n, of } => {
                let unweighed = self.bases < of as usize && self.flaws.ignore_weights();
                !self.exclusive && (self.used + u64::from(n) <= u64::from(of) || unweighed)
            }
        }
    }

    fn admit(&mut self, claim: &Arc<Claim>, at: StoreTime, hold: Option<Hold>) {
        let lapses = at.lease + claim.ttl;
        self.earliest = if self.places.is_empty() { lapses } else { self.earliest.min(lapses) };
        if let Some(capacity) = claim.share.capacity() {
            self.capacity = Some(capacity);
            self.sharing += 1;
        }
        let standee = Standee { claim: Arc::clone(claim), since: at.lease, lapses, hold };
        if hold.is_some() {
            // Behind the other holders: those stay the head of the line.
            self.places.insert(self.held, standee);
            self.held += 1;
        } else {
            self.places.push(standee);
        }
    }

    /// Makes holders of all that fit now.
    fn advance(&mut self, at: StoreTime, effects: &mut Vec<Effect>) {
        while self.held < self.places.len() && self.fits(self.places.at(self.held).claim.share) {
            let claim = Arc::clone(&self.places.at(self.held).claim);
            let epoch = self.promote_next(at);
            effects.push(Effect { id: claim.id, what: What::Granted(self.grant(&claim, epoch)) });
            if claim.owner.is_some() {
                self.take_along(&claim, epoch, at, effects);
            }
        }
    }

    /// Claims of an owner that wait behind others ride on what it just got: they would wait for their
    /// own owner.
    fn take_along(&mut self, holder: &Claim, epoch: u64, at: StoreTime, effects: &mut Vec<Effect>) {
        for index in self.held..self.places.len() {
            let claim = Arc::clone(&self.places.at(index).claim);
            if claim.owner == holder.owner && holder.share.covers(claim.share) {
                let mut standee = self.places.remove(index);
                standee.hold = Some(Hold { epoch, since: at.lease, rides: true });
                self.places.insert(self.held, standee);
                self.held += 1;
                effects.push(Effect { id: claim.id, what: What::Granted(self.grant(&claim, epoch)) });
            }
        }
    }

    fn promote_next(&mut self, at: StoreTime) -> u64 {
        self.last_epoch = at.micros.max(self.last_epoch + 1);
        let standee = self.places.at_mut(self.held);
        standee.hold = Some(Hold { epoch: self.last_epoch, since: at.lease, rides: false });
        let share = standee.claim.share;
        self.held += 1;
        self.count_base(share);
        self.last_epoch
    }

    fn count_base(&mut self, share: Share) {
        self.bases += 1;
        match share {
            Share::Exclusive => self.exclusive = true,
            sharing => self.used += u64::from(sharing.weight()),
        }
    }

    fn remove(&mut self, index: usize) {
        let gone = self.places.remove(index);
        if gone.claim.share.capacity().is_some() {
            self.sharing -= 1;
            if self.sharing == 0 {
                self.capacity = None;
            }
        }
        let Some(hold) = gone.hold else { return };
        self.held -= 1;
        if hold.rides {
            return;
        }
        self.bases -= 1;
        match gone.claim.share {
            Share::Exclusive => self.exclusive = false,
            sharing => self.used -= u64::from(sharing.weight()),
        }
        if gone.claim.owner.is_some() {
            self.inherit(&gone.claim, hold.epoch);
        }
    }

    /// The hold goes on for the largest of those that rode on it.
    fn inherit(&mut self, gone: &Claim, epoch: u64) {
        let heir = (0..self.held)
            .filter(|index| {
                let standee = self.places.at(*index);
                standee.claim.owner == gone.owner
                    && standee.hold.is_some_and(|hold| hold.rides && hold.epoch == epoch)
            })
            .max_by_key(|index| match self.places.at(*index).claim.share {
                Share::Exclusive => u32::MAX,
                sharing => sharing.weight(),
            });
        if let Some(heir) = heir {
            let standee = self.places.at_mut(heir);
            if let Some(hold) = &mut standee.hold {
                hold.rides = false;
            }
            let share = standee.claim.share;
            self.count_base(share);
        }
    }

    /// Returns when the first lease may expire; nothing needs to be checked before.
    pub fn next_lapse(&self) -> Option<Moment> {
        (!self.places.is_empty()).then_some(self.earliest)
    }

    /// Returns how many claims are in line.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether no claim is in line.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the longest ttl of all claims: no claim lives longer without renewal.
    pub fn longest_ttl(&self) -> Duration {
        self.places.iter().map(|standee| standee.claim.ttl).max().unwrap_or_default()
    }
}
