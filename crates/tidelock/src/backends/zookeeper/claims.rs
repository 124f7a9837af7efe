//! The claims of this client: where their nodes are, what they wait for, when their leases end.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    codec::nodes::Contender,
    link::{
        session::Session,
        wire::{Change, Stat},
    },
    own_nodes::Nodes,
};
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

/// The nodes that a claim waits for.
#[derive(Debug)]
pub(super) struct Awaits {
    /// While all of them are there, it waits.
    pub(super) paths: Vec<String>,
    /// Whether it holds as soon as the first is gone: that is the only one ahead.
    pub(super) last: bool,
    /// Whether nothing but a change of these nodes can move it: no lease of a node ahead ends while the node stays.
    pub(super) suffices: bool,
    /// How many were ahead when the line was listed.
    pub(super) ahead: u32,
}

/// A claim of this client.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(super) claim: Arc<Claim>,
    pub(super) session: Arc<Session>,
    pub(super) phase: Phase,
    pub(super) nodes: Nodes,
    /// The number of the first.
    pub(super) number: i32,
    pub(super) epoch: u64,
    /// When its lease ends; never before the engine's deadline.
    pub(super) lapses: Moment,
    /// The last change of a node that outlives its client.
    pub(super) written: i64,
    /// The connection on which its own node is watched.
    watched_on: u64,
    /// What it waits for, if that is nodes and not a change of the whole line.
    awaits: Option<Arc<Awaits>>,
}

impl Entry {
    pub(super) fn new(claim: &Arc<Claim>, session: &Arc<Session>, lapses: Moment) -> Self {
        Self {
            claim: Arc::clone(claim),
            session: Arc::clone(session),
            phase: Phase::Unclear,
            nodes: Nodes::None,
            number: 0,
            epoch: 0,
            lapses,
            written: 0,
            watched_on: 0,
            awaits: None,
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
        Grant::new(self.epoch, ttl, waiting)
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched_on(self.session.connections())
    }

    pub(super) fn is_watched_on(&self, connection: u64) -> bool {
        self.watched_on != 0 && self.watched_on == connection
    }

    /// Whether it holds as soon as this node is gone: it is the only one ahead, and both it and the claim's own have
    /// been watched without a break.
    fn holds_without(&self, path: &str, watched_on: u64) -> bool {
        let is_last =
            |awaits: &Arc<Awaits>| awaits.last && awaits.paths.first().is_some_and(|last| last == path);
        self.phase == Phase::Waiting
            && self.is_watched()
            && self.is_watched_on(watched_on)
            && self.awaits.as_ref().is_some_and(is_last)
    }

    /// Has its own node watched.
    pub(super) fn watch_own(&self) {
        if let Some(node) = self.nodes.first() {
            self.session.watch(node);
        }
    }

    /// The name of its first node.
    pub(super) fn node(&self) -> &str {
        self.nodes.first().map_or("", |node| node.rsplit('/').next().unwrap_or(node))
    }
}

/// What follows from something that a server said.
#[derive(Debug)]
pub(super) enum Conclusion {
    /// The claim holds now.
    Granted(Entry),
    /// Somebody else deleted the claim's node.
    Gone(Entry),
    /// Something moved: how the claim stands has to be asked.
    Check(ClaimId),
}

/// A path that claims wait for.
#[derive(Debug, Default)]
struct Awaited {
    claims: Vec<ClaimId>,
    /// The connection on which it is watched.
    watched_on: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Boxed: of a large map half of the room is unused.
    claims: HashMap<ClaimId, Box<Entry>>,
    /// Who waits for a change of a path, by session.
    waits_for: HashMap<(u64, String), Awaited>,
    /// Claims whose own nodes are not watched yet, and since when they have been there.
    unwatched: VecDeque<(Moment, ClaimId)>,
    /// When leases and watches are looked after next if nothing happens.
    sleeps_until: Option<Moment>,
}

impl Claims {
    pub(super) fn get(&self, id: ClaimId) -> Option<&Entry> {
        self.claims.get(&id).map(Box::as_ref)
    }

    /// Whether any of them has a node in the line at this path. One that has none yet watches nothing, either.
    pub(super) fn has_parent(&self, path: &str) -> bool {
        let parent = |entry: &Entry| Some(entry.nodes.first()?.rsplit_once('/')?.0 == path);
        self.claims.values().any(|entry| parent(entry).unwrap_or_default())
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        self.claims.insert(entry.claim.id, Box::new(entry));
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Entry> {
        self.claims.remove(&id).map(|entry| *entry)
    }

    /// A claim has these nodes now, or others than before. Says whether leases and watches have to be looked after
    /// earlier than planned.
    pub(super) fn has_nodes(
        &mut self,
        id: ClaimId,
        nodes: Nodes,
        number: i32,
        epoch: u64,
        now: Moment,
    ) -> bool {
        let Some(entry) = self.claims.get_mut(&id) else { return false };
        (entry.nodes, entry.number, entry.epoch) = (nodes, number, epoch);
        (entry.watched_on, entry.awaits) = (0, None);
        self.unwatched.push_back((now + WATCH_AFTER, id));
        self.is_earlier(now + WATCH_AFTER)
    }

    /// How a claim stands, and for how long that is known. Says whether leases have to be looked after earlier than
    /// planned. Nothing changes for one that left in the meantime.
    pub(super) fn stands(&mut self, id: ClaimId, phase: Phase, now: Moment) -> Option<(Entry, bool)> {
        let entry = self.claims.get_mut(&id).filter(|entry| entry.phase != Phase::Leaving)?;
        // What holds does not wait again: an older answer came late.
        if entry.phase != Phase::Held {
            entry.phase = phase;
        }
        if entry.phase == Phase::Held {
            entry.awaits = None;
        }
        entry.lapses = now + entry.claim.ttl;
        let (entry, lapses) = (Entry::clone(entry), entry.lapses);
        Some((entry, self.is_earlier(lapses)))
    }

    /// Nobody knows where the nodes of a claim are.
    pub(super) fn is_unclear(&mut self, id: ClaimId) {
        let Some(entry) = self.claims.get_mut(&id) else { return };
        (entry.nodes, entry.watched_on, entry.awaits) = (Nodes::None, 0, None);
        if entry.phase == Phase::Waiting {
            entry.phase = Phase::Unclear;
        }
    }

    /// A claim leaves. Says what it was. If its nodes cannot be deleted, that is tried again at this time.
    pub(super) fn leaves(&mut self, id: ClaimId, again_at: Moment) -> Option<Entry> {
        let entry = self.claims.get_mut(&id)?;
        entry.phase = Phase::Leaving;
        entry.lapses = again_at;
        Some(Entry::clone(entry))
    }

    pub(super) fn written(&mut self, id: ClaimId, zxid: i64, now: Moment) {
        if let Some(entry) = self.claims.get_mut(&id) {
            entry.written = zxid;
            entry.lapses = now + entry.claim.ttl;
        }
    }

    /// A claim waits for a change of this path.
    pub(super) fn wait_for(&mut self, session: u64, path: &str, id: ClaimId) {
        let waiting = &mut self.waits_for.entry((session, path.to_owned())).or_default().claims;
        if !waiting.contains(&id) {
            waiting.push(id);
        }
    }

    /// Whether a claim of this client waits for a change of this path.
    pub(super) fn is_waited_for(&self, session: u64, path: &str) -> bool {
        self.waits_for.contains_key(&(session, path.to_owned()))
    }

    /// A claim waits for these nodes, or for any change of its line.
    pub(super) fn awaits(&mut self, id: ClaimId, awaits: Option<Awaits>) {
        if let Some(entry) = self.claims.get_mut(&id) {
            entry.awaits = awaits.map(Arc::new);
        }
    }

    /// How many were ahead of a claim that certainly still waits: its own node and all that it waits for have been
    /// watched on this connection without a break, and nothing was said of them.
    pub(super) fn still_waits(&self, id: ClaimId, connection: u64) -> Option<u32> {
        let entry = self.claims.get(&id)?;
        let awaits = entry.awaits.as_ref().filter(|awaits| awaits.suffices && !awaits.paths.is_empty())?;
        let is_there = |path: &String| {
            let awaited = self.waits_for.get(&(entry.session.key, path.clone()));
            awaited.is_some_and(|awaited| awaited.watched_on == connection && awaited.claims.contains(&id))
        };
        let waits = entry.phase == Phase::Waiting && entry.is_watched_on(connection);
        (waits && awaits.paths.iter().all(is_there)).then_some(awaits.ahead)
    }

    /// A claim's own node was read on this connection and is watched there.
    pub(super) fn is_watched(&mut self, id: ClaimId, node: &str, connection: u64) {
        let entry = self.claims.get_mut(&id);
        // It may have another node by now, which nobody watches.
        if let Some(entry) = entry.filter(|entry| entry.nodes.first().is_some_and(|first| **first == *node)) {
            entry.watched_on = connection;
        }
    }

    /// A node was read to be watched. If it was found, it is watched on this connection.
    pub(super) fn watched(
        &mut self,
        session: u64,
        path: &str,
        found: Option<Stat>,
        connection: u64,
    ) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        if let Some(entry) = self.owner_of(session, path).filter(|entry| entry.phase != Phase::Leaving) {
            // Of another session it would be another's, whatever its name.
            let is_own = |stat: Stat| {
                entry.phase != Phase::Held
                    || entry.claim.detached
                    || stat.ephemeral_owner == entry.session.id()
            };
            if found.is_some_and(is_own) {
                entry.watched_on = connection;
            } else {
                conclusions.push(Conclusion::Check(entry.claim.id));
            }
        }
        let key = (session, path.to_owned());
        if found.is_none() {
            let waiting = self.waits_for.remove(&key).unwrap_or_default().claims;
            conclusions.extend(waiting.into_iter().filter(|id| self.may_wait(*id)).map(Conclusion::Check));
        } else if let Some(awaited) = self.waits_for.get_mut(&key) {
            awaited.watched_on = connection;
        }
        conclusions
    }

    /// The claim whose node this is.
    fn owner_of(&mut self, session: u64, path: &str) -> Option<&mut Entry> {
        let id = Contender::read(path.rsplit('/').next()?)?.id?;
        let is_its = |entry: &&mut Entry| {
            entry.session.key == session && entry.nodes.iter().any(|node| **node == *path)
        };
        self.claims.get_mut(&id).map(Box::as_mut).filter(is_its)
    }

    /// Whether a claim waits, or is just being entered, so that nobody has said yet that it waits.
    fn may_wait(&self, id: ClaimId) -> bool {
        self.claims.get(&id).is_some_and(|entry| matches!(entry.phase, Phase::Waiting | Phase::Unclear))
    }

    /// Something that was watched changed.
    pub(super) fn changed(
        &mut self,
        session: u64,
        change: Change,
        path: &str,
        now: Moment,
    ) -> Vec<Conclusion> {
        let mut conclusions = Vec::new();
        if let Some(entry) = self.owner_of(session, path) {
            let (id, is_leaving) = (entry.claim.id, entry.phase == Phase::Leaving);
            entry.watched_on = 0;
            if change != Change::Deleted {
                self.unwatched.push_back((now, id));
            } else if !is_leaving {
                conclusions.extend(self.remove(id).map(Conclusion::Gone));
            }
        }
        let Awaited { claims, watched_on } =
            self.waits_for.remove(&(session, path.to_owned())).unwrap_or_default();
        for id in claims {
            if !self.may_wait(id) {
                continue;
            }
            let Some(entry) = self.claims.get_mut(&id) else { continue };
            if change == Change::Deleted && entry.holds_without(path, watched_on) {
                (entry.phase, entry.awaits) = (Phase::Held, None);
                conclusions.push(Conclusion::Granted(Entry::clone(entry)));
            } else {
                conclusions.push(Conclusion::Check(id));
            }
        }
        conclusions
    }

    /// A session was taken up again, or is over: nothing is watched on it any more. All claims of it.
    pub(super) fn of_session(&mut self, session: u64) -> Vec<Entry> {
        self.waits_for.retain(|(key, _), _| *key != session);
        let of_session = self.claims.values().filter(|entry| entry.session.key == session);
        of_session.map(|entry| Entry::clone(entry)).collect()
    }

    /// Claims that have been there for long enough to watch their nodes.
    pub(super) fn take_unwatched(&mut self, now: Moment) -> Vec<Entry> {
        let mut entries = Vec::new();
        while let Some((_, id)) = self.unwatched.front().copied().filter(|(due, _)| *due <= now) {
            self.unwatched.pop_front();
            let entry = self.get(id);
            entries
                .extend(entry.filter(|entry| entry.phase != Phase::Leaving && !entry.is_watched()).cloned());
        }
        entries
    }

    /// Claims whose lease is over, each marked as leaving, to be looked at again at a later time.
    pub(super) fn take_lapsed(&mut self, now: Moment, again_at: Moment) -> Vec<Entry> {
        let mut lapsed = Vec::new();
        for entry in self.claims.values_mut().filter(|entry| entry.lapses <= now) {
            lapsed.push(Entry::clone(entry));
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
