//! Asking the store again: every loop over a question that was not answered.
//!
//! | question | asked until | with the same id |
//! |---|---|---|
//! | an enter | it is answered or refused, or nobody waits any more | while its lease runs |
//! | a release, a ticket | it is answered, three times at most | yes |
//! | a leave that nobody waits for | it is answered, or the claim has lapsed | yes |
//!
//! A question without an answer may have arrived: so it is asked again with the same id. Of those who
//! wait, tries and those who want to fail fast hear of a failure after three questions; for all others it
//! goes on. How long the pauses are is in [`backoff`]. Renewals are asked again by their lease.

use std::{sync::Arc, time::Duration};

use super::{
    Engine,
    backoff::{self, call_limit},
    lease::State,
    leased::LeasedClaim,
    local::Phase,
    release::Gives,
};
use crate::{
    backend::{Ask, Call, Claim, ClaimId, Entered, Failure, FailureKind},
    clock::Moment,
    error::Error,
};

/// How often a question that nobody is patient for is asked: a release, a renewal by ticket, a try.
const TRIES: u32 = 3;

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

/// The answer to one question, or why there is none in time.
async fn answer_within<T: Unpin>(limit: Duration, call: Call<T>) -> Result<T, Failure> {
    let answer = tokio::time::timeout(limit, call).await;
    answer.unwrap_or_else(|_| Err(Failure::unknown(format!("no answer within {limit:?}"))))
}

impl Engine {
    /// Waits for the answer to an enter, and asks again until there is one that somebody wants.
    pub(super) async fn ask_until_answered(
        self: Arc<Self>,
        mut leased: Arc<LeasedClaim>,
        mut ask: Ask,
        mut asked: Moment,
        mut call: Call<Entered>,
    ) {
        let limit = call_limit(leased.claim.ttl);
        let mut may_be_in_line = false;
        for tries in 1.. {
            let failure = match answer_within(limit, call).await {
                Ok(answer) => return self.entered(&leased, asked, self.clock.now(), answer),
                Err(failure) => failure,
            };
            may_be_in_line |= failure.kind == FailureKind::Unknown;
            let interest = self.interest_in(&leased);
            if interest == Interest::Answered && !self.flaws.give_back_claims_in_use() {
                return;
            }
            let goes_on = failure.kind != FailureKind::Denied && interest == Interest::Waits;
            leased.note_trouble(&failure, tries >= TRIES);
            if !goes_on || tries >= TRIES && !self.is_patient(&leased, &failure) {
                return self.give_up_asking(&leased, &failure, may_be_in_line);
            }
            self.pause(tries, &leased.claim, &failure, may_be_in_line).await;
            // Long enough for a push to come, or for everybody to go.
            match self.interest_in(&leased) {
                Interest::Waits => {}
                Interest::Answered => return,
                Interest::Nobody => return self.give_up_asking(&leased, &failure, may_be_in_line),
            }
            asked = self.clock.now();
            let has_expired = !matches!(leased.state(asked), State::Held | State::Uncertain);
            if has_expired || self.flaws.change_ids_on_retry() {
                // Of the questions so far any may have arrived, and a push would have to count from the
                // first. When that lease has expired, another id begins another one.
                let Some((fresh, fresh_ask)) = self.replace_claim(&leased) else {
                    return self.give_up_asking(&leased, &failure, may_be_in_line);
                };
                if may_be_in_line && has_expired {
                    let Claim { name, id, ttl, .. } = &*leased.claim;
                    self.leave_later(name.clone(), *id, *ttl);
                    may_be_in_line = false;
                }
                (leased, ask) = (fresh, fresh_ask);
            } else if tries >= TRIES {
                // Those who only tried are gone.
                ask = Ask::Queue;
            }
            call = self.backend.enter(&leased.claim, ask);
        }
    }

    /// Asks until there is an answer, three times at most. Says with it whether an earlier question
    /// may have arrived.
    pub(super) async fn ask_three_times<T: Unpin>(
        &self,
        ttl: Duration,
        mut ask: impl FnMut() -> Call<T> + Send,
    ) -> Result<(T, bool), Failure> {
        let limit = call_limit(ttl);
        let mut may_have_arrived = false;
        for tries in 1.. {
            let failure = match answer_within(limit, ask()).await {
                Ok(answer) => return Ok((answer, may_have_arrived)),
                Err(failure) if tries >= TRIES => return Err(failure),
                Err(failure) => failure,
            };
            may_have_arrived |= failure.kind == FailureKind::Unknown;
            tokio::time::sleep(backoff::at_first(tries, ttl)).await;
        }
        unreachable!("the last try was answered or failed")
    }

    /// Asks until there is an answer, or until what it is about has lapsed because nobody renews it.
    pub(super) async fn ask_until_lapsed<T: Unpin>(
        &self,
        ttl: Duration,
        mut ask: impl FnMut() -> Call<T> + Send,
    ) {
        let lapsed = self.clock.now() + ttl;
        while self.ask_three_times(ttl, &mut ask).await.is_err() && self.clock.now() < lapsed {
            tokio::time::sleep(backoff::until_lapsed(ttl)).await;
        }
    }

    /// Waits before an enter is asked again: shortly at first, then longer and longer. A shutdown
    /// ends it.
    async fn pause(&self, tries: u32, claim: &Claim, failure: &Failure, may_be_in_line: bool) {
        let pause = if tries < TRIES {
            backoff::at_first(tries, claim.ttl)
        } else {
            self.events.store_failed(&claim.name, failure);
            let pause = backoff::pause(tries - TRIES + 1, claim.id.client().get() ^ claim.id.serial());
            // A claim that may be in line must not expire there while its client pauses.
            if may_be_in_line { pause.min(claim.ttl / 16) } else { pause }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.closing.cancelled() => {}
        }
    }

    /// Who is interested in the answer to a question by now.
    fn interest_in(&self, leased: &LeasedClaim) -> Interest {
        let mut shard = self.table.shard(&leased.claim.name);
        let cohort = shard.get(&leased.claim.name).and_then(|line| line.cohort_of(leased));
        match cohort {
            Some(cohort) if !matches!(cohort.phase(), Phase::Asking(_)) => Interest::Answered,
            Some(cohort) if cohort.is_wanted() => Interest::Waits,
            Some(_) | None => Interest::Nobody,
        }
    }

    /// Whether somebody waits who is patient. Those who are not hear why the store failed.
    fn is_patient(&self, leased: &LeasedClaim, failure: &Failure) -> bool {
        if self.flaws.ignore_patience() {
            return false;
        }
        let mut shard = self.table.shard(&leased.claim.name);
        let Some(cohort) = shard.get(&leased.claim.name).and_then(|line| line.cohort_of(leased)) else {
            return false;
        };
        let impatient = cohort.take_impatient();
        if !impatient.is_empty() {
            let error = Error::failure(self.store(), Some(&leased.claim.name), failure);
            for waiter in impatient {
                // A receiver that is gone hears nothing; there is nothing to give back.
                let _ = waiter.tell.send(Err(error.clone()));
            }
        }
        cohort.is_wanted()
    }

    /// The store cannot be asked: all who wait hear why.
    fn give_up_asking(self: &Arc<Self>, leased: &Arc<LeasedClaim>, failure: &Failure, may_be_in_line: bool) {
        self.fail_cohort(leased, &Error::failure(self.store(), Some(&leased.claim.name), failure));
        if may_be_in_line {
            self.give_back_later(Arc::clone(leased), Gives::Place);
        }
    }

    /// A cohort whose claim has ended asks with a new one, from a task of the engine.
    pub(super) fn ask_anew(self: &Arc<Self>, ended: &Arc<LeasedClaim>) {
        let Some((leased, ask)) = self.replace_claim(ended) else { return };
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            let asked = engine.clock.now();
            let call = engine.backend.enter(&leased.claim, ask);
            engine.ask_until_answered(leased, ask, asked, call).await;
        });
    }

    fn replace_claim(self: &Arc<Self>, ended: &Arc<LeasedClaim>) -> Option<(Arc<LeasedClaim>, Ask)> {
        let now = self.clock.now();
        let mut shard = self.table.shard(&ended.claim.name);
        let cohort = shard.get(&ended.claim.name)?.cohort_of(ended)?;
        let claim = Claim { id: ClaimId::new(self.client, self.next_serial()), ..(*ended.claim).clone() };
        let leased = LeasedClaim::new(claim, cohort.id, ended.auto_renew, now);
        leased.keep_trouble_of(ended);
        let ask = cohort.ask();
        cohort.leased = Arc::clone(&leased);
        cohort.set_phase(Phase::Asking(ask));
        Some((leased, ask))
    }
}
