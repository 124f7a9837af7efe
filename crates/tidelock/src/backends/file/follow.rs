//! What follows from a change: bells are rung, the dead are let go, and whoever waits knows behind whom.
//!
//! Each claim that waits watches the one before it, and the first of them all who hold. So each
//! death is noticed by one, not by all, and a line has no gap: when somebody in the middle goes,
//! the one behind is told to watch another.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    codec::Ring,
    fault::{Point, strike_at},
    session::Life,
    store::{FileStore, Rings, find},
};
use crate::{
    backend::{Claim, ClaimId, ClientId, Failure, Grant, Leave, News, What},
    line::{Line, Part},
    name::Name,
};

/// The claims of this client that wait, and whom it watches for them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    claims: HashMap<ClaimId, Waiter>,
    watched: HashSet<ClientId>,
    unwatched: Vec<ClientId>,
}

#[derive(Debug)]
struct Waiter {
    claim: Arc<Claim>,
    /// Whose death would move this claim on.
    ahead: Vec<ClientId>,
}

/// What is left for the listener.
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
    /// Rings bells. Whoever is dead is let go, which may ring more.
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
                // The listener has more time; and if the disk is full, leases still end.
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

/// For the listener.
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
        let mut waiting = lock(&self.waiting);
        waiting.watched.remove(&client);
        let behind = waiting.claims.values().filter(|waiter| waiter.ahead.contains(&client));
        let behind: Vec<_> = behind.map(|waiter| Arc::clone(&waiter.claim)).collect();
        drop(waiting);
        for claim in behind {
            self.let_go(&claim.name, vec![client]);
            // It may have granted us its place and died before it rang.
            self.refresh(claim.id);
        }
        self.session.bury(client);
    }

    /// Reads how a claim that waits stands, in case a bell was not heard.
    pub(super) fn refresh(&self, id: ClaimId) {
        let claim = lock(&self.waiting).claims.get(&id).map(|waiter| Arc::clone(&waiter.claim));
        let Some(claim) = claim else { return };
        let (shard, bucket) = self.place(&claim.name);
        let Ok(Some(payload)) = shard.peek(bucket, self.boot) else { return };
        let line = find(&payload, &claim.name).unwrap_or_default();
        let what = match line.parts().find(|part| part.claim.id == id).map(|part| part.hold) {
            Some(None) => return self.note(&claim, &line),
            Some(Some(hold)) => {
                let waiting = u32::try_from(line.len() - line.holders()).unwrap_or(u32::MAX);
                What::Granted(Grant { epoch: hold.epoch, ttl: claim.ttl, waiting })
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
        let ids: Vec<_> = lock(&self.waiting).claims.keys().copied().collect();
        for id in ids {
            self.refresh(id);
        }
    }

    /// A claim does not wait any more. Says whether it did.
    pub(super) fn forget(&self, id: ClaimId) -> bool {
        let mut waiting = lock(&self.waiting);
        // Mostly nothing waits: then there is nothing to look up.
        !waiting.claims.is_empty() && waiting.claims.remove(&id).is_some()
    }

    /// Whom to watch from now on.
    pub(super) fn take_unwatched(&self) -> Vec<ClientId> {
        let mut waiting = lock(&self.waiting);
        let unwatched = std::mem::take(&mut waiting.unwatched);
        waiting.watched.extend(&unwatched);
        unwatched
    }

    /// Who need not be watched any more.
    pub(super) fn take_unneeded(&self) -> Vec<ClientId> {
        let mut waiting = lock(&self.waiting);
        let needed: HashSet<_> = waiting.claims.values().flat_map(|waiter| waiter.ahead.clone()).collect();
        let unneeded: Vec<_> = waiting.watched.difference(&needed).copied().collect();
        waiting.watched.retain(|client| needed.contains(client));
        unneeded
    }

    /// Notes that a claim waits, and behind whom.
    pub(super) fn note(&self, claim: &Arc<Claim>, line: &Line) {
        let mut ahead = ahead_of(line, claim.id);
        ahead.retain(|client| *client != self.client);
        let mut waiting = lock(&self.waiting);
        let Waiting { claims, watched, unwatched } = &mut *waiting;
        let before = unwatched.len();
        unwatched.extend(ahead.iter().filter(|client| !watched.contains(client)));
        let more = unwatched.len() > before;
        claims.insert(claim.id, Waiter { claim: Arc::clone(claim), ahead });
        drop(waiting);
        if more {
            self.nudge.notify_one();
        }
    }
}

/// Whether a claim goes when its client does: one that was left behind holds until its lease ends.
pub(super) fn ends_with_its_client(part: &Part) -> bool {
    !part.claim.detached || part.hold.is_none()
}

pub(super) fn ids(line: &Line) -> Vec<ClaimId> {
    line.parts().map(|part| part.claim.id).collect()
}

/// Whose death would move a claim that waits: for the first, all who hold; for the others, the one
/// before. So each claim in line is watched by one, not by all.
fn ahead_of(line: &Line, id: ClaimId) -> Vec<ClientId> {
    let parts: Vec<_> = line.parts().collect();
    let at = parts.iter().position(|part| part.claim.id == id).unwrap_or(0);
    let ahead = watched_from(&parts, line.holders(), at).iter().filter(|part| ends_with_its_client(part));
    let mut clients: Vec<_> = ahead.map(|part| part.claim.id.client()).collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

fn watched_from<T>(line: &[T], held: usize, at: usize) -> &[T] {
    if at <= held { &line[..held.min(line.len())] } else { &line[at - 1..at] }
}

/// Who waits on, and has to watch somebody else than before.
pub(super) fn moved(before: &[ClaimId], held_before: usize, line: &Line) -> Vec<ClaimId> {
    let (after, held) = (ids(line), line.holders());
    let mut old = 0;
    let mut moved = Vec::new();
    for (at, id) in after.iter().enumerate().skip(held) {
        // Those who wait stay in order, so one walk finds them all. A newcomer knows already.
        let Some(step) = before[old..].iter().position(|other| other == id) else { break };
        old += step;
        let knows = watched_from(before, held_before, old);
        let needs = watched_from(&after, held, at);
        if !needs.iter().all(|id| knows.iter().any(|known| known.client() == id.client())) {
            moved.push(*id);
        }
    }
    moved
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
