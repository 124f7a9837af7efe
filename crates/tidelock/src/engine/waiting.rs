//! A caller that waits for its guard: how long, and what happens when it goes away.

use std::{pin::pin, sync::Arc};

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{
    Engine,
    local::{Outcome, Phase, Waiter},
    release::Gives,
    request::{Patience, Request},
};
use crate::{backend::Failure, error::Error, events::WaitMeter, model::name::Name};

/// A task that waits. Dropped, it takes itself out of the local line.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    engine: &'a Arc<Engine>,
    name: &'a Name,
    cohort: u64,
    hear: Option<oneshot::Receiver<Outcome>>,
    /// Who only tries does not wait, though it takes a moment.
    _meter: Option<WaitMeter>,
}

impl<'a> Waiting<'a> {
    /// The two ends of waiting: one for the local line, one for the caller.
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        request: &Request<'a>,
        serial: u64,
        cohort: u64,
        try_only: bool,
    ) -> (Waiter, Self) {
        let (tell, hear) = oneshot::channel();
        let impatient = try_only || request.fail_fast;
        let waiter = Waiter { serial, try_only, impatient, max_hold: request.max_hold, tell };
        let meter = (!try_only).then(|| engine.events.wait_meter(request.name));
        (waiter, Self { engine, name: request.name, cohort, hear: Some(hear), _meter: meter })
    }

    pub(super) async fn with_patience(mut self, patience: Patience) -> Outcome {
        match patience {
            Patience::Forever | Patience::Try => self.outcome().await,
            Patience::For(limit) => match tokio::time::timeout(limit, self.outcome()).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let trouble = self.trouble();
                    // The grant may have come at this very moment.
                    self.give_up().unwrap_or_else(|| match trouble {
                        None => Ok(None),
                        Some(failure) => {
                            Err(Error::failure(self.engine.store(), Some(self.name), &failure).after(limit))
                        }
                    })
                }
            },
        }
    }

    /// Why the store does not say how this wait stands, if it does not.
    fn trouble(&self) -> Option<Failure> {
        let mut shard = self.engine.table.shard(self.name);
        let line = shard.get(self.name)?;
        let cohort = &line.cohorts[line.position(self.cohort)?];
        match cohort.phase() {
            Phase::Asking(_) | Phase::InLine => cohort.leased.trouble(),
            // It waits for a task of this process.
            Phase::Held { .. } | Phase::Leaving => None,
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
        outcome.unwrap_or_else(|| Err(self.engine.why_closed(self.name)))
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
        let is_abandoned = !cohort.is_wanted() && !self.engine.flaws.keep_abandoned_places();
        if is_abandoned && cohort.phase() == Phase::InLine {
            cohort.set_phase(Phase::Leaving);
            let leased = Arc::clone(&cohort.leased);
            drop(shard);
            self.engine.give_back_later(leased, Gives::Place);
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
