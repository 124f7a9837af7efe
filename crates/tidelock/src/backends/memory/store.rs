//! The lines themselves, and the inboxes of the clients that stand in them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;

use crate::{
    backend::{
        Ask, Claim, ClaimId, ClientId, Entered, Follow, Follows, Leave, Left, LockView, News, Scope, Standing,
    },
    backends::shared::{mutex::lock, named::Named},
    clock::{Clock, Moment, wall_micros},
    error::{Error, Result},
    model::line::{Effect, Line, StoreTime},
    model::name::Name,
    model::shards::Shards,
};

/// Lines in the memory of this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    /// Wall clock at the start; it is not read again, so that it cannot jump.
    micros: u64,
    started: Moment,
    lines: Shards<Line>,
    inboxes: Mutex<HashMap<ClientId, mpsc::UnboundedSender<News>>>,
    /// The names that any client follows.
    follows: Follows,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Arc<Self> {
        Self::timed(Clock::machine())
    }

    /// An empty store whose leases run on this clock.
    #[cfg(feature = "testing")]
    pub fn on_clock(clock: Clock) -> Arc<Self> {
        Self::timed(clock)
    }

    pub(super) fn timed(clock: Clock) -> Arc<Self> {
        let started = clock.now();
        Arc::new(Self {
            clock,
            micros: wall_micros(),
            started,
            lines: Shards::new(),
            inboxes: Mutex::default(),
            follows: Follows::new(),
        })
    }

    /// The store of this name, shared by the process for as long as anybody uses it.
    ///
    /// A store that was made with another clock is an error: its leases and the client's would disagree.
    pub(super) fn shared(name: &str, clock: &Clock) -> Result<Arc<Self>> {
        static STORES: Named<MemoryStore> = Named::new();
        let store = STORES.get(name, || Self::timed(clock.clone()));
        if store.clock != *clock {
            return Err(Error::invalid_option(format!(
                "the store in memory named {name:?} is in use with another clock: connect all its clients with the same clock"
            )));
        }
        Ok(store)
    }

    /// Opens the inbox of a client.
    pub(super) fn open_inbox(&self, client: ClientId) -> mpsc::UnboundedReceiver<News> {
        let (send, receive) = mpsc::unbounded_channel();
        lock(&self.inboxes).insert(client, send);
        receive
    }

    pub(super) fn close_inbox(&self, client: ClientId) {
        lock(&self.inboxes).remove(&client);
    }

    pub(super) fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Entered {
        self.change(&claim.name, |line, at, effects| line.enter(claim, ask, at, effects))
    }

    pub(super) fn renew(&self, claim: &Claim) -> Standing {
        self.change(&claim.name, |line, at, effects| line.renew(claim.id, at, effects))
    }

    pub(super) fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Left {
        let last =
            why == Leave::Done && self.lines.lock(name).get(name).is_some_and(|line| line.leave_alone(id));
        if last {
            self.follows.changed(name);
        }
        let was_there = last || self.change(name, |line, at, effects| line.leave(id, why, at, effects));
        Left::from_was_there(was_there)
    }

    pub(super) fn look(&self, scope: &Scope) -> Vec<LockView> {
        let at = self.now();
        let mut views = match scope {
            Scope::Names(names) => names
                .iter()
                .filter_map(|name| Some(self.lines.lock(name).get(name)?.look(name, at)))
                .collect(),
            Scope::All => self.lines.collect(|name, line| Some(line.look(name, at))),
        };
        views.retain(|view| !view.holders.is_empty() || !view.waiters.is_empty());
        views
    }

    pub(super) fn follow(&self, name: &Name) -> Option<Follow> {
        let follow = self.follows.follow(name)?;
        self.follows.live(name);
        Some(follow)
    }

    fn now(&self) -> StoreTime {
        let lease = self.clock.now();
        StoreTime { lease, micros: self.micros + lease.since(self.started).as_micros() as u64 }
    }

    fn change<T>(&self, name: &Name, change: impl FnOnce(&mut Line, StoreTime, &mut Vec<Effect>) -> T) -> T {
        let mut effects = Vec::new();
        let mut shard = self.lines.lock(name);
        // Read under the lock, so that later changes have later times.
        let at = self.now();
        let answer = change(shard.get_or_make(name, |line| line.may_be_forgotten(at)), at, &mut effects);
        // Told under the lock, so that news of one line arrive in order.
        if !effects.is_empty() {
            self.tell(name, effects);
        }
        drop(shard);
        self.follows.changed(name);
        answer
    }

    fn tell(&self, name: &Name, effects: Vec<Effect>) {
        let inboxes = lock(&self.inboxes);
        for Effect { id, what } in effects {
            if let Some(inbox) = inboxes.get(&id.client()) {
                // A client that went away is not told; its claims lapse.
                let _ = inbox.send(News { name: name.clone(), id, what });
            }
        }
    }
}
