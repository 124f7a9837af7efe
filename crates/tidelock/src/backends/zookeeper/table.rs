//! The claims of this client: where their nodes are, what they wait for, when their leases end.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Mutex as AsyncMutex;

use super::{session::Session, wire::Change};
use crate::{
    backend::{Claim, ClaimId, Grant},
    clock::Moment,
};

/// How long a claim goes without a watch on its own node: most locks are given back before.
const WATCH_AFTER: Duration = Duration::from_millis(50);

/// Where a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A node may have been made; nobody knows.
    Unclear,
    Waiting,
    Held,
    /// It is given back or lapsed; its nodes may still be there.
    Leaving,
}

/// A claim of this client.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) claim: Arc<Claim>,
    pub(super) session: Arc<Session>,
    /// The lock's node.
    pub(super) parent: Arc<str>,
    pub(super) phase: Phase,
    /// The paths of its nodes, the first one first.
    pub(super) nodes: Vec<String>,
    /// The number of the first.
    pub(super) number: i32,
    pub(super) epoch: u64,
    /// When its lease ends; never before the engine's deadline.
    pub(super) lapses: Moment,
    /// The last change of a node that outlives its client.
    pub(super) written: i64,
    /// The connection on which its own node is watched.
    watched_on: u64,
    /// The node that is the only one ahead: when it goes, the claim holds.
    last_ahead: Option<String>,
    /// One look at a time.
    pub(super) turn: Arc<AsyncMutex<()>>,
}

impl Entry {
    pub(super) fn new(claim: &Arc<Claim>, session: &Arc<Session>, parent: &str, lapses: Moment) -> Self {
        Self {
            claim: Arc::clone(claim),
            session: Arc::clone(session),
            parent: parent.into(),
            phase: Phase::Unclear,
            nodes: Vec::new(),
            number: 0,
            epoch: 0,
            lapses,
            written: 0,
            watched_on: 0,
            last_ahead: None,
            turn: Arc::default(),
        }
    }

    /// Whether its hold outlives this client: its node belongs to no session.
    pub(super) fn stays(&self) -> bool {
        self.claim.detached && self.phase == Phase::Held
    }

    pub(super) fn grant(&self, waiting: u32) -> Grant {
        // Of a session's timeout a quarter is left out: a server that dies may have kept from its leader
        // for half a tick that it heard of us, and a tick is at most half of the timeout.
        let ttl = match self.stays() {
            true => self.claim.ttl,
            false => self.claim.ttl.min(self.session.timeout() / 4 * 3),
        };
        Grant { epoch: self.epoch, ttl, waiting }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched_on(self.session.connections())
    }

    pub(super) fn is_watched_on(&self, connection: u64) -> bool {
        self.watched_on != 0 && self.watched_on == connection
    }
}

/// What follows from a change that was watched.
#[derive(Debug)]
pub(super) enum Follows {
    /// The claim holds now.
    Granted(Entry),
    /// Somebody else deleted the claim's node.
    Gone(Entry),
    /// Something moved.
    Look(ClaimId),
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Table {
    claims: HashMap<ClaimId, Entry>,
    own: HashMap<String, ClaimId>,
    /// Who waits for a change of a path, by session.
    waits_for: HashMap<(u64, String), Vec<ClaimId>>,
    /// Claims whose own nodes are not watched yet, and since when they have been there.
    unwatched: VecDeque<(Moment, ClaimId)>,
    /// When whoever looks after leases wakes by itself.
    sleeps_until: Option<Moment>,
}

impl Table {
    pub(super) fn get(&self, id: ClaimId) -> Option<&Entry> {
        self.claims.get(&id)
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.claims.insert(entry.claim.id, entry);
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Entry> {
        let entry = self.claims.remove(&id)?;
        for node in &entry.nodes {
            self.own.remove(node);
        }
        Some(entry)
    }

    /// A claim has these nodes now, or others than before. Says whether to wake whoever watches nodes.
    pub(super) fn place(
        &mut self,
        id: ClaimId,
        nodes: Vec<String>,
        number: i32,
        epoch: u64,
        now: Moment,
    ) -> bool {
        let Some(entry) = self.claims.get_mut(&id) else { return false };
        for node in &entry.nodes {
            self.own.remove(node);
        }
        for node in &nodes {
            self.own.insert(node.clone(), id);
        }
        (entry.nodes, entry.number, entry.epoch) = (nodes, number, epoch);
        (entry.watched_on, entry.last_ahead) = (0, None);
        self.unwatched.push_back((now + WATCH_AFTER, id));
        self.is_earlier(now + WATCH_AFTER)
    }

    /// How a claim stands, and for how long that is known. Says whether to wake whoever looks after leases.
    /// Nothing changes for one that left in the meantime.
    pub(super) fn stands(&mut self, id: ClaimId, phase: Phase, now: Moment) -> Option<(Entry, bool)> {
        let entry = self.claims.get_mut(&id).filter(|entry| entry.phase != Phase::Leaving)?;
        // What holds does not wait again: an older answer came late.
        if entry.phase != Phase::Held {
            entry.phase = phase;
        }
        entry.lapses = now + entry.claim.ttl;
        let (entry, lapses) = (entry.clone(), entry.lapses);
        Some((entry, self.is_earlier(lapses)))
    }

    /// Nobody knows where the nodes of a claim are.
    pub(super) fn is_unclear(&mut self, id: ClaimId) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        for node in entry.nodes.drain(..) {
            self.own.remove(&node);
        }
        if entry.phase == Phase::Waiting {
            entry.phase = Phase::Unclear;
        }
    }

    /// A claim leaves. Says what it was, and what to do if that fails is up to whoever looks after leases.
    pub(super) fn leaves(&mut self, id: ClaimId, again_at: Moment) -> Option<Entry> {
        let entry = self.claims.get_mut(&id)?;
        entry.phase = Phase::Leaving;
        entry.lapses = again_at;
        Some(entry.clone())
    }

    pub(super) fn written(&mut self, id: ClaimId, zxid: i64, now: Moment) {
        if let Some(entry) = self.claims.get_mut(&id) {
            entry.written = zxid;
            entry.lapses = now + entry.claim.ttl;
        }
    }

    /// A claim waits for a change of this path.
    pub(super) fn wait_for(&mut self, session: u64, path: &str, id: ClaimId) {
        let waiting = self.waits_for.entry((session, path.to_owned())).or_default();
        if !waiting.contains(&id) {
            waiting.push(id);
        }
    }

    /// Whether a claim of this client waits for a change of this path.
    pub(super) fn is_waited_for(&self, session: u64, path: &str) -> bool {
        self.waits_for.contains_key(&(session, path.to_owned()))
    }

    /// A claim's own node was seen on this connection and is watched there.
    pub(super) fn is_watched(&mut self, id: ClaimId, connection: u64) {
        if let Some(entry) = self.claims.get_mut(&id) {
            entry.watched_on = connection;
        }
    }

    /// Once this node goes, the claim holds; both have been watched since before this was known.
    pub(super) fn is_last_ahead(&mut self, id: ClaimId, path: &str) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        let key = (entry.session.key, path.to_owned());
        let waits = self.waits_for.get(&key).is_some_and(|waiting| waiting.contains(&id));
        if waits && entry.is_watched() && entry.phase == Phase::Waiting {
            entry.last_ahead = Some(path.to_owned());
        }
    }

    /// Something that was watched changed.
    pub(super) fn changed(&mut self, session: u64, change: Change, path: &str, now: Moment) -> Vec<Follows> {
        let mut follows = Vec::new();
        if let Some(&id) = self.own.get(path)
            && let Some(entry) = self.claims.get_mut(&id).filter(|entry| entry.session.key == session)
        {
            entry.watched_on = 0;
            if change == Change::Deleted {
                if entry.phase != Phase::Leaving {
                    follows.extend(self.remove(id).map(Follows::Gone));
                }
            } else {
                self.unwatched.push_back((now, id));
            }
        }
        for id in self.waits_for.remove(&(session, path.to_owned())).unwrap_or_default() {
            let Some(entry) = self.claims.get_mut(&id) else { continue };
            // Of one that is just being entered nobody has said yet that it waits.
            if matches!(entry.phase, Phase::Held | Phase::Leaving) {
                continue;
            }
            if change == Change::Deleted && entry.is_watched() && entry.last_ahead.as_deref() == Some(path) {
                entry.phase = Phase::Held;
                follows.push(Follows::Granted(entry.clone()));
            } else {
                follows.push(Follows::Look(id));
            }
        }
        follows
    }

    /// A session was taken up again, or is over: nothing is watched on it any more. All claims of it.
    pub(super) fn of_session(&mut self, session: u64) -> Vec<Entry> {
        self.waits_for.retain(|(key, _), _| *key != session);
        self.claims.values().filter(|entry| entry.session.key == session).cloned().collect()
    }

    /// Claims that have been there for long enough to watch their nodes.
    pub(super) fn take_unwatched(&mut self, now: Moment) -> Vec<Entry> {
        let mut entries = Vec::new();
        while let Some((_, id)) = self.unwatched.front().copied().filter(|(due, _)| *due <= now) {
            self.unwatched.pop_front();
            let entry = self.claims.get(&id);
            entries
                .extend(entry.filter(|entry| entry.phase != Phase::Leaving && !entry.is_watched()).cloned());
        }
        entries
    }

    /// Claims whose lease is over, each marked as leaving, to be looked at again at a later time.
    pub(super) fn take_lapsed(&mut self, now: Moment, again_at: Moment) -> Vec<Entry> {
        let mut lapsed = Vec::new();
        for entry in self.claims.values_mut().filter(|entry| entry.lapses <= now) {
            lapsed.push(entry.clone());
            // One that outlives its client may have been renewed by another.
            if !entry.stays() {
                entry.phase = Phase::Leaving;
            }
            entry.lapses = again_at;
        }
        lapsed
    }

    /// When to look after leases and watches next.
    pub(super) fn next(&mut self) -> Option<Moment> {
        let lapse = self.claims.values().map(|entry| entry.lapses).min();
        self.sleeps_until = self.unwatched.front().map(|(due, _)| *due).into_iter().chain(lapse).min();
        self.sleeps_until
    }

    fn is_earlier(&mut self, due: Moment) -> bool {
        let earlier = self.sleeps_until.is_none_or(|until| due < until);
        if earlier {
            self.sleeps_until = Some(due);
        }
        earlier
    }
}
