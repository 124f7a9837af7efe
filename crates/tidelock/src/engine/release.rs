//! Giving back: to the next task of this process, or to the store until it has confirmed it.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    Engine,
    held::Held,
    lease::{State, call_limit, pause_before_retry},
    leased::LeasedClaim,
    local::{Cohort, Phase},
};
use crate::{
    backend::{Call, Claim, ClaimId, Failure, Grant, Leave},
    clock::Moment,
    defect::Defect,
    error::{Error, LossReason, Result},
    events,
    name::Name,
};

/// After how many tries a caller that waits for a release is told that it failed.
const TRIES: u32 = 3;

/// What is to be done after a guard was let go.
pub(super) enum LetGo {
    /// Nothing: others of this process have it.
    Kept,
    /// Nothing: it was lost before.
    Lost(LossReason),
    /// It has to be given back to the store.
    Leave,
}

impl Engine {
    /// A guard goes away.
    pub(super) fn let_go(self: &Arc<Self>, leased: &Arc<LeasedClaim>) -> LetGo {
        let now = self.clock.now();
        let name = &leased.claim.name;
        let mut shard = self.table.shard(name);
        let cohort = shard.get(name).and_then(|line| line.index_of(leased).map(|index| (line, index)));
        let held = cohort.and_then(|(line, index)| match line.cohorts[index].phase {
            Phase::Held { guards } => Some((line, index, guards)),
            _ => None,
        });
        let Some((line, index, guards)) = held else { return LetGo::Lost(leased.loss(now)) };
        line.cohorts[index].phase = Phase::Held { guards: guards - 1 };
        let next = line.cohorts[index].next_serial();
        let state = if guards > 1 {
            leased.state(now)
        } else if let Some(next) = next {
            let passes = line.is_passed_by(next, leased.cohort);
            if self.hand_on(&mut line.cohorts[index], passes, now) {
                events::handed_off(self.store());
                return LetGo::Kept;
            }
            leased.end(now, &self.schedule)
        } else {
            leased.end(now, &self.schedule)
        };
        if let State::Lost(reason) = state {
            drop(shard);
            self.lost(leased, reason);
            return LetGo::Lost(reason);
        }
        if guards > 1 {
            return LetGo::Kept;
        }
        line.cohorts[index].phase = Phase::Leaving;
        LetGo::Leave
    }

    /// Hands a claim on to the next task of this process, if that may be. Says whether it was.
    fn hand_on(self: &Arc<Self>, cohort: &mut Cohort, passes: bool, now: Moment) -> bool {
        let healthy = match cohort.leased.healthy_grant(now) {
            None if self.defects.has(Defect::HandOffOfLost) => cohort.leased.grant(),
            healthy => healthy,
        };
        let Some(grant) = healthy else { return false };
        let bounded = cohort.may_hand_off(grant, now) && !passes || self.defects.has(Defect::HandOffForEver);
        bounded && self.hand_out(cohort, now)
    }

    /// The store made a claim a holder: in answer to what was asked at `asked`, or unasked.
    pub(super) fn granted(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        grant: Grant,
        asked: Option<Moment>,
        now: Moment,
    ) {
        let asked =
            if asked.is_none() && self.defects.has(Defect::PushFromArrival) { Some(now) } else { asked };
        let mut shard = self.table.shard(name);
        let cohort = shard.get(name).and_then(|line| line.cohort_with(id));
        let Some(cohort) = cohort.filter(|cohort| cohort.phase != Phase::Leaving) else {
            drop(shard);
            // Nobody waits for it any more: a late grant, or a question that arrived after we left.
            if !self.defects.has(Defect::LateGrantKept) {
                self.leave_later(name.clone(), id, grant.ttl);
            }
            return;
        };
        if cohort.holds() {
            return;
        }
        if cohort.reserved {
            cohort.keep_early(grant);
            return;
        }
        let leased = Arc::clone(&cohort.leased);
        match leased.holds(grant, asked, now, &self.schedule) {
            State::Held | State::Uncertain => {}
            // The place was last confirmed so long ago that the lease may be over.
            State::Lost(_) | State::Ended => {
                cohort.phase = Phase::InLine;
                drop(shard);
                self.place_lost(&leased);
                return;
            }
        }
        cohort.phase = Phase::Held { guards: 0 };
        cohort.epoch = grant.epoch;
        cohort.hand_off = None;
        if self.hand_out(cohort, now) || self.defects.has(Defect::LateGrantKept) {
            return;
        }
        cohort.phase = Phase::Leaving;
        drop(shard);
        self.give_back_later(leased);
    }

    /// Gives the claim to those of the cohort who wait: to the next, or to all that may hold
    /// together. Says whether anybody took it.
    fn hand_out(self: &Arc<Self>, cohort: &mut Cohort, now: Moment) -> bool {
        let mut guards = 0;
        let mut number = cohort.next_number();
        while let Some(waiter) = cohort.pop() {
            let kept = self.defects.has(Defect::TokenKeptOnHandOff);
            let held =
                Held::new(self, Arc::clone(&cohort.leased), cohort.epoch, if kept { 0 } else { number });
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
        cohort.phase = Phase::Held { guards };
        guards > 0
    }

    /// A claim that holds or waits is lost.
    pub(super) fn lost(self: &Arc<Self>, leased: &Arc<LeasedClaim>, reason: LossReason) {
        let now = self.clock.now();
        let Some(reason) = leased.lose(reason, now, &self.schedule) else {
            return;
        };
        leased.tell();
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(line) = shard.get(&leased.claim.name) else {
            return;
        };
        let Some(cohort) = line.cohort_of(leased) else {
            return;
        };
        let (held, wanted, id) = (cohort.holds(), cohort.is_wanted(), cohort.id);
        if !held && cohort.phase != Phase::InLine {
            return;
        }
        if !wanted {
            line.remove(id);
        }
        drop(shard);
        if held {
            events::lost(self.store(), &leased.claim.name, reason);
        }
        if wanted {
            self.ask_anew(leased);
        }
        // It may well be in the store's line still, in the way of others.
        self.leave_later(leased.claim.name.clone(), leased.claim.id, leased.claim.ttl);
    }

    /// A place in line is lost: take a new one, at the end.
    pub(super) fn place_lost(self: &Arc<Self>, leased: &Arc<LeasedClaim>) {
        self.lost(leased, LossReason::Gone);
    }

    /// What to tell the holder of a claim that was lost.
    pub(super) fn loss_of(&self, leased: &LeasedClaim, reason: LossReason) -> Error {
        let (ttl, silent) = leased.silence(self.clock.now());
        match (reason, leased.evicted_for()) {
            (LossReason::Evicted, Some(why)) => Error::evicted(self.store(), &leased.claim.name, &why),
            _ => Error::lost(self.store(), &leased.claim.name, reason, ttl, silent),
        }
    }

    /// Gives a claim back, first from the caller's context, then from a task.
    pub(super) async fn give_back(self: &Arc<Self>, leased: &Arc<LeasedClaim>) -> Result<()> {
        let call = self.backend.leave(&leased.claim.name, leased.claim.id, Leave::Done);
        let under_way = match call.poll_once(|| self.tasks.enter()) {
            Ok(Ok(())) => {
                self.left(leased);
                return Ok(());
            }
            Ok(failed) => Call::now(failed),
            Err(call) => call,
        };
        let (tell, hear) = oneshot::channel();
        self.tasks.spawn(Arc::clone(self).leave_until_done(Arc::clone(leased), Some(under_way), tell));
        // Nobody tells only when the runtime is torn down: then the lease runs out.
        hear.await.unwrap_or(Ok(()))
    }

    /// Gives a claim back from a task: nobody waits for it.
    pub(super) fn give_back_later(self: &Arc<Self>, leased: Arc<LeasedClaim>) {
        leased.end(self.clock.now(), &self.schedule);
        let (tell, _) = oneshot::channel();
        self.tasks.spawn(Arc::clone(self).leave_until_done(leased, None, tell));
    }

    async fn leave_until_done(
        self: Arc<Self>,
        leased: Arc<LeasedClaim>,
        under_way: Option<Call<()>>,
        tell: oneshot::Sender<Result<()>>,
    ) {
        let Claim { name, id, ttl, .. } = &*leased.claim;
        let first = self.try_to_leave(name, *id, *ttl, under_way).await;
        // Whatever the store said: those who wait here ask with a claim of their own.
        self.left(&leased);
        let answer = first.map_err(|failure| Error::failure(self.store(), Some(name), &failure));
        let failed = answer.is_err();
        // Whoever dropped a guard does not listen.
        let _ = tell.send(answer);
        if failed {
            self.leave_until_lapsed(name, *id, *ttl).await;
        }
    }

    /// Takes a claim out of the store's line that nobody here stands for.
    pub(super) fn leave_later(self: &Arc<Self>, name: Name, id: ClaimId, ttl: Duration) {
        let engine = Arc::clone(self);
        self.tasks.spawn(async move { engine.leave_until_lapsed(&name, id, ttl).await });
    }

    /// Tries until the store confirms it, or until the claim has lapsed because nobody renews it.
    async fn leave_until_lapsed(&self, name: &Name, id: ClaimId, ttl: Duration) {
        let lapsed = self.clock.now() + ttl;
        while self.try_to_leave(name, id, ttl, None).await.is_err() && self.clock.now() < lapsed {
            tokio::time::sleep((ttl / 8).min(Duration::from_secs(1))).await;
        }
    }

    async fn try_to_leave(
        &self,
        name: &Name,
        id: ClaimId,
        ttl: Duration,
        mut under_way: Option<Call<()>>,
    ) -> Result<(), Failure> {
        let limit = call_limit(ttl);
        let mut last = Failure::unknown("not tried");
        for round in 0..TRIES {
            if round > 0 {
                tokio::time::sleep(pause_before_retry(round, ttl)).await;
            }
            let call = under_way.take().unwrap_or_else(|| self.backend.leave(name, id, Leave::Done));
            match tokio::time::timeout(limit, call).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => last = failure,
                Err(_) => last = Failure::unknown(format!("no answer within {limit:?}")),
            }
        }
        Err(last)
    }

    /// A cohort's claim was given back: go on for those who came in the meantime.
    fn left(self: &Arc<Self>, leased: &Arc<LeasedClaim>) {
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(line) = shard.get(&leased.claim.name) else {
            return;
        };
        let Some(index) = line.index_of(leased) else {
            return;
        };
        let cohort = &line.cohorts[index];
        if cohort.phase != Phase::Leaving {
            return;
        }
        if cohort.is_wanted() {
            drop(shard);
            self.ask_anew(leased);
        } else {
            line.cohorts.remove(index);
        }
    }
}
