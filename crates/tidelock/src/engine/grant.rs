//! Becoming a holder: the one transition to *held*, and who gets the guards.
//!
//! The store says that a claim holds in three ways: in answer to an enter, in answer to a renewal, or
//! unasked by a push. All three come to [`Engine::granted`]. An answer that is there while the task that
//! asked is still in its call goes to that task directly: [`Engine::granted_at_once`].

use std::{sync::Arc, time::Duration};

use super::{
    Engine,
    held::Held,
    lease::State,
    leased::LeasedClaim,
    local::{Cohort, Phase},
    release::Gives,
    request::Request,
};
use crate::{
    backend::{ClaimId, Grant},
    clock::Moment,
    error::LossReason,
    model::name::Name,
};

impl Engine {
    /// The store made a claim a holder: in answer to what was asked at `asked`, or unasked. Those who
    /// wait here get their guards.
    pub(super) fn granted(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        grant: Grant,
        asked: Option<Moment>,
        now: Moment,
    ) {
        let asked = self.flaws.granted_lease_start(asked, now);
        let mut shard = self.table.shard(name);
        let cohort = shard.get(name).and_then(|line| line.cohort_with(id));
        let Some(cohort) = cohort.filter(|cohort| !cohort.is_left_again()) else {
            drop(shard);
            return self.give_back_late_grant(name, id, grant.ttl);
        };
        // An answer and a push may both say it.
        if cohort.holds() {
            return;
        }
        if cohort.reserved {
            cohort.keep_early(grant);
            return;
        }
        let leased = Arc::clone(&cohort.leased);
        let state = self.become_holder(cohort, grant, asked, now);
        if !matches!(state, State::Held | State::Uncertain) {
            // The lease of a place that was last confirmed long ago may have expired.
            cohort.set_phase(Phase::InLine);
            drop(shard);
            return self.lost(&leased, LossReason::Gone);
        }
        if self.hand_out(cohort, now) || self.flaws.keep_late_grants() {
            return;
        }
        cohort.set_phase(Phase::Leaving);
        drop(shard);
        self.give_back_later(leased, Gives::Place);
    }

    /// The first question was answered within the call of the task that asked it: the guard is for that
    /// task, which needs no seat in the local line. None if a shutdown took its cohort away meanwhile.
    pub(super) fn granted_at_once(
        self: &Arc<Self>,
        request: &Request<'_>,
        leased: Arc<LeasedClaim>,
        grant: Grant,
        asked: Moment,
    ) -> Option<Held> {
        let mut shard = self.table.shard(request.name);
        let Some(cohort) = shard.get(request.name).and_then(|line| line.cohort_of(&leased)) else {
            drop(shard);
            self.give_back_late_grant(request.name, leased.claim.id, grant.ttl);
            return None;
        };
        // The answer is as old as the question.
        self.become_holder(cohort, grant, Some(asked), asked);
        cohort.reserved = false;
        cohort.set_phase(Phase::Held { guards: 1 });
        cohort.take_up(0, request.max_hold, asked, &self.schedule);
        Some(Held::new(self, leased, grant.epoch, 0))
    }

    /// The transition: the lease of a holder runs, and nobody has the claim in hands yet. Says how the
    /// lease stands.
    fn become_holder(&self, cohort: &mut Cohort, grant: Grant, asked: Option<Moment>, now: Moment) -> State {
        cohort.set_phase(Phase::Held { guards: 0 });
        cohort.epoch = grant.epoch;
        cohort.hand_off = None;
        cohort.leased.holds(grant, asked, now, &self.schedule)
    }

    /// Gives the claim to those of the cohort who wait: to the next, or to all that may hold
    /// together. Says whether anybody took it.
    pub(super) fn hand_out(self: &Arc<Self>, cohort: &mut Cohort, now: Moment) -> bool {
        let mut guards = 0;
        let mut number = cohort.next_number();
        while let Some(waiter) = cohort.pop() {
            let leased = Arc::clone(&cohort.leased);
            let held = Held::new(self, leased, cohort.epoch, self.flaws.hand_off_number(number));
            if let Err(Ok(Some(held))) = waiter.tell.send(Ok(Some(held))) {
                held.defuse();
                continue;
            }
            cohort.take_up(number, waiter.max_hold, now, &self.schedule);
            guards += 1;
            if !cohort.is_joint() {
                break;
            }
            number = cohort.next_number();
        }
        // Somebody has it now, and who only tries does not wait for the next turn.
        cohort.refuse_tries();
        cohort.set_phase(Phase::Held { guards });
        guards > 0
    }

    /// Nobody waits for a grant any more: it came late, or its question arrived after we left.
    fn give_back_late_grant(self: &Arc<Self>, name: &Name, id: ClaimId, ttl: Duration) {
        if !self.flaws.keep_late_grants() {
            self.leave_later(name.clone(), id, ttl);
        }
    }
}
