//! Acquiring: stand in the local line, and ask the store for the first time.
//!
//! The question runs in a task of the engine and its answer goes to the local line ([`answer`](super::answer)).
//! The caller's future only waits ([`waiting`](super::waiting)): dropped at any moment, it leaves nothing
//! behind. Only the first poll of a question happens in the caller's own context, because a store in
//! this process answers at once and a driver can send without a task switch.

use std::{sync::Arc, time::Duration};

use tracing::Instrument;

use super::{
    Engine,
    held::Held,
    lease::State,
    leased::LeasedClaim,
    local::{Cohort, LocalLine, Phase},
    request::{Patience, Request},
    waiting::Waiting,
};
use crate::{
    backend::{Ask, Call, Claim, ClaimId, Entered, Scope},
    clock::Moment,
    error::{Error, Result},
    model::name::Name,
};

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

impl Engine {
    /// Acquires, or says `None` when patience ran out.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &Request<'_>,
        patience: Patience,
    ) -> Result<Option<Held>> {
        let (began, mut left) = (self.clock.now(), patience);
        let mut asked = began;
        let outcome = loop {
            // A store in this process answers at once: a loop over its locks must let others run too.
            tokio::task::coop::consume_budget().await;
            let begun = match self.begin(request, patience == Patience::Try, asked) {
                Ok(Begin::Ask(leased, ask)) => Ok(self.ask_here(request, leased, ask, asked)),
                begun => begun,
            };
            let outcome = match begun {
                Ok(Begin::Wait(waiting)) => {
                    let span = self.events.waiting(request.name);
                    waiting.with_patience(left).instrument(span).await
                }
                Ok(Begin::Done(outcome)) => break Ok(outcome),
                Ok(Begin::Closed) => break Err(self.why_closed(request.name)),
                Ok(Begin::Ask(..)) => unreachable!("it was asked above"),
                Err(error) => break Err(error),
            };
            match outcome {
                // The process may have been stopped, or the client shut down, between the moment at which this task was
                // given the lock and now.
                Ok(Some(held)) if held.came_too_late() => drop(held),
                outcome => break outcome,
            }
            asked = self.clock.now();
            left = patience.after(asked.since(began));
        };
        self.events.acquired(request.name, outcome.as_ref().ok().map(Option::is_some), || {
            self.clock.now().since(began)
        });
        outcome
    }

    /// What to say when patience ran out.
    pub(crate) async fn timed_out(self: &Arc<Self>, name: &Name, waited: Duration) -> Error {
        let look = self.backend.look(&Scope::Names(vec![name.clone()]));
        let seen = tokio::time::timeout(Duration::from_millis(500), self.tasks.attend(look)).await;
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
        // Looked at under the lock of the shard: a shutdown walks over all shards afterwards.
        if self.is_closed() {
            return Err(self.why_closed(request.name));
        }
        let line = shard.get_or_make(request.name, LocalLine::is_idle);
        let serial = self.next_serial();
        if let Some(cohort) = line.cohort_for(request) {
            if (try_only || request.fail_fast)
                && matches!(cohort.phase(), Phase::Asking(_))
                && let Some(failure) = cohort.leased.lasting_trouble()
            {
                // Others are patient; what the store said to them goes for us.
                return Err(Error::failure(self.store(), Some(request.name), &failure));
            }
            match cohort.phase() {
                Phase::Held { guards } if cohort.is_joint() && self.is_held(cohort, now) => {
                    // An owner that re-enters holds already: no queue, no matter who else waits.
                    cohort.set_phase(Phase::Held { guards: guards + 1 });
                    let number = cohort.next_number();
                    let leased = Arc::clone(&cohort.leased);
                    return Ok(Begin::Done(Some(Held::new(self, leased, cohort.epoch, number))));
                }
                Phase::Asking(_) | Phase::InLine | Phase::Held { .. } if try_only => {
                    return Ok(Begin::Done(None));
                }
                Phase::Asking(_) | Phase::InLine | Phase::Held { .. } | Phase::Leaving => {
                    let (waiter, waiting) = Waiting::new(self, request, serial, cohort.id, try_only);
                    cohort.push(waiter);
                    return Ok(Begin::Wait(waiting));
                }
            }
        }
        let ask = if try_only { Ask::Try } else { Ask::Queue };
        let leased = self.claim_for(request, serial, now);
        let meter = self.events.hold_meter(request.name);
        line.push(Cohort::new(serial, request, Arc::clone(&leased), ask, meter));
        Ok(Begin::Ask(leased, ask))
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
        if let Ok(Ok(Entered::Held(grant))) = &answer {
            let held = self.granted_at_once(request, leased, *grant, asked);
            return held.map_or(Begin::Closed, |held| Begin::Done(Some(held)));
        }
        let mut shard = self.table.shard(request.name);
        let cohort = shard.get(request.name).and_then(|line| line.cohort_of(&leased));
        // A shutdown may have taken the cohort away: then what was asked for is given back.
        let seat = cohort.map(|cohort| {
            let (waiter, waiting) = Waiting::new(self, request, leased.cohort, cohort.id, ask == Ask::Try);
            cohort.seat(waiter);
            (waiting, cohort.take_early())
        });
        drop(shard);
        let id = leased.claim.id;
        let spawn =
            |leased, call| self.tasks.spawn(Arc::clone(self).ask_until_answered(leased, ask, asked, call));
        match answer {
            Ok(Ok(answer)) => self.entered(&leased, asked, asked, answer),
            Ok(failed) => spawn(leased, Call::now(failed)),
            Err(call) => spawn(leased, call),
        }
        let Some((waiting, early)) = seat else { return Begin::Closed };
        if let Some(grant) = early {
            // As of now: this process may have been stopped since it asked, and the lease of the grant have ended.
            self.granted(request.name, id, grant, None, self.clock.now());
        }
        Begin::Wait(waiting)
    }
}
