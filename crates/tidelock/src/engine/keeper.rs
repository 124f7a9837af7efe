//! The keeper: one task that renews all claims of a client, in batches.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    Engine,
    lease::call_limit,
    leased::{Cell, LeasedClaim, Look},
};
use crate::{
    backend::{Failure, Place, Standing},
    clock::{Clock, Moment},
    defect::Defect,
    error::LossReason,
    events,
};

/// How far ahead the keeper looks for claims that may ride along in a batch.
const LOOK_AHEAD: Duration = Duration::from_millis(2_500);

/// How long the keeper stays half awake when claims come and go.
const NAP: Duration = Duration::from_secs(1);

/// When which claim has to be looked at. A claim is in it at most once.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the latest moment, then by serial number.
    claims: BTreeMap<(Moment, u64), Entry>,
    /// Until when the keeper sleeps; whoever comes earlier wakes it.
    sleeps_until: Option<Moment>,
    /// Whether anything came since the keeper last fell asleep.
    used: bool,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    early: Moment,
    leased: Arc<LeasedClaim>,
}

impl Schedule {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a claim where its lease says, taking it from where it was.
    pub(super) fn put(&self, leased: &Arc<LeasedClaim>, cell: &mut Cell, now: Moment) {
        let due = leased.due(cell, now);
        let serial = leased.claim.id.serial();
        let mut inner = self.inner();
        if let Some(before) = cell.scheduled.take() {
            inner.claims.remove(&(before, serial));
        }
        let Some((early, late)) = due else { return };
        cell.scheduled = Some(late);
        inner.used = true;
        inner.claims.insert((late, serial), Entry { early, leased: Arc::clone(leased) });
        if inner.sleeps_until.is_none_or(|until| late < until) {
            inner.sleeps_until = Some(late);
            drop(inner);
            self.wake.notify_one();
        }
    }

    /// Takes a claim out.
    pub(super) fn take(&self, leased: &Arc<LeasedClaim>, cell: &mut Cell) {
        if let Some(before) = cell.scheduled.take() {
            self.inner().claims.remove(&(before, leased.claim.id.serial()));
        }
    }

    /// All claims that have to be looked at now, and those that may ride along.
    fn take_due(&self, now: Moment) -> Vec<(Moment, Arc<LeasedClaim>)> {
        let mut inner = self.inner();
        if inner.claims.first_key_value().is_none_or(|(key, _)| key.0 > now) {
            return Vec::new();
        }
        let ahead = (now + LOOK_AHEAD, u64::MAX);
        let keys: Vec<_> = inner
            .claims
            .range(..=ahead)
            .filter(|(key, entry)| key.0 <= now || entry.early <= now)
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter()
            .filter_map(|key| inner.claims.remove(&key).map(|entry| (key.0, entry.leased)))
            .collect()
    }

    /// Sleeps until something is due. Says whether to go on.
    async fn sleep(&self, clock: &Clock) -> bool {
        let next = {
            let mut inner = self.inner();
            if inner.closed {
                return false;
            }
            let first = inner.claims.first_key_value().map(|(key, _)| key.0);
            // A program that takes and gives back locks all the time leaves nothing to wait for
            // each time we look: nap, so that not every claim has to wake us.
            let nap = std::mem::take(&mut inner.used).then(|| clock.now() + NAP);
            inner.sleeps_until = first.or(nap);
            inner.sleeps_until
        };
        let due = async {
            match next {
                Some(next) => clock.sleep_towards(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.wake.notified() => {}
            () = due => {}
        }
        true
    }

    /// Ends the keeper.
    pub(super) fn close(&self) {
        self.inner().closed = true;
        self.wake.notify_one();
    }
}

/// The keeper's task.
pub(super) async fn keep(engine: Weak<Engine>, schedule: Arc<Schedule>, clock: Clock) {
    while schedule.sleep(&clock).await {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.look_after_claims();
    }
}

impl Engine {
    fn look_after_claims(self: &Arc<Self>) {
        let now = self.clock.now();
        let mut renew = Vec::new();
        for (key, leased) in self.schedule.take_due(now) {
            match leased.look(key, now, &self.schedule) {
                Look::Renew => renew.push(leased),
                Look::Lost(_) if self.defects.has(Defect::DeadlineIgnored) => {}
                Look::Lost(reason) => self.lost(&leased, reason),
                Look::Later => {}
            }
        }
        let size = self.backend.abilities().renew_batch.max(1);
        while !renew.is_empty() {
            let rest = renew.split_off(renew.len().min(size));
            let batch = std::mem::replace(&mut renew, rest);
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
                events::renewed(self.store(), batch.len());
                for (leased, standing) in batch.iter().zip(standings) {
                    self.stands(leased, standing, asked);
                }
            }
            Err(failure) => {
                events::renewal_failed(self.store(), batch.len(), &failure);
                let now = self.clock.now();
                for leased in &batch {
                    leased.unanswered(now, &self.schedule);
                }
            }
        }
    }

    /// The store says how a claim stands, in answer to what was asked at `asked`.
    fn stands(self: &Arc<Self>, leased: &Arc<LeasedClaim>, standing: Standing, asked: Moment) {
        let now = self.clock.now();
        let asked = if self.defects.has(Defect::LeaseFromReply) { now } else { asked };
        let held = leased.grant();
        match (held, standing) {
            (None, Standing::Held(_)) if self.defects.has(Defect::NoFallback) => {
                leased.waits(Place { ahead: 0, lapse_in: None }, None, asked, now, &self.schedule);
            }
            (None, Standing::Waiting(place)) => {
                leased.waits(place, self.fallback(leased, now), asked, now, &self.schedule);
            }
            (None, Standing::Held(grant)) => {
                self.granted(&leased.claim.name, leased.claim.id, grant, Some(asked), now)
            }
            (None, Standing::Gone) => self.place_lost(leased),
            (Some(held), Standing::Held(grant)) if held.epoch == grant.epoch => {
                leased.renewed(grant, asked, now, &self.schedule);
            }
            // The answer was under way before the grant was: old news.
            (Some(held), Standing::Waiting(_)) if leased.held_since().is_some_and(|since| asked <= since) => {
                leased.renewed(held, asked, now, &self.schedule);
            }
            (Some(_), Standing::Gone) if self.defects.has(Defect::GoneIgnored) => {
                leased.unanswered(now, &self.schedule);
            }
            // Another epoch is another grant: somebody else may have held in between.
            (Some(_), _) => self.lost(leased, LossReason::Gone),
        }
    }
}
