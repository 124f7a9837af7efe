//! Giving back: to the next task of this process, or to the store until it has confirmed it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Engine,
    lease::State,
    leased::LeasedClaim,
    local::{Cohort, Phase},
};
use crate::{
    backend::{Call, Claim, ClaimId, Failure, Leave, Left},
    clock::Moment,
    error::{Error, LossReason, Result},
    model::name::Name,
};

/// Whose claim is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    /// A holder's: if the store does not know it, the holder relied on nothing.
    Hold,
    /// A waiter's, or one that nobody had in hands: if the store does not know it, nobody is worse off.
    Place,
}

/// What is to be done after a guard was let go.
pub(super) enum LetGo {
    /// Nothing: others of this process have it.
    Kept,
    /// Nothing: it was lost before.
    Lost(LossReason),
    /// It has to be given back to the store.
    Leave,
}

/// What came of a leave that was sent.
enum Sent {
    /// It was answered at once.
    Left(Left),
    /// It is to be awaited, or asked again if there is nothing to await.
    UnderWay(Option<Call<Left>>),
}

impl Engine {
    /// A guard goes away.
    pub(super) fn let_go(self: &Arc<Self>, leased: &Arc<LeasedClaim>) -> LetGo {
        let now = self.clock.now();
        let name = &leased.claim.name;
        let mut shard = self.table.shard(name);
        let cohort = shard.get(name).and_then(|line| line.index_of(leased).map(|index| (line, index)));
        let held = cohort.and_then(|(line, index)| match line.cohorts[index].phase() {
            Phase::Held { guards } => Some((line, index, guards)),
            _ => None,
        });
        let Some((line, index, guards)) = held else { return LetGo::Lost(leased.loss(now)) };
        line.cohorts[index].set_phase(Phase::Held { guards: guards - 1 });
        let next = line.cohorts[index].next_serial();
        let state = if guards > 1 {
            leased.state(now)
        } else if let Some(next) = next {
            let passes = line.is_passed_by(next, leased.cohort);
            if self.hand_on(&mut line.cohorts[index], passes, now) {
                line.cohorts[index].begin_next_hold();
                self.events.handed_off(name);
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
        line.cohorts[index].set_phase(Phase::Leaving);
        LetGo::Leave
    }

    /// Hands a claim on to the next task of this process, if that may be. Says whether it was.
    fn hand_on(self: &Arc<Self>, cohort: &mut Cohort, passes: bool, now: Moment) -> bool {
        let healthy = cohort.leased.healthy_grant(now);
        let Some(grant) = self.flaws.grant_to_hand_on(healthy, &cohort.leased, now) else { return false };
        let may = cohort.may_hand_off(grant, now) && !passes || self.flaws.hand_on_for_ever();
        may && self.hand_out(cohort, now)
    }

    /// Gives a hold back, first from the caller's context, then from a task.
    pub(super) async fn give_back(self: &Arc<Self>, leased: &Arc<LeasedClaim>) -> Result<()> {
        let under_way = match self.send_leave(leased) {
            Sent::Left(left) => {
                self.left(leased);
                return self.was_held(leased, left);
            }
            Sent::UnderWay(call) => call,
        };
        let (tell, hear) = oneshot::channel();
        let leaving = Arc::clone(self).leave_until_done(Arc::clone(leased), Gives::Hold, under_way, tell);
        self.tasks.spawn(leaving);
        // Nobody tells only when the runtime is torn down.
        hear.await.unwrap_or_else(|_| {
            let failure = Failure::unreachable(
                "the runtime that this client was connected on has ended; the lock is free when its lease has expired",
            );
            Err(Error::failure(self.store(), Some(&leased.claim.name), &failure))
        })
    }

    /// Gives a claim back, and nobody waits for it: first from the caller's context, as the runtime may be about to
    /// end, then from a task.
    /// Gives what to wait for, if it is under way.
    pub(super) fn give_back_later(
        self: &Arc<Self>,
        leased: Arc<LeasedClaim>,
        gives: Gives,
    ) -> Option<oneshot::Receiver<Result<()>>> {
        leased.end(self.clock.now(), &self.schedule);
        match self.send_leave(&leased) {
            Sent::Left(left) => {
                self.left(&leased);
                if gives == Gives::Hold {
                    // If it was lost before, that is in the events; nobody else can be told.
                    let _ = self.was_held(&leased, left);
                }
                None
            }
            Sent::UnderWay(call) => {
                let (tell, hear) = oneshot::channel();
                self.tasks.spawn(Arc::clone(self).leave_until_done(leased, gives, call, tell));
                Some(hear)
            }
        }
    }

    /// Sends a leave from the caller's context, which may be that of a `Drop`.
    fn send_leave(&self, leased: &LeasedClaim) -> Sent {
        // Before: others may see that it is gone sooner than the answer is here.
        self.tell_release(&leased.claim);
        let call = self.backend.leave(&leased.claim.name, leased.claim.id, Leave::Done);
        if !call.is_answered() && (self.has_ended() || !self.tasks.can_enter()) {
            return Sent::UnderWay(None);
        }
        // Tokio panics if its runtime ends at this very moment, and a panic in a `Drop` may abort the process.
        match catch_unwind(AssertUnwindSafe(|| call.poll_once(|| self.tasks.enter()))) {
            Ok(Ok(Ok(left))) => Sent::Left(left),
            Ok(Ok(failed)) => Sent::UnderWay(Some(Call::now(failed))),
            Ok(Err(call)) => Sent::UnderWay(Some(call)),
            Err(_) => Sent::UnderWay(None),
        }
    }

    async fn leave_until_done(
        self: Arc<Self>,
        leased: Arc<LeasedClaim>,
        gives: Gives,
        under_way: Option<Call<Left>>,
        tell: oneshot::Sender<Result<()>>,
    ) {
        let Claim { name, id, ttl, .. } = &*leased.claim;
        let first = self.try_to_leave(name, *id, *ttl, under_way).await;
        // No matter what the store said: those who wait here ask with a claim of their own.
        self.left(&leased);
        let failed = first.is_err();
        let answer = match first {
            Ok(left) if gives == Gives::Hold => self.was_held(&leased, left),
            Ok(_) => Ok(()),
            Err(failure) => Err(Error::failure(self.store(), Some(name), &failure)),
        };
        // If a guard was dropped, nobody listens.
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
    pub(super) async fn leave_until_lapsed(&self, name: &Name, id: ClaimId, ttl: Duration) {
        self.ask_until_lapsed(ttl, || self.backend.leave(name, id, Leave::Done)).await;
    }

    /// Leaves, asking three times at most.
    async fn try_to_leave(
        &self,
        name: &Name,
        id: ClaimId,
        ttl: Duration,
        mut under_way: Option<Call<Left>>,
    ) -> Result<Left, Failure> {
        let leave = || under_way.take().unwrap_or_else(|| self.backend.leave(name, id, Leave::Done));
        let (left, delivered_before) = self.ask_three_times(ttl, leave).await?;
        // What an earlier delivery removed was there.
        Ok(if delivered_before { Left::Removed } else { left })
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
        if cohort.phase() != Phase::Leaving {
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
