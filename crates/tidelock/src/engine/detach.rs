//! Holds that outlive their process: left behind, and taken up again by their ticket.

use std::{sync::Arc, time::Duration};

use super::{Engine, lease::State, leased::LeasedClaim, local::Phase};
use crate::{
    backend::{Call, Claim, Leave, Left, Standing},
    error::{Error, LossReason, Result},
};

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
        let renew = || self.backend.renew(std::slice::from_ref(claim));
        let (standings, _) = self.ask_about(claim, renew).await?;
        match standings.first() {
            Some(Standing::Held(_)) => Ok(()),
            _ => Err(self.ticket_ended(claim)),
        }
    }

    /// Gives a hold back that somebody left behind.
    pub(crate) async fn release_left(&self, claim: &Arc<Claim>) -> Result<()> {
        let leave = || self.backend.leave(&claim.name, claim.id, Leave::Done);
        match self.ask_about(claim, leave).await? {
            (Left::Absent, false) => Err(self.ticket_ended(claim)),
            // It was there, or a question of ours whose answer was lost removed it.
            (Left::Removed, _) | (Left::Absent, true) => Ok(()),
        }
    }

    fn ticket_ended(&self, claim: &Claim) -> Error {
        Error::lost(self.store(), &claim.name, LossReason::Gone, claim.ttl, Duration::ZERO)
    }

    /// Asks about a hold that this client does not keep, and says whether an earlier question may
    /// have arrived.
    async fn ask_about<T: Unpin>(
        &self,
        claim: &Claim,
        ask: impl FnMut() -> Call<T> + Send,
    ) -> Result<(T, bool)> {
        let asking = async {
            let answer = self.ask_three_times(claim.ttl, ask).await;
            answer.map_err(|failure| Error::failure(self.store(), Some(&claim.name), &failure))
        };
        self.while_running(Some(&claim.name), asking).await
    }
}
