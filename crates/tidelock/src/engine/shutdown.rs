//! Shutting a client down: nothing new, an end for those who wait, time for those who hold.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{Engine, leased::LeasedClaim, local::Phase, release::Gives};
use crate::error::{Error, LossReason};

impl Engine {
    /// Takes nothing new, gives back what waits, waits for guards and calls, and gives back by
    /// force what is still held after `grace`. Says how many guards were cut off.
    pub(crate) async fn shutdown(self: &Arc<Self>, grace: Duration) -> usize {
        self.closed.store(true, Ordering::SeqCst);
        let deadline = self.clock.now() + grace;
        self.end_waiting();
        self.closing.cancel();
        while !self.held_claims().is_empty() && self.clock.now() < deadline {
            tokio::time::sleep(Duration::from_millis(5).min(deadline.since(self.clock.now()))).await;
        }
        let cut_off = self.held_claims();
        for leased in &cut_off {
            self.lost(leased, LossReason::Closed);
        }
        let rest = deadline.since(self.clock.now()).max(Duration::from_secs(1));
        if !self.tasks.drain(rest).await {
            self.events.shutdown_incomplete();
        }
        cut_off.len()
    }

    /// Tells all who wait that the client is closed.
    pub(super) fn end_waiting(self: &Arc<Self>) {
        for (leased, phase) in self.table.claims() {
            let error = self.why_closed(&leased.claim.name);
            match phase {
                // Its answer finds no cohort and is given back.
                Phase::Asking(_) | Phase::Leaving => self.fail_cohort(&leased, &error),
                Phase::InLine => {
                    self.fail_cohort(&leased, &error);
                    self.give_back_later(leased, Gives::Place);
                }
                Phase::Held { .. } => self.fail_waiters(&leased, &error),
            }
        }
    }

    fn fail_waiters(&self, leased: &LeasedClaim, error: &Error) {
        let mut shard = self.table.shard(&leased.claim.name);
        if let Some(cohort) = shard.get(&leased.claim.name).and_then(|line| line.cohort_of(leased)) {
            while let Some(waiter) = cohort.pop() {
                let _ = waiter.tell.send(Err(error.clone()));
            }
        }
    }

    pub(super) fn held_claims(&self) -> Vec<Arc<LeasedClaim>> {
        let claims = self.table.claims().into_iter();
        claims.filter(|(_, phase)| matches!(phase, Phase::Held { .. })).map(|(leased, _)| leased).collect()
    }
}
