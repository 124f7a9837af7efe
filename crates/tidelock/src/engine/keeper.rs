//! The keeper: one task that renews all claims of a client, in batches.

use std::sync::{Arc, Weak};

use super::{
    Engine,
    backoff::call_limit,
    lease::State,
    leased::{LeasedClaim, Look},
    schedule::Schedule,
};
use crate::{
    backend::{Failure, Place, Standing},
    clock::{Alarm, Moment},
    error::LossReason,
};

/// The keeper's task.
pub(super) async fn keep(engine: Weak<Engine>, schedule: Arc<Schedule<LeasedClaim>>, mut alarm: Alarm) {
    while schedule.sleep(&mut alarm).await {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.look_after_claims();
    }
}

impl Engine {
    fn look_after_claims(self: &Arc<Self>) {
        let now = self.clock.now();
        for leased in self.schedule.take_grown_up(now) {
            leased.grow_up(now, &self.schedule);
        }
        let mut renew = Vec::new();
        for (key, leased) in self.schedule.take_due(now) {
            match leased.look(key, now, &self.schedule) {
                Look::Renew => renew.push(leased),
                Look::Lost(_) if self.flaws.ignore_deadlines() => {}
                Look::Lost(reason) => self.lost(&leased, reason),
                Look::Later => {}
            }
        }
        let size = self.backend.abilities().renew_batch.max(1);
        let mut renew = renew.into_iter();
        while renew.len() > 0 {
            let batch: Vec<_> = renew.by_ref().take(size).collect();
            self.tasks.spawn(Arc::clone(self).renew_batch(batch, now));
        }
    }

    async fn renew_batch(self: Arc<Self>, batch: Vec<Arc<LeasedClaim>>, asked: Moment) {
        let claims: Vec<_> = batch.iter().map(|leased| Arc::clone(&leased.claim)).collect();
        let limit = claims.iter().map(|claim| call_limit(claim.ttl)).min().unwrap_or_default();
        let answer = match tokio::time::timeout(limit, self.backend.renew(&claims)).await {
            Ok(Ok(standings)) if standings.len() != claims.len() => {
                Err(Failure::unknown(format!("{} answers to {} renewals", standings.len(), claims.len())))
            }
            Ok(answer) => answer,
            Err(_) => Err(Failure::unknown(format!("no answer to a renewal within {limit:?}"))),
        };
        match answer {
            Ok(standings) => {
                self.events.renewed(batch.len(), || self.clock.now().since(asked));
                for (leased, standing) in batch.iter().zip(standings) {
                    self.stands(leased, standing, asked);
                }
            }
            Err(failure) => {
                self.events.renewal_failed(batch.len(), &failure);
                let now = self.clock.now();
                for leased in &batch {
                    leased.unanswered(Some(&failure), now, &self.schedule);
                }
            }
        }
    }

    /// The store says how a claim stands, in answer to what was asked at `asked`.
    fn stands(self: &Arc<Self>, leased: &Arc<LeasedClaim>, standing: Standing, asked: Moment) {
        let now = self.clock.now();
        let asked = self.flaws.lease_start(asked, now);
        let held = leased.grant();
        match (held, standing) {
            (None, Standing::Held(_)) if self.flaws.rely_on_pushes() => {
                leased.waits(Place { ahead: 0, lapse_in: None }, None, asked, now, &self.schedule);
            }
            (None, Standing::Waiting(place)) => {
                leased.waits(place, self.fallback(leased, place, now), asked, now, &self.schedule);
            }
            (None, Standing::Held(grant)) => {
                self.granted(&leased.claim.name, leased.claim.id, grant, Some(asked), now)
            }
            (None, Standing::Gone) => self.lost(leased, LossReason::Gone),
            (_, Standing::Unknown) => {
                let failure = Failure::unknown("the store does not say how the claim stands");
                leased.unanswered(Some(&failure), now, &self.schedule);
            }
            (Some((held, _)), Standing::Held(grant)) if held.epoch == grant.epoch => {
                let (ttl, silent) = leased.silence(now);
                let state = leased.renewed(grant, asked, now, &self.schedule);
                let left = ttl.saturating_sub(silent);
                if left < ttl / 3 && matches!(state, State::Held | State::Uncertain) {
                    self.events.renewed_late(&leased.claim.name, left);
                }
            }
            // The answer was under way before the grant was: old news.
            (Some((held, since)), Standing::Waiting(_)) if asked <= since => {
                leased.renewed(held, asked, now, &self.schedule);
            }
            (Some(_), Standing::Gone) if self.flaws.ignore_gone() => {
                leased.unanswered(None, now, &self.schedule);
            }
            // Another epoch is another grant: somebody else may have held in between.
            (Some(_), _) => self.lost(leased, LossReason::Gone),
        }
    }
}
