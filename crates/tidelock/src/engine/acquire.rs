//! Acquiring: stand in the local line, ask the store, listen.
//!
//! The question runs in a task of the engine and its answer goes to the local line. The caller's
//! future only listens: dropped at any moment, it leaves nothing behind. Only the first poll of a
//! question happens in the caller's own context, because a store in this process answers at once
//! and a driver can send without a task switch.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::oneshot::{self, error::TryRecvError};
use tracing::Instrument;

use super::{
    Engine,
    held::Held,
    lease::{State, call_limit, pause_before_retry},
    leased::LeasedClaim,
    local::{Cohort, LocalLine, Outcome, Phase, Waiter},
    request::{Patience, Request},
};
use crate::{
    backend::{Ask, Call, Claim, ClaimId, Entered, Failure, FailureKind, Refusal, Scope},
    clock::Moment,
    defect::Defect,
    error::{Error, Result},
    events,
    name::Name,
};

/// How often a question is asked before the store counts as unavailable.
const TRIES: u32 = 3;

/// What the local line says to a newcomer.
enum Begin<'a> {
    /// It is decided: it holds, or it only tried and somebody is ahead.
    Done(Option<Held>),
    /// It waits.
    Wait(Waiting<'a>),
    /// The client was shut down in the meantime.
    Closed,
    /// It has to send a claim.
    Ask(Arc<LeasedClaim>, Ask),
}

/// Who is interested in the answer to a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    /// Somebody waits for it.
    Waits,
    /// It came by another way, as a push: the claim is in use, or was.
    Answered,
    /// Everybody went away.
    Nobody,
}

impl Engine {
    /// Acquires, or says `None` when patience ran out.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &Request<'_>,
        patience: Patience,
    ) -> Result<Option<Held>> {
        // A store in this process answers at once: a loop over its locks must let others run too.
        tokio::task::coop::consume_budget().await;
        let asked = self.clock.now();
        let begun = match self.begin(request, patience == Patience::Try, asked) {
            Ok(Begin::Ask(leased, ask)) => Ok(self.ask_here(request, leased, ask, asked)),
            begun => begun,
        };
        let outcome = match begun {
            Ok(Begin::Wait(waiting)) => {
                let span = events::waiting(self.store(), request.name);
                waiting.with_patience(patience).instrument(span).await
            }
            Ok(Begin::Done(outcome)) => Ok(outcome),
            Ok(Begin::Closed) => Err(Error::closed(request.name)),
            Ok(Begin::Ask(..)) => unreachable!("whatever was to be asked was asked"),
            Err(error) => Err(error),
        };
        events::acquired(self.store(), request.name, outcome.as_ref().ok().map(Option::is_some), || {
            self.clock.now().since(asked)
        });
        outcome
    }

    /// What to say when patience ran out.
    pub(crate) async fn timed_out(self: &Arc<Self>, name: &Name, waited: Duration) -> Error {
        let look = self.backend.look(&Scope::Names(vec![name.clone()]));
        let seen = tokio::time::timeout(Duration::from_millis(500), look).await;
        let seen = seen.ok().and_then(Result::ok).unwrap_or_default();
        Error::timed_out(self.store(), name, waited, seen.first())
    }

    fn begin<'a>(
        self: &'a Arc<Self>,
        request: &Request<'a>,
        try_only: bool,
        now: Moment,
    ) -> Result<Begin<'a>> {
        let mut shard = self.table.shard(request.name);
        // Looked at under the lock of the shard: whoever closes walks over all shards afterwards.
        if self.is_closed() {
            return Err(Error::closed(request.name));
        }
        let line = shard.get_or_make(request.name, LocalLine::is_idle);
        let serial = self.next_serial();
        if let Some(cohort) = line.cohort_for(request) {
            match cohort.phase {
                Phase::Held { guards } if cohort.is_joint() && self.is_held(cohort, now) => {
                    // Whoever re-enters has what it has already: no queue, whatever else waits.
                    cohort.phase = Phase::Held { guards: guards + 1 };
                    let number = cohort.next_number();
                    let leased = Arc::clone(&cohort.leased);
                    return Ok(Begin::Done(Some(Held::new(self, leased, cohort.epoch, number))));
                }
                Phase::Asking(_) | Phase::InLine | Phase::Held { .. } if try_only => {
                    return Ok(Begin::Done(None));
                }
                Phase::Asking(_) | Phase::InLine | Phase::Held { .. } | Phase::Leaving => {
                    let (waiter, waiting) = self.waiter(request, serial, cohort.id, try_only);
                    cohort.push(waiter);
                    return Ok(Begin::Wait(waiting));
                }
            }
        }
        let ask = if try_only { Ask::Try } else { Ask::Queue };
        let leased = self.claim_for(request, serial, now);
        line.push(Cohort::new(serial, request, Arc::clone(&leased), ask));
        Ok(Begin::Ask(leased, ask))
    }

    /// The two ends of waiting.
    fn waiter<'a>(
        self: &'a Arc<Self>,
        request: &Request<'a>,
        serial: u64,
        cohort: u64,
        try_only: bool,
    ) -> (Waiter, Waiting<'a>) {
        let (tell, hear) = oneshot::channel();
        let waiter = Waiter { serial, try_only, max_hold: request.max_hold, tell };
        (waiter, Waiting { engine: self, name: request.name, cohort, hear: Some(hear) })
    }

    fn is_held(&self, cohort: &Cohort, now: Moment) -> bool {
        matches!(cohort.leased.state(now), State::Held | State::Uncertain)
    }

    fn claim_for(&self, request: &Request<'_>, serial: u64, asked: Moment) -> Arc<LeasedClaim> {
        let claim = Claim {
            id: ClaimId::new(self.client, serial),
            name: request.name.clone(),
            share: request.share,
            owner: request.owner.cloned(),
            ttl: request.ttl,
            label: Arc::clone(request.label),
            detached: request.detached,
            writes: request.writes,
            auto_renew: request.auto_renew,
        };
        LeasedClaim::new(claim, serial, request.auto_renew, asked)
    }

    /// Asks for the first time, from the caller's context: if it holds at once, neither a task nor
    /// a seat in the local line is needed.
    fn ask_here<'a>(
        self: &'a Arc<Self>,
        request: &Request<'a>,
        leased: Arc<LeasedClaim>,
        ask: Ask,
        asked: Moment,
    ) -> Begin<'a> {
        let answer = self.backend.enter(&leased.claim, ask).poll_once(|| self.tasks.enter());
        let mut shard = self.table.shard(request.name);
        let cohort = shard.get(request.name).and_then(|line| line.cohort_of(&leased));
        // A shutdown may have taken the cohort away: then the answer is given back.
        let waiting = match (cohort, &answer) {
            (Some(cohort), Ok(Ok(Entered::Held(grant)))) => {
                // The answer is as old as the question.
                leased.holds(*grant, Some(asked), asked, &self.schedule);
                cohort.reserved = false;
                cohort.epoch = grant.epoch;
                cohort.phase = Phase::Held { guards: 1 };
                cohort.take_up(0, request.max_hold, asked, &self.schedule);
                return Begin::Done(Some(Held::new(self, leased, grant.epoch, 0)));
            }
            (Some(cohort), _) => {
                let (waiter, waiting) = self.waiter(request, leased.cohort, cohort.id, ask == Ask::Try);
                cohort.seat(waiter);
                Some((waiting, cohort.take_early()))
            }
            (None, _) => None,
        };
        drop(shard);
        let spawn = |call| {
            self.tasks.spawn(Arc::clone(self).ask_until_answered(Arc::clone(&leased), ask, asked, call))
        };
        match answer {
            Ok(Ok(answer)) => self.entered(&leased, asked, asked, answer),
            Ok(failed) => spawn(Call::now(failed)),
            Err(call) => spawn(call),
        }
        let Some((waiting, early)) = waiting else { return Begin::Closed };
        if let Some(grant) = early {
            self.granted(request.name, leased.claim.id, grant, None, asked);
        }
        Begin::Wait(waiting)
    }

    /// Asks from a task of the engine.
    pub(super) fn ask_later(self: &Arc<Self>, leased: Arc<LeasedClaim>, ask: Ask) {
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            let asked = engine.clock.now();
            let call = engine.backend.enter(&leased.claim, ask);
            engine.ask_until_answered(leased, ask, asked, call).await;
        });
    }

    async fn ask_until_answered(
        self: Arc<Self>,
        mut leased: Arc<LeasedClaim>,
        ask: Ask,
        mut asked: Moment,
        mut call: Call<Entered>,
    ) {
        let limit = call_limit(leased.claim.ttl);
        let mut may_be_in_line = false;
        for tries in 1.. {
            let answer = tokio::time::timeout(limit, call).await;
            let failure = match answer {
                Ok(Ok(answer)) => return self.entered(&leased, asked, self.clock.now(), answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::unknown(format!("no answer within {limit:?}")),
            };
            may_be_in_line |= failure.kind == FailureKind::Unknown;
            let interest = self.interest_in(&leased);
            if interest == Interest::Answered && !self.defects.has(Defect::UsedClaimGivenBack) {
                return;
            }
            if failure.kind == FailureKind::Denied || tries == TRIES || interest != Interest::Waits {
                return self.give_up_asking(&leased, &failure, may_be_in_line);
            }
            tokio::time::sleep(pause_before_retry(tries, leased.claim.ttl)).await;
            if self.defects.has(Defect::NewIdOnRetry)
                && let Some((fresh, _)) = self.replace_claim(&leased)
            {
                leased = fresh;
            }
            asked = self.clock.now();
            call = self.backend.enter(&leased.claim, ask);
        }
    }

    /// Who is interested in the answer to a question by now.
    fn interest_in(&self, leased: &LeasedClaim) -> Interest {
        let mut shard = self.table.shard(&leased.claim.name);
        let cohort = shard.get(&leased.claim.name).and_then(|line| line.cohort_of(leased));
        match cohort {
            Some(cohort) if !matches!(cohort.phase, Phase::Asking(_)) => Interest::Answered,
            Some(cohort) if cohort.is_wanted() => Interest::Waits,
            Some(_) | None => Interest::Nobody,
        }
    }

    /// The store answered.
    fn entered(self: &Arc<Self>, leased: &Arc<LeasedClaim>, asked: Moment, now: Moment, answer: Entered) {
        let claim = &leased.claim;
        let asked = if self.defects.has(Defect::LeaseFromReply) { now } else { asked };
        match answer {
            Entered::Held(grant) => self.granted(&claim.name, claim.id, grant, Some(asked), now),
            Entered::Waiting(place) => {
                let mut shard = self.table.shard(&claim.name);
                let cohort = shard.get(&claim.name).and_then(|line| line.cohort_of(leased));
                let Some(cohort) = cohort.filter(|cohort| cohort.phase != Phase::Leaving) else {
                    drop(shard);
                    // The question arrived after we left.
                    return self.leave_later(claim.name.clone(), claim.id, claim.ttl);
                };
                // A push may have overtaken the answer.
                if !matches!(cohort.phase, Phase::Asking(_)) {
                    return;
                }
                if cohort.is_wanted() || self.defects.has(Defect::PlaceKeptAfterCancel) {
                    cohort.phase = Phase::InLine;
                    leased.waits(place, self.fallback(leased, now), asked, now, &self.schedule);
                } else {
                    cohort.phase = Phase::Leaving;
                    drop(shard);
                    self.give_back_later(Arc::clone(leased));
                }
            }
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

    /// A try was refused: whoever tried hears it, whoever came to stay asks again.
    fn end_tries(self: &Arc<Self>, leased: &Arc<LeasedClaim>) {
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(line) = shard.get(&leased.claim.name) else {
            return;
        };
        let Some(cohort) = line.cohort_of(leased) else {
            return;
        };
        for waiter in cohort.take_tries() {
            // A receiver that is gone hears nothing; there is nothing to give back.
            let _ = waiter.tell.send(Ok(None));
        }
        if cohort.is_wanted() {
            drop(shard);
            self.ask_anew(leased);
        } else {
            let id = cohort.id;
            line.remove(id);
        }
    }

    /// The store cannot be asked: whoever waits hears why.
    fn give_up_asking(self: &Arc<Self>, leased: &Arc<LeasedClaim>, failure: &Failure, may_be_in_line: bool) {
        self.fail_cohort(leased, &Error::failure(self.store(), Some(&leased.claim.name), failure));
        if may_be_in_line {
            self.give_back_later(Arc::clone(leased));
        }
    }

    /// Tells all of a cohort that asks or waits that it is over.
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

    /// A cohort whose claim is over goes on with a new one.
    pub(super) fn ask_anew(self: &Arc<Self>, over: &Arc<LeasedClaim>) {
        if let Some((leased, ask)) = self.replace_claim(over) {
            self.ask_later(leased, ask);
        }
    }

    fn replace_claim(self: &Arc<Self>, over: &Arc<LeasedClaim>) -> Option<(Arc<LeasedClaim>, Ask)> {
        let now = self.clock.now();
        let mut shard = self.table.shard(&over.claim.name);
        let cohort = shard.get(&over.claim.name)?.cohort_of(over)?;
        let claim = Claim { id: ClaimId::new(self.client, self.next_serial()), ..(*over.claim).clone() };
        let leased = LeasedClaim::new(claim, cohort.id, over.auto_renew, now);
        let ask = cohort.ask();
        cohort.leased = Arc::clone(&leased);
        cohort.phase = Phase::Asking(ask);
        Some((leased, ask))
    }
}

/// A task that waits. Dropped, it takes itself out of the local line.
#[derive(Debug)]
struct Waiting<'a> {
    engine: &'a Arc<Engine>,
    name: &'a Name,
    cohort: u64,
    hear: Option<oneshot::Receiver<Outcome>>,
}

impl Waiting<'_> {
    async fn with_patience(mut self, patience: Patience) -> Outcome {
        match patience {
            Patience::Forever | Patience::Try => self.outcome().await,
            Patience::For(limit) => match tokio::time::timeout(limit, self.outcome()).await {
                Ok(outcome) => outcome,
                // The grant may have come at this very moment.
                Err(_) => self.give_up().unwrap_or(Ok(None)),
            },
        }
    }

    async fn outcome(&mut self) -> Outcome {
        let Some(hear) = &mut self.hear else {
            return Ok(None);
        };
        // Told already, as a store in this process does: no need to arrange for being woken.
        let outcome = match hear.try_recv() {
            Err(TryRecvError::Empty) => pin!(hear).await.ok(),
            told => told.ok(),
        };
        self.hear = None;
        // Every waiter is told something before it is dropped, except when the runtime is torn down.
        outcome.unwrap_or_else(|| Err(Error::closed(self.name)))
    }

    /// Goes away. Says what came in the meantime, if anything did.
    fn give_up(&mut self) -> Option<Outcome> {
        let mut hear = self.hear.take()?;
        let mut shard = self.engine.table.shard(self.name);
        // Outcomes are sent under this lock: either it is there now or it never comes.
        hear.close();
        if let Ok(outcome) = hear.try_recv() {
            return Some(outcome);
        }
        let line = shard.get(self.name)?;
        let index = line.position(self.cohort)?;
        let cohort = &mut line.cohorts[index];
        cohort.forget_one();
        let keeps = self.engine.defects.has(Defect::PlaceKeptAfterCancel);
        if !cohort.is_wanted() && cohort.phase == Phase::InLine && !keeps {
            cohort.phase = Phase::Leaving;
            let leased = Arc::clone(&cohort.leased);
            drop(shard);
            self.engine.give_back_later(leased);
        }
        None
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // A guard that came too late is dropped here, outside the lock, and so given back.
        drop(self.give_up());
    }
}
