//! Losing a claim: how a holder stops being one without giving back.
//!
//! | reason | who notices |
//! |---|---|
//! | the deadline or `max_hold` passed | the keeper, when it looks at its schedule; a guard that is let go |
//! | gone: the store does not know the claim | the keeper, in the answer to a renewal; the answer to a leave |
//! | evicted by somebody | the listener |
//! | closed | the shutdown, after its grace |
//!
//! All of them come to [`Engine::lost`], except a loss that only the answer to a leave shows:
//! [`Engine::was_held`]. A place in line that is lost comes there too; a new one is taken at the end.

use std::sync::Arc;

use super::{Engine, leased::LeasedClaim, local::Phase};
use crate::{
    backend::{ClaimId, Left},
    error::{Error, LossReason, Result},
    model::name::Name,
};

impl Engine {
    /// A claim that holds or waits is lost. Its guards are told; those who wait behind them get a claim
    /// of their own.
    pub(super) fn lost(self: &Arc<Self>, leased: &Arc<LeasedClaim>, reason: LossReason) {
        let now = self.clock.now();
        let Some(reason) = leased.lose(reason, now, &self.schedule) else {
            return;
        };
        leased.tell();
        self.tell_loss(leased, reason);
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(line) = shard.get(&leased.claim.name) else {
            return;
        };
        let Some(cohort) = line.cohort_of(leased) else {
            return;
        };
        let (held, wanted, id) = (cohort.holds(), cohort.is_wanted(), cohort.id);
        if !held && cohort.phase() != Phase::InLine {
            return;
        }
        if !wanted {
            line.remove(id);
        }
        drop(shard);
        if held {
            self.events.lost(&leased.claim.name, reason);
        }
        if wanted {
            self.ask_anew(leased);
        }
        // It may well be in the store's line still, in the way of others.
        self.leave_later(leased.claim.name.clone(), leased.claim.id, leased.claim.ttl);
    }

    /// Somebody put a claim out of line, for this reason.
    pub(super) fn evicted(self: &Arc<Self>, name: &Name, id: ClaimId, reason: &Arc<str>) {
        let mut shard = self.table.shard(name);
        let Some(cohort) = shard.get(name).and_then(|line| line.cohort_with(id)) else {
            return;
        };
        let (leased, phase) = (Arc::clone(&cohort.leased), cohort.phase());
        drop(shard);
        // While it is asked for, it was not in line as far as this client knows: the answer tells.
        if matches!(phase, Phase::Asking(_)) {
            return;
        }
        leased.note_eviction(reason);
        // A release that is under way finds nothing, and says why.
        if phase != Phase::Leaving {
            self.lost(&leased, LossReason::Evicted);
        }
    }

    /// What the answer to the leave of a hold means for its holder: a claim that the store did not
    /// know protected nothing, though its lease had not expired and no renewal had said so yet.
    pub(super) fn was_held(&self, leased: &LeasedClaim, left: Left) -> Result<()> {
        if left == Left::Removed || leased.is_left_twice() || self.flaws.ignore_absence() {
            return Ok(());
        }
        let (store, name) = (self.store(), &leased.claim.name);
        let evicted_for = leased.evicted_for();
        let reason = if evicted_for.is_some() { LossReason::Evicted } else { LossReason::Gone };
        self.events.lost(name, reason);
        self.tell_loss(leased, reason);
        Err(Error::lost_before_release(store, name, evicted_for.as_deref()))
    }

    /// What to tell the holder of a claim that was lost.
    pub(super) fn loss_of(&self, leased: &LeasedClaim, reason: LossReason) -> Error {
        let (ttl, silent) = leased.silence(self.clock.now());
        match (reason, leased.evicted_for()) {
            (LossReason::Evicted, Some(why)) => Error::evicted(self.store(), &leased.claim.name, &why),
            _ => Error::lost(self.store(), &leased.claim.name, reason, ttl, silent),
        }
    }
}
