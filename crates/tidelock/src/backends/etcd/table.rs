//! What a client knows of its own claims, and what it watches for them. No I/O: what is to be sent goes into
//! the stream's queue, what is to be read again and what is to be told is kept until somebody takes it.
//!
//! A claim that waits knows who is ahead. Nobody can come ahead of it later, so what it hears of those that go
//! away is enough to know when it holds, without another question. Only a hold with an owner can go on by a claim
//! that came later: where there is one ahead, the line is read again.
//!
//! With few ahead all of a line is watched, by one watch that is kept while the lock is in use. Whoever stands
//! further back watches its own key and the one some places ahead: what happens at the head of a long line is
//! told to few.

mod watches;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::mpsc::UnboundedSender;

use self::watches::Watch;
pub(super) use self::watches::watch_request;
use super::{
    codec::{Seen, Space},
    proto::{EventType, WatchRequest, WatchResponse, revision},
    rules::{Order, order},
};
use crate::{
    backend::{Claim, ClaimId, Failure, Grant, News, What},
    clock::Moment,
    name::Name,
};

/// How many may be ahead of a claim that watches all of its line.
const NEAR: usize = 8;
/// A hold that ends sooner is not worth a watch.
const YOUNG: Duration = Duration::from_millis(100);
/// How long a watch is kept for the next claim.
const LINGER: Duration = Duration::from_secs(2);
/// After how long a claim is given back once more that is still there.
const UNLEFT: Duration = Duration::from_secs(10);
/// How many busy lines are remembered.
const BUSY: usize = 1_024;
/// How many events a watch remembers, for answers that they overtook.
const RECENT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Table {
    lines: HashMap<Name, Line>,
    watches: HashMap<i64, Watch>,
    last_watch: i64,
    /// The stream's queue, while there is a stream.
    stream: Option<UnboundedSender<WatchRequest>>,
    /// Holds that may be over soon.
    young: VecDeque<(Moment, Name, ClaimId)>,
    /// Lines that may be used again soon.
    idle: VecDeque<(Moment, Name)>,
    /// Claims that should be gone soon. Their lease would keep them for as long as others are renewed.
    unleft: VecDeque<(Moment, Name, ClaimId)>,
    /// Lines that have to be read again.
    stale: HashSet<Name>,
    /// Lines that were busy when they were last tried.
    busy: HashSet<Name>,
    /// Claims whose key was deleted by somebody else.
    vanished: Vec<(Name, ClaimId)>,
    news: VecDeque<News>,
}

#[derive(Debug, Default)]
struct Line {
    mine: HashMap<ClaimId, Mine>,
    /// Numbers of keys below that of the last claim that are not in use.
    free: Vec<usize>,
    /// The watch of all of it.
    whole: Option<i64>,
    /// The watches of single keys.
    single: HashMap<Vec<u8>, i64>,
    /// Since when there is no claim, and whether it is among the idle.
    idle_since: Moment,
    is_queued: bool,
}

/// A claim of this client.
#[derive(Debug)]
struct Mine {
    claim: Arc<Claim>,
    key: Vec<u8>,
    /// The number in its key.
    number: usize,
    lease: i64,
    created: i64,
    /// How many questions for it may still arrive, or arrive once more: those under way, and those that were
    /// given up.
    unanswered: u32,
    /// The revision at which the state was so.
    known_at: i64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not answered yet.
    Asking,
    Waiting(Vec<Seen>),
    Held(i64),
    /// It is being given back, or it was deleted by somebody else.
    Over,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Held { epoch: i64, waiting: usize },
    Waiting { ahead: usize },
    Gone,
}

/// What has to be known to give a claim back.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) key: Vec<u8>,
    pub(super) lease: i64,
    pub(super) created: i64,
    pub(super) may_repeat: bool,
    pub(super) claim: Arc<Claim>,
}

impl Table {
    /// A claim is about to be asked for. Says under which lease that was done before, if it was.
    pub(super) fn lease_of(&self, claim: &Claim) -> Option<i64> {
        let mine = self.lines.get(&claim.name)?.mine.get(&claim.id)?;
        Some(mine.lease).filter(|lease| *lease != 0)
    }

    /// Whether the last try of a line found it busy.
    pub(super) fn is_busy(&self, name: &Name) -> bool {
        self.busy.contains(name)
    }

    /// What a try found.
    pub(super) fn tried(&mut self, name: &Name, is_busy: bool) {
        if !is_busy {
            self.busy.remove(name);
        } else if !self.busy.contains(name) {
            if self.busy.len() >= BUSY {
                // It only says what to ask first.
                self.busy.clear();
            }
            self.busy.insert(name.clone());
        }
    }

    /// Our claims in a line that have been answered.
    pub(super) fn claims_in(&self, name: &Name) -> Vec<Arc<Claim>> {
        let mine = self.lines.get(name).into_iter().flat_map(|line| line.mine.values());
        let answered = mine.filter(|mine| matches!(mine.state, State::Waiting(_) | State::Held(_)));
        answered.map(|mine| Arc::clone(&mine.claim)).collect()
    }

    /// A claim is asked for, now. Says under which key.
    pub(super) fn asking(&mut self, space: &Space, claim: &Arc<Claim>, lease: i64) -> Vec<u8> {
        let line = match self.lines.get_mut(&claim.name) {
            Some(line) => line,
            None => self.lines.entry(claim.name.clone()).or_default(),
        };
        if !line.mine.contains_key(&claim.id) {
            // One that none of our claims has, not even one that may have left.
            let number = line.free.pop().unwrap_or(line.mine.len());
            let mine = Mine {
                claim: Arc::clone(claim),
                key: space.key(claim, number),
                number,
                lease,
                created: 0,
                unanswered: 0,
                known_at: 0,
                state: State::Asking,
            };
            line.mine.insert(claim.id, mine);
        }
        let Some(mine) = line.mine.get_mut(&claim.id) else { return Default::default() };
        mine.lease = lease;
        mine.unanswered += 1;
        mine.key.clone()
    }

    /// A question for a claim was answered, or never sent.
    pub(super) fn answered(&mut self, claim: &Claim) {
        if let Some(mine) = self.mine(&claim.name, claim.id) {
            mine.unanswered = mine.unanswered.saturating_sub(1);
        }
    }

    /// A question for a claim was sent twice, and answered once.
    pub(super) fn may_repeat(&mut self, claim: &Claim) {
        if let Some(mine) = self.mine(&claim.name, claim.id) {
            mine.unanswered += 1;
        }
    }

    /// The question for a claim was not sent: it is not known, unless an earlier one was.
    pub(super) fn forget_unasked(&mut self, claim: &Claim, now: Moment) {
        let mine = self.mine(&claim.name, claim.id);
        if mine.is_some_and(|mine| matches!(mine.state, State::Asking) && mine.unanswered == 0) {
            self.forget(&claim.name, claim.id, now);
        }
    }

    /// Whether something of a claim that did not stay is in line, or may come to be.
    pub(super) fn must_be_left(&mut self, claim: &Claim, now: Moment) -> bool {
        match self.mine(&claim.name, claim.id) {
            None => false,
            Some(mine) if mine.unanswered > 0 || mine.created != 0 => true,
            Some(_) => {
                self.forget(&claim.name, claim.id, now);
                false
            }
        }
    }

    /// Whether the listener has something to do that it may not know of.
    pub(super) fn is_restless(&self) -> bool {
        self.young.len() == 1 || !self.stale.is_empty() || !self.news.is_empty()
    }

    /// Whether a claim was never answered.
    pub(super) fn is_asking(&self, claim: &Claim) -> bool {
        let mine = self.lines.get(&claim.name).and_then(|line| line.mine.get(&claim.id));
        mine.is_none_or(|mine| matches!(mine.state, State::Asking))
    }

    /// A claim is in line.
    pub(super) fn is_there(&mut self, claim: &Claim, seen: &Seen) {
        if let Some(mine) = self.mine(&claim.name, claim.id) {
            (mine.created, mine.lease) = (seen.created, seen.lease);
        }
    }

    /// The lease of a claim is over.
    pub(super) fn lease_is_over(&mut self, claim: &Claim) {
        if let Some(mine) = self.mine(&claim.name, claim.id) {
            mine.lease = 0;
        }
    }

    fn mine(&mut self, name: &Name, id: ClaimId) -> Option<&mut Mine> {
        self.lines.get_mut(name)?.mine.get_mut(&id)
    }

    /// The line was read: notes how a claim of ours stands, and watches what it has to.
    pub(super) fn stands(
        &mut self,
        space: &Space,
        (name, id): (&Name, ClaimId),
        (seen, order): (&[Seen], &Order),
        at: i64,
        now: Moment,
    ) -> Stand {
        let Some(index) = seen.iter().position(|claim| claim.id == id) else {
            self.is_gone(name, id, now);
            return Stand::Gone;
        };
        let me = &seen[index];
        let holds = order.holders.contains(&index);
        let waiting = order.waiters.len();
        let Some(mine) = self.mine(name, id) else {
            // Of somebody else, who left it to us.
            return if holds {
                Stand::Held { epoch: me.hold(), waiting }
            } else {
                Stand::Waiting { ahead: ahead_of(index, order).count() }
            };
        };
        (mine.created, mine.lease) = (me.created, me.lease);
        match mine.state {
            State::Over => return Stand::Gone,
            // A reading may be older than what was heard: who holds goes on holding.
            State::Held(epoch) => {
                mine.known_at = mine.known_at.max(at);
                return Stand::Held { epoch, waiting };
            }
            State::Asking | State::Waiting(_) if holds => {
                mine.known_at = at;
                mine.state = State::Held(me.hold());
                self.young.push_back((now + YOUNG, name.clone(), id));
                return Stand::Held { epoch: me.hold(), waiting };
            }
            State::Asking | State::Waiting(_) => {}
        }
        let ahead: Vec<_> = ahead_of(index, order).map(|index| seen[index].clone()).collect();
        let count = ahead.len();
        mine.known_at = at;
        mine.state = State::Waiting(ahead);
        if order.is_boarding {
            // That it is done is written, and only what is deleted is heard.
            self.stale.insert(name.clone());
        }
        self.watch(space, name);
        self.catch_up(name, id, now).unwrap_or(Stand::Waiting { ahead: count })
    }

    /// What was heard since the line was read, before anybody knew what to make of it.
    fn catch_up(&mut self, name: &Name, id: ClaimId, now: Moment) -> Option<Stand> {
        let line = self.lines.get_mut(name)?;
        let mine = line.mine.get_mut(&id)?;
        let known_at = mine.known_at;
        let mut heard = Vec::new();
        for watch in line.whole.iter().chain(line.single.values()).filter_map(|id| self.watches.get(id)) {
            let Some(covers) = watch.covers else { continue };
            if covers.max(watch.forgotten) > known_at {
                self.stale.insert(name.clone());
            }
            heard.extend(watch.recent.iter().filter(|(at, _)| *at > known_at).cloned());
        }
        for (at, key) in heard {
            if key == mine.key {
                self.is_gone(name, id, now);
                return Some(Stand::Gone);
            }
            if mine.passes(&key, at) {
                let epoch = mine.created;
                self.young.push_back((now + YOUNG, name.clone(), id));
                return Some(Stand::Held { epoch, waiting: 1 });
            }
        }
        None
    }

    /// Takes a claim that is to be given back.
    pub(super) fn leaving(&mut self, name: &Name, id: ClaimId, now: Moment) -> Option<Leaving> {
        let mine = self.mine(name, id)?;
        let is_first = !matches!(std::mem::replace(&mut mine.state, State::Over), State::Over);
        if is_first {
            self.unleft.push_back((now + UNLEFT, name.clone(), id));
        }
        let mine = self.mine(name, id)?;
        Some(Leaving {
            key: mine.key.clone(),
            lease: mine.lease,
            created: mine.created,
            may_repeat: mine.unanswered > 0,
            claim: Arc::clone(&mine.claim),
        })
    }

    /// A claim is not in line. If a question for it may still arrive it is kept until it was left.
    fn is_gone(&mut self, name: &Name, id: ClaimId, now: Moment) {
        let Some(mine) = self.mine(name, id) else { return };
        if mine.unanswered == 0 {
            self.forget(name, id, now);
        } else if !matches!(std::mem::replace(&mut mine.state, State::Over), State::Over) {
            self.unleft.push_back((now + UNLEFT, name.clone(), id));
        }
    }

    /// A claim is not in line any more, and will not be.
    pub(super) fn forget(&mut self, name: &Name, id: ClaimId, now: Moment) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let Some(gone) = line.mine.remove(&id) else { return };
        if !line.mine.is_empty() {
            line.free.push(gone.number);
            return;
        }
        line.free.clear();
        if line.whole.is_some() {
            line.idle_since = now;
            if !std::mem::replace(&mut line.is_queued, true) {
                self.idle.push_back((now + LINGER, name.clone()));
            }
        } else {
            let single: Vec<_> = line.single.drain().map(|(_, id)| id).collect();
            self.lines.remove(name);
            for watch in single {
                self.cancel(watch);
            }
        }
    }

    /// The stream said something.
    ///
    /// # Errors
    /// It refuses to go on.
    pub(super) fn heard(&mut self, response: WatchResponse, now: Moment) -> Result<(), Failure> {
        let id = response.watch_id;
        let Some(watch) = self.watches.get_mut(&id) else {
            // Over, or never needed: nobody waits for it.
            return Ok(());
        };
        if response.canceled {
            return self.refused(id, &response);
        }
        if response.created {
            let covers = if watch.from == 0 { revision(response.header.as_ref()) } else { watch.from - 1 };
            watch.covers = Some(covers);
            let name = watch.name.clone();
            let is_stale =
                |mine: &Mine| !matches!(mine.state, State::Asking | State::Over) && mine.known_at < covers;
            if self.lines.get(&name).is_some_and(|line| line.mine.values().any(is_stale)) {
                self.stale.insert(name);
            }
        }
        for event in response.events {
            if event.r#type == i32::from(EventType::Delete)
                && let Some(kv) = event.kv
            {
                self.deleted(id, kv.key, kv.mod_revision, now);
            }
        }
        Ok(())
    }

    /// A key was deleted at a revision.
    fn deleted(&mut self, watch: i64, key: Vec<u8>, at: i64, now: Moment) {
        let Some(watch) = self.watches.get_mut(&watch) else { return };
        watch.recent.push_back((at, key.clone()));
        if watch.recent.len() > RECENT
            && let Some((forgotten, _)) = watch.recent.pop_front()
        {
            watch.forgotten = forgotten;
        }
        let (name, is_single) = (watch.name.clone(), watch.range.1.is_empty());
        let Some(line) = self.lines.get_mut(&name) else { return };
        for mine in line.mine.values_mut() {
            let id = mine.claim.id;
            if mine.key == key {
                if matches!(mine.state, State::Waiting(_) | State::Held(_)) && at > mine.created {
                    mine.state = State::Over;
                    self.vanished.push((name.clone(), id));
                    self.unleft.push_back((now + UNLEFT, name.clone(), id));
                }
                continue;
            }
            let State::Waiting(ahead) = &mine.state else { continue };
            if !ahead.iter().any(|other| other.key == key && other.created < at) {
                continue;
            }
            if mine.passes(&key, at) {
                let grant = Grant { epoch: mine.created as u64, ttl: mine.claim.ttl, waiting: 1 };
                self.news.push_back(News { name: name.clone(), id, what: What::Granted(grant) });
                self.young.push_back((now + YOUNG, name.clone(), id));
            } else if is_single || mine.may_be_passed_unheard() {
                self.stale.insert(name.clone());
            }
        }
    }

    /// Takes the lines that have to be read again.
    pub(super) fn take_stale(&mut self) -> Vec<Name> {
        self.stale.drain().collect()
    }

    /// Takes the claims that should be gone by now and may not be.
    pub(super) fn take_unleft(&mut self, now: Moment) -> Vec<(Name, ClaimId)> {
        let mut unleft = Vec::new();
        while self.unleft.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, name, id)) = self.unleft.pop_front() else { break };
            if self.mine(&name, id).is_some() {
                self.unleft.push_back((now + UNLEFT, name.clone(), id));
                unleft.push((name, id));
            }
        }
        unleft
    }

    /// Takes the claims whose key was deleted by somebody else.
    pub(super) fn take_vanished(&mut self) -> Vec<(Name, ClaimId)> {
        std::mem::take(&mut self.vanished)
    }

    pub(super) fn tell(&mut self, name: &Name, id: ClaimId, what: What) {
        self.news.push_back(News { name: name.clone(), id, what });
    }

    pub(super) fn take_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// When there is something to do about time: a little later than it could be done, so that many claims need
    /// one look, and not one each.
    pub(super) fn due(&self) -> Option<Moment> {
        let young = self.young.front().map(|(due, ..)| *due + YOUNG / 2);
        let idle = self.idle.front().map(|(due, _)| *due + LINGER / 4);
        let unleft = self.unleft.front().map(|(due, ..)| *due + UNLEFT / 10);
        young.into_iter().chain(idle).chain(unleft).min()
    }

    /// Watches the holds that have grown up, and stops to watch lines that are not used any more.
    pub(super) fn pass_time(&mut self, space: &Space, now: Moment) {
        while self.young.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, name, id)) = self.young.pop_front() else { break };
            if let Some(mine) = self.mine(&name, id)
                && matches!(mine.state, State::Held(_))
            {
                let from = mine.known_at + 1;
                self.watch_whole(space, &name, from);
            }
        }
        while self.idle.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, name)) = self.idle.pop_front() else { break };
            let Some(line) = self.lines.get_mut(&name) else { continue };
            line.is_queued = false;
            if !line.mine.is_empty() {
                continue;
            }
            let due = line.idle_since + LINGER;
            if due > now {
                line.is_queued = true;
                self.idle.push_back((due, name));
                continue;
            }
            let watches: Vec<_> = line.whole.into_iter().chain(line.single.values().copied()).collect();
            self.lines.remove(&name);
            for watch in watches {
                self.cancel(watch);
            }
        }
    }

    /// The key of a claim is not there, though nobody of us deleted it.
    pub(super) fn vanishes(&mut self, name: &Name, id: ClaimId, now: Moment) {
        if let Some(mine) = self.mine(name, id)
            && matches!(mine.state, State::Waiting(_) | State::Held(_))
        {
            mine.state = State::Over;
            self.vanished.push((name.clone(), id));
            self.unleft.push_back((now + UNLEFT, name.clone(), id));
        }
    }

    /// Whether a claim waits, as far as is known.
    pub(super) fn waits(&self, name: &Name, id: ClaimId) -> bool {
        let mine = self.lines.get(name).and_then(|line| line.mine.get(&id));
        mine.is_some_and(|mine| matches!(mine.state, State::Waiting(_)))
    }
}

impl Mine {
    /// Somebody ahead went away. Says whether this claim holds now, as far as that can be known from here.
    fn passes(&mut self, key: &[u8], at: i64) -> bool {
        let State::Waiting(ahead) = &mut self.state else { return false };
        if ahead.iter().any(|other| other.owner.is_some()) || self.claim.owner.is_some() {
            return false;
        }
        ahead.retain(|other| other.key != key || other.created > at);
        let holds = ahead.is_empty() || {
            let mut line = ahead.clone();
            line.push(Seen { created: self.created, ..Seen::last(&self.claim) });
            order(&line).holders.contains(&(line.len() - 1))
        };
        if holds {
            self.state = State::Held(self.created);
        }
        holds
    }

    /// Whether this claim may come to hold by what is not known here.
    fn may_be_passed_unheard(&self) -> bool {
        match &self.state {
            State::Waiting(ahead) => {
                self.claim.owner.is_some() || ahead.iter().any(|other| other.owner.is_some())
            }
            State::Asking | State::Held(_) | State::Over => false,
        }
    }
}

/// Those ahead of a claim that waits.
fn ahead_of(index: usize, order: &Order) -> impl Iterator<Item = usize> {
    let waiters = order.waiters.iter().take_while(move |waiter| **waiter != index);
    order.holders.iter().chain(waiters).copied()
}
