//! Listening: one task hears what the store says unasked.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{Engine, backoff, leased::LeasedClaim, local::Phase};
use crate::{
    backend::{Backend, News, Place, Share, What},
    clock::Moment,
};

/// How long a lost push may go unnoticed, and how often a store that does not push is asked.
const WITH_PUSH: Duration = Duration::from_secs(2);
const WITHOUT_PUSH: Duration = Duration::from_millis(100);
/// Of readers, writers and permits, this many that hold may be ahead of the first that waits.
const HOLDERS: u32 = 4;
/// So many times the pause of the first is the longest; a third of the ttl is mostly shorter.
const LONGEST: u32 = 15;

/// The listener's task.
pub(super) async fn listen(engine: Weak<Engine>, backend: Arc<dyn Backend>, stop: CancellationToken) {
    let mut failures = 0_u32;
    loop {
        let news = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            news = backend.wait() => news,
        };
        let Some(engine) = engine.upgrade() else {
            return;
        };
        match news {
            Ok(news) => {
                failures = 0;
                engine.hear(&news);
            }
            Err(failure) => {
                engine.events.listening_failed(&failure);
                failures += 1;
                engine.ask_about_all();
                drop(engine);
                tokio::time::sleep(backoff::of_listening(failures)).await;
            }
        }
    }
}

impl Engine {
    fn hear(self: &Arc<Self>, news: &News) {
        match &news.what {
            What::Granted(_) if self.flaws.miss_push(news.id) => {}
            What::Granted(grant) => self.granted(&news.name, news.id, *grant, None, self.clock.now()),
            What::Evicted(reason) => self.evicted(&news.name, news.id, reason),
            What::Ask => {
                let mut shard = self.table.shard(&news.name);
                let Some(cohort) = shard.get(&news.name).and_then(|line| line.cohort_with(news.id)) else {
                    return;
                };
                match cohort.phase() {
                    Phase::Asking(_) => cohort.leased.ask_once_entered(),
                    Phase::InLine | Phase::Held { .. } => {
                        cohort.leased.ask_now(self.clock.now(), &self.schedule);
                    }
                    Phase::Leaving => {}
                }
            }
        }
    }

    /// Pushes may have been missed: ask how every claim stands, in batches. Those who hold may have been evicted.
    fn ask_about_all(&self) {
        let now = self.clock.now();
        for (leased, phase) in self.table.claims() {
            let held = matches!(phase, Phase::Held { .. }) && leased.auto_renew;
            if phase == Phase::InLine || held {
                leased.ask_now(now, &self.schedule);
            }
        }
    }

    /// When to ask about a claim in line, in case a push gets lost.
    ///
    /// The first that waits asks often: all others wait for it as well. For those further back it takes longer the more are
    /// ahead, and what a store has to do to answer grows with the line.
    pub(super) fn fallback(&self, leased: &LeasedClaim, place: Place, now: Moment) -> Option<Moment> {
        if self.flaws.rely_on_pushes() {
            return None;
        }
        let every = match self.backend.abilities().push {
            true if place.lapse_in.is_some() => WITH_PUSH,
            true => {
                let claim = &leased.claim;
                let has_one_holder = claim.share == Share::Exclusive && !claim.writes;
                let places = if has_one_holder { place.ahead } else { place.ahead / HOLDERS };
                WITH_PUSH * places.clamp(1, LONGEST)
            }
            false => WITHOUT_PUSH,
        };
        Some(now + every.min(leased.claim.ttl / 3))
    }
}
