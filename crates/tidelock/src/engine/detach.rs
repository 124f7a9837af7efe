//! Holds that outlive their process: left behind, and taken up again by their ticket.

use std::{sync::Arc, time::Duration};

use super::{
    Engine,
    lease::{State, call_limit, pause_before_retry},
    leased::LeasedClaim,
    local::Phase,
};
use crate::{
    backend::{Call, Claim, Failure, Leave, Standing},
    error::{Error, LossReason, Result},
};

/// How often a store is asked before it counts as unavailable.
const TRIES: u32 = 3;

impl Engine {
    /// Forgets about a hold without giving it back.
    pub(super) fn leave_behind(self: &Arc<Self>, leased: &Arc<LeasedClaim>) -> Result<()> {
        let name = &leased.claim.name;
        let mut shard = self.table.shard(name);
        let state = leased.end(self.clock.now(), &self.schedule);
        if let Some(line) = shard.get(name)
            && let Some(cohort) = line.cohort_of(leased)
            && matches!(cohort.phase, Phase::Held { .. })
        {
            let id = cohort.id;
            line.remove(id);
        }
        drop(shard);
        match state {
            State::Held | State::Uncertain => Ok(()),
            State::Lost(reason) => Err(self.loss_of(leased, reason)),
            State::Ended => Err(self.loss_of(leased, LossReason::Gone)),
        }
    }

    /// Renews a hold that somebody left behind.
    pub(crate) async fn renew_left(&self, claim: &Arc<Claim>) -> Result<()> {
        let standings = self.ask_about(claim, || self.backend.renew(std::slice::from_ref(claim))).await?;
        match standings.first() {
            Some(Standing::Held(_)) => Ok(()),
            _ => Err(Error::lost(self.store(), &claim.name, LossReason::Gone, claim.ttl, Duration::ZERO)),
        }
    }

    /// Gives a hold back that somebody left behind.
    pub(crate) async fn release_left(&self, claim: &Arc<Claim>) -> Result<()> {
        // Leaving says nothing about whether there was anything to leave.
        self.renew_left(claim).await?;
        self.ask_about(claim, || self.backend.leave(&claim.name, claim.id, Leave::Done)).await
    }

    async fn ask_about<T: Unpin>(&self, claim: &Claim, ask: impl Fn() -> Call<T> + Send + Sync) -> Result<T> {
        let limit = call_limit(claim.ttl);
        let mut last = Failure::unknown("not tried");
        for round in 0..TRIES {
            if round > 0 {
                tokio::time::sleep(pause_before_retry(round, claim.ttl)).await;
            }
            match tokio::time::timeout(limit, ask()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => last = failure,
                Err(_) => last = Failure::unknown(format!("no answer within {limit:?}")),
            }
        }
        Err(Error::failure(self.store(), Some(&claim.name), &last))
    }
}
