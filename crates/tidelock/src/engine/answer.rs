//! What the store's answer to an enter means for the cohort that asked.

use std::sync::Arc;

use super::{Engine, leased::LeasedClaim, local::Phase, release::Gives};
use crate::{
    backend::{Entered, Place, Refusal},
    clock::Moment,
    error::Error,
};

impl Engine {
    /// The store answered what was asked at `asked`.
    pub(super) fn entered(
        self: &Arc<Self>,
        leased: &Arc<LeasedClaim>,
        asked: Moment,
        now: Moment,
        answer: Entered,
    ) {
        let claim = &leased.claim;
        let asked = self.flaws.lease_start(asked, now);
        match answer {
            Entered::Held(grant) => self.granted(&claim.name, claim.id, grant, Some(asked), now),
            Entered::Waiting(place) => self.in_line(leased, place, asked, now),
            Entered::Busy => self.end_tries(leased),
            Entered::Refused(refusal) => {
                let error = match refusal {
                    Refusal::Capacity(agreed) => {
                        Error::capacity(self.store(), &claim.name, claim.share, agreed)
                    }
                    Refusal::Upgrade(held) => Error::upgrade(self.store(), &claim.name, claim.share, held),
                };
                self.fail_cohort(leased, &error);
            }
        }
    }

    /// The claim has a place in the store's line: kept for as long as somebody here wants it.
    fn in_line(self: &Arc<Self>, leased: &Arc<LeasedClaim>, place: Place, asked: Moment, now: Moment) {
        let claim = &leased.claim;
        let mut shard = self.table.shard(&claim.name);
        let cohort = shard.get(&claim.name).and_then(|line| line.cohort_of(leased));
        let Some(cohort) = cohort.filter(|cohort| !cohort.is_left_again()) else {
            drop(shard);
            // The question arrived after we left.
            return self.leave_later(claim.name.clone(), claim.id, claim.ttl);
        };
        // A push may have overtaken the answer.
        if !matches!(cohort.phase(), Phase::Asking(_)) {
            return;
        }
        // Who tried while the claim before was being given back does not wait with those who queue.
        cohort.refuse_tries();
        if cohort.is_wanted() || self.flaws.keep_abandoned_places() {
            cohort.set_phase(Phase::InLine);
            leased.waits(place, self.fallback(leased, place, now), asked, now, &self.schedule);
        } else {
            cohort.set_phase(Phase::Leaving);
            drop(shard);
            self.give_back_later(Arc::clone(leased), Gives::Place);
        }
    }

    /// A try was refused. Those who only tried are told; for those who want to wait it is asked again.
    fn end_tries(self: &Arc<Self>, leased: &Arc<LeasedClaim>) {
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(line) = shard.get(&leased.claim.name) else {
            return;
        };
        let Some(cohort) = line.cohort_of(leased) else {
            return;
        };
        cohort.refuse_tries();
        if cohort.is_wanted() {
            drop(shard);
            self.ask_anew(leased);
        } else {
            let id = cohort.id;
            line.remove(id);
        }
    }

    /// Ends a cohort that asks or waits, with this error for everybody in it.
    pub(super) fn fail_cohort(self: &Arc<Self>, leased: &Arc<LeasedClaim>, error: &Error) {
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(line) = shard.get(&leased.claim.name) else {
            return;
        };
        let Some(cohort) = line.cohort_of(leased) else {
            return;
        };
        if cohort.holds() {
            return;
        }
        while let Some(waiter) = cohort.pop() {
            let _ = waiter.tell.send(Err(error.clone()));
        }
        let id = cohort.id;
        line.remove(id);
    }
}
