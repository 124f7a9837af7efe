//! What follows from a change: bells are rung, the dead are let go, and each claim that waits knows behind whom.
//!
//! Each claim that waits watches the one before it, and the first of them all who hold. So each
//! death is noticed by one, not by all, and a line has no gap: when somebody in the middle goes,
//! the one behind is told to watch another.

use std::collections::VecDeque;

use super::{
    codec::Ring,
    fault::{Point, strike_at},
    order::ends_with_its_client,
    session::Life,
    store::{FileStore, Rings, find},
};
use crate::{
    backend::{ClaimId, ClientId, Failure, Grant, Leave, News, What},
    backends::shared::mutex::lock,
    model::name::Name,
};

/// What is left for the wake.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    news: VecDeque<News>,
    errands: Vec<Errand>,
}

/// Something that could not be done at once.
#[derive(Debug)]
enum Errand {
    Evict(Name, Vec<ClientId>),
    Refresh(ClaimId),
}

impl FileStore {
    /// Rings bells. Claims of dead clients are let go, which may ring more.
    pub(super) fn follow(&self, name: &Name, mut rings: Rings) {
        while !rings.is_empty() {
            strike_at(Point::Unrung, || ());
            let mut dead = Vec::new();
            for (id, ring) in rings.drain(..) {
                match ring {
                    _ if id.client() != self.client => {
                        if self.session.ring(id.client(), &ring) == Life::Dead {
                            dead.push(id.client());
                        }
                    }
                    Ring::News(news) => self.tell(news),
                    Ring::Moved(id) => self.later(Errand::Refresh(id)),
                }
            }
            if dead.is_empty() {
                return;
            }
            match self.try_evict(name, &dead) {
                Ok(Some(more)) => rings = more,
                // The wake has more time; and if the disk is full, leases still end.
                Ok(None) | Err(_) => return self.later(Errand::Evict(name.clone(), dead)),
            }
        }
    }

    /// Lets the claims of dead clients go, now or later. Says whether it is done.
    pub(super) fn let_go(&self, name: &Name, dead: Vec<ClientId>) -> bool {
        match self.try_evict(name, &dead) {
            Ok(Some(rings)) => {
                self.follow(name, rings);
                true
            }
            Ok(None) | Err(_) => {
                self.later(Errand::Evict(name.clone(), dead));
                false
            }
        }
    }

    fn try_evict(&self, name: &Name, dead: &[ClientId]) -> Result<Option<Rings>, Failure> {
        let changed = self.try_change(name, |line, at, effects| {
            let gone = line.parts().filter(ends_with_its_client).map(|part| part.claim.id);
            let ids: Vec<_> = gone.filter(|id| dead.contains(&id.client())).collect();
            // From behind, so that none of them is granted anything on the way out.
            for id in ids.iter().rev() {
                line.leave(*id, Leave::Done, at, effects);
            }
            ((), ids.is_empty())
        });
        Ok(changed?.map(|((), rings)| rings))
    }

    pub(super) fn dead_among(&self, mut clients: Vec<ClientId>) -> Vec<ClientId> {
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != self.client && self.session.probe(*client) == Life::Dead);
        clients
    }
}

/// For the wake.
impl FileStore {
    /// The next thing that the engine should hear.
    pub(super) fn pop_news(&self) -> Option<News> {
        lock(&self.outbox).news.pop_front()
    }

    pub(super) fn tell(&self, news: News) {
        lock(&self.outbox).news.push_back(news);
        self.nudge.notify_one();
    }

    fn later(&self, errand: Errand) {
        lock(&self.outbox).errands.push(errand);
        self.nudge.notify_one();
    }

    /// Does what could not be done at once. Says whether something is still left.
    pub(super) fn run_errands(&self) -> bool {
        let errands = std::mem::take(&mut lock(&self.outbox).errands);
        let mut left = false;
        for errand in errands {
            match errand {
                Errand::Refresh(id) => self.refresh(id),
                Errand::Evict(name, dead) => match self.try_evict(&name, &dead) {
                    Ok(Some(rings)) => self.follow(&name, rings),
                    Ok(None) | Err(_) => {
                        lock(&self.outbox).errands.push(Errand::Evict(name, dead));
                        left = true;
                    }
                },
            }
        }
        left
    }

    /// A client is dead: its claims ahead of ours are let go.
    pub(super) fn died(&self, client: ClientId) {
        let behind = lock(&self.claims).died(client);
        for claim in behind {
            self.let_go(&claim.name, vec![client]);
            // It may have granted us its place and died before it rang.
            self.refresh(claim.id);
        }
        self.session.bury(client);
    }

    /// Reads how a claim that waits stands, in case a bell was not heard.
    pub(super) fn refresh(&self, id: ClaimId) {
        let claim = lock(&self.claims).get(id);
        let Some(claim) = claim else { return };
        let (shard, bucket) = self.bucket_of(&claim.name);
        let Ok(Some(payload)) = shard.peek(bucket, self) else { return };
        let line = find(&payload, &claim.name).unwrap_or_default();
        let what = match line.parts().find(|part| part.claim.id == id).map(|part| part.hold) {
            Some(None) => return self.note(&claim, &line),
            Some(Some(hold)) => {
                let waiting = u32::try_from(line.len() - line.holders()).unwrap_or(u32::MAX);
                What::Granted(Grant::new(hold.epoch, claim.ttl, waiting))
            }
            None => What::Ask,
        };
        // Only if nobody else has heard how it stands in the meantime.
        if self.forget(id) {
            self.tell(News { name: claim.name.clone(), id, what });
        }
    }

    /// So many bells at once that some may have found the doorbell full.
    pub(super) fn refresh_all(&self) {
        let ids = lock(&self.claims).ids();
        for id in ids {
            self.refresh(id);
        }
    }
}
