//! Holds that outlive their guards: left behind for a time, or to be taken up again by their ticket.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{Engine, lease::State, leased::LeasedClaim, local::Phase};
use crate::{
    backend::{Call, Claim, Leave, Left, Standing},
    clock::Moment,
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
            && matches!(cohort.phase(), Phase::Held { .. })
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

    /// Keeps a hold that was left behind until this time, and gives it back then. The answer says whether it was
    /// still held when its guard let go.
    ///
    /// If the process ends before, nobody gives it back: its lease, which is as long as the time for which others are
    /// kept out, ends then or later.
    pub(super) fn keep_until(
        self: &Arc<Self>,
        leased: &LeasedClaim,
        until: Moment,
    ) -> oneshot::Receiver<Result<()>> {
        let (engine, claim) = (Arc::clone(self), Arc::clone(&leased.claim));
        let (tell, hear) = oneshot::channel();
        self.tasks.spawn(async move {
            // The lease of a claim that waited in line began before its grant: renewed, it covers the rest.
            let renewed = engine.renew_left(&claim).await;
            let is_gone = renewed.as_ref().is_err_and(Error::is_lost);
            // Nobody listens if the guard was dropped.
            let _ = tell.send(renewed);
            if !is_gone {
                let this = Arc::clone(&engine);
                // Not among the calls under way: nobody waits for it where a program ends.
                engine.tasks.spawn_forever(async move { this.give_back_at(&claim, until).await });
            }
        });
        hear
    }

    /// A client that is shut down leaves it to its lease.
    async fn give_back_at(&self, claim: &Claim, until: Moment) {
        let time_has_come = async {
            let mut alarm = self.alarm();
            while self.clock.now() < until {
                alarm.sleep_towards(until).await;
            }
        };
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {}
            () = time_has_come => {
                self.tell_release(claim);
                self.leave_until_lapsed(&claim.name, claim.id, claim.ttl).await;
            }
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
        self.tell_release(claim);
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
    async fn ask_about<T: Send + Unpin + 'static>(
        &self,
        claim: &Claim,
        mut ask: impl FnMut() -> Call<T> + Send,
    ) -> Result<(T, bool)> {
        let asking = async {
            let answer = self.ask_three_times(claim.ttl, || self.tasks.attend(ask())).await;
            answer.map_err(|failure| Error::failure(self.store(), Some(&claim.name), &failure))
        };
        self.while_running(Some(&claim.name), asking).await
    }
}
