//! What a client knows of its own claims, and what it watches for them. No I/O: what is to be sent goes into
//! the stream's queue, what is to be read again and what is to be told is kept until it is taken.
//!
//! | file | what |
//! |---|---|
//! | `mod` | a claim from the first question until it is forgotten |
//! | `few` | the claims of a line, of which there is nearly always one |
//! | `standing` | how a claim stands, after its line was read |
//! | `unmoved` | whether a claim waits as it did, without its line |
//! | `watches` | which lines and keys are watched |
//! | `covered` | which holds the stream of watches would have told the end of |
//! | `heard` | what follows from what the stream of watches says |
//! | `upkeep` | what is to be done, told or read again |
//!
//! A claim that waits knows who is ahead. Nobody can come ahead of it later, so what it hears of those that go
//! away is enough to know when it holds, without another question. Only a hold with an owner can go on by a claim
//! that came later: where there is one ahead, the line is read again.
//!
//! With few ahead all of a line is watched, by one watch that is kept while the lock is in use. A claim
//! further back watches its own key and the one some places ahead: what happens at the head of a long line is
//! told to few.

mod covered;
mod few;
mod heard;
mod standing;
#[cfg(test)]
mod tests;
mod unmoved;
mod upkeep;
mod watches;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{mpsc::UnboundedSender, watch};

pub(super) use self::covered::Progress;
pub(super) use self::watches::watch_request;
use self::{few::Few, watches::Watch};
use super::{
    codec::{Contender, Space},
    leave::LATEST,
    proto::WatchRequest,
};
use crate::{
    backend::{Claim, ClaimId, News},
    backends::shared::order::count,
    clock::Moment,
    model::name::Name,
};

/// A hold that ends sooner is not worth a watch.
const YOUNG: Duration = Duration::from_millis(100);
/// How long a watch is kept for the next claim.
const LINGER: Duration = Duration::from_secs(2);
/// After how long a claim is given back once more that is still there.
const UNLEFT: Duration = Duration::from_secs(10);
/// How many busy lines are remembered.
const BUSY: usize = 1_024;

/// The claims of a client.
#[derive(Debug)]
pub(super) struct Claims {
    space: Arc<Space>,
    /// Boxed, as the watches are: of a large map half of the room is unused.
    lines: HashMap<Name, Box<Line>>,
    watches: HashMap<i64, Box<Watch>>,
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
    /// When a claim was last forgotten.
    forgot: Option<Moment>,
    /// How far the stream said that it is.
    progress: watch::Sender<Progress>,
}

/// A line that this client has claims in, or had lately. A process may hold very many locks, so what most of them do
/// not need is apart, and keys are made when they are needed.
#[derive(Debug, Default)]
struct Line {
    claims: Few,
    /// The watch of all of it.
    whole: Option<i64>,
    /// Since when there is no claim, and whether it is among the idle.
    idle_since: Moment,
    is_queued: bool,
    long: Option<Box<Long>>,
}

/// What only lines need in which this client has several claims, or waits far back.
#[derive(Debug, Default)]
struct Long {
    /// Numbers of keys below that of the last claim that are not in use.
    free: Vec<u32>,
    /// The watches of single keys.
    single: BTreeMap<Box<[u8]>, i64>,
}

impl Line {
    fn long(&mut self) -> &mut Long {
        self.long.get_or_insert_default()
    }

    /// The watches of single keys.
    fn single(&self) -> impl Iterator<Item = (&[u8], i64)> {
        self.long.iter().flat_map(|long| &long.single).map(|(key, id)| (&**key, *id))
    }

    fn single_of(&self, key: &[u8]) -> Option<i64> {
        self.long.as_ref()?.single.get(key).copied()
    }

    /// All of its watches.
    fn watches(&self) -> impl Iterator<Item = i64> {
        self.whole.into_iter().chain(self.single().map(|(_, id)| id))
    }

    /// It has this watch now, of a key or of all of it.
    fn is_watched_by(&mut self, key: Option<Box<[u8]>>, id: i64) {
        match key {
            None => self.whole = Some(id),
            Some(key) => drop(self.long().single.insert(key, id)),
        }
    }

    /// It does not have this watch any more.
    fn is_not_watched_by(&mut self, id: i64) {
        self.whole.take_if(|whole| *whole == id);
        if let Some(long) = &mut self.long {
            long.single.retain(|_, single| *single != id);
            self.long.take_if(|long| long.single.is_empty() && long.free.is_empty());
        }
    }
}

/// A claim of this client.
#[derive(Debug)]
struct OwnClaim {
    claim: Arc<Claim>,
    /// The number in its key.
    number: u32,
    lease: i64,
    created: i64,
    /// What is added to that for its epoch.
    base: i64,
    /// How many questions for it may still arrive, or arrive once more: those under way, and those that were
    /// given up.
    unanswered: u32,
    /// The revision at which the phase was so.
    known_at: i64,
    /// The watch that tells its end from a reading of its key on; zero if there is none.
    covered_by: i64,
    /// How many waited for it when its line was last read.
    waiting: u32,
    phase: Phase,
}

/// Where a claim is between the first question and its end.
#[derive(Debug)]
enum Phase {
    /// Not answered yet.
    Asking,
    Waiting(Box<Ahead>),
    /// It holds with this epoch.
    Held(i64),
    /// It is being given back, or it was deleted by somebody else.
    Over,
}

/// Those that a claim waits for, in order.
#[derive(Debug)]
struct Ahead(Vec<Contender>);

/// What has to be known to give a claim back.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) key: Vec<u8>,
    pub(super) lease: i64,
    pub(super) created: i64,
    pub(super) may_repeat: bool,
    pub(super) claim: Arc<Claim>,
}

impl Claims {
    pub(super) fn new(space: Arc<Space>) -> Self {
        Self {
            space,
            lines: HashMap::new(),
            watches: HashMap::new(),
            last_watch: 0,
            stream: None,
            young: VecDeque::new(),
            idle: VecDeque::new(),
            unleft: VecDeque::new(),
            stale: HashSet::new(),
            busy: HashSet::new(),
            vanished: Vec::new(),
            news: VecDeque::new(),
            forgot: None,
            progress: watch::Sender::default(),
        }
    }

    /// A claim is about to be asked for. Says under which lease that was done before, if it was.
    pub(super) fn lease_of(&self, claim: &Claim) -> Option<i64> {
        let own = self.lines.get(&claim.name)?.claims.get(claim.id)?;
        Some(own.lease).filter(|lease| *lease != 0)
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
    pub(super) fn answered_in(&self, name: &Name) -> Vec<Arc<Claim>> {
        let own = self.lines.get(name).into_iter().flat_map(|line| line.claims.iter());
        let answered = own.filter(|own| matches!(own.phase, Phase::Waiting(_) | Phase::Held(_)));
        answered.map(|own| Arc::clone(&own.claim)).collect()
    }

    /// A claim is asked for, now. Says under which key.
    pub(super) fn asking(&mut self, claim: &Arc<Claim>, lease: i64) -> Vec<u8> {
        let line = match self.lines.get_mut(&claim.name) {
            Some(line) => line,
            None => self.lines.entry(claim.name.clone()).or_default(),
        };
        if line.claims.get(claim.id).is_none() {
            // One that none of our claims has, not even one that may have left.
            let free = line.long.as_mut().and_then(|long| long.free.pop());
            let number = free.unwrap_or_else(|| count(line.claims.len()));
            let own = OwnClaim {
                claim: Arc::clone(claim),
                number,
                lease,
                created: 0,
                base: 0,
                unanswered: 0,
                known_at: 0,
                covered_by: 0,
                waiting: 0,
                phase: Phase::Asking,
            };
            line.claims.insert(own);
        }
        let Some(own) = line.claims.get_mut(claim.id) else { return Default::default() };
        own.lease = lease;
        own.unanswered += 1;
        own.key(&self.space)
    }

    /// A question for a claim was answered, or never sent.
    pub(super) fn answered(&mut self, claim: &Claim) {
        if let Some(own) = self.get_mut(&claim.name, claim.id) {
            own.unanswered = own.unanswered.saturating_sub(1);
        }
    }

    /// A question for a claim was sent twice, and answered once.
    pub(super) fn may_repeat(&mut self, claim: &Claim) {
        if let Some(own) = self.get_mut(&claim.name, claim.id) {
            own.unanswered += 1;
        }
    }

    /// The question for a claim was not sent: it is not known, unless an earlier one was.
    pub(super) fn forget_unasked(&mut self, claim: &Claim, now: Moment) {
        let own = self.get_mut(&claim.name, claim.id);
        if own.is_some_and(|own| matches!(own.phase, Phase::Asking) && own.unanswered == 0) {
            self.forget(&claim.name, claim.id, now);
        }
    }

    /// Whether something of a claim that did not stay is in line, or may come to be.
    pub(super) fn must_be_left(&mut self, claim: &Claim, now: Moment) -> bool {
        match self.get_mut(&claim.name, claim.id) {
            None => false,
            Some(own) if own.unanswered > 0 || own.created != 0 => true,
            Some(_) => {
                self.forget(&claim.name, claim.id, now);
                false
            }
        }
    }

    /// Whether a claim was never answered.
    pub(super) fn is_asking(&self, claim: &Claim) -> bool {
        let own = self.lines.get(&claim.name).and_then(|line| line.claims.get(claim.id));
        own.is_none_or(|own| matches!(own.phase, Phase::Asking))
    }

    /// A claim is in line.
    pub(super) fn is_there(&mut self, claim: &Claim, found: &Contender) {
        if let Some(own) = self.get_mut(&claim.name, claim.id) {
            if own.came_back(found) {
                // How it stood before is nothing to its new place.
                own.phase = Phase::Asking;
            }
            (own.created, own.base, own.lease) = (found.created, found.base, found.lease);
        }
    }

    /// Whether a claim of this client is known that has this key, or this id.
    pub(super) fn knows(&self, name: &Name, key: &[u8], id: Option<ClaimId>) -> bool {
        let mut own = self.lines.get(name).into_iter().flat_map(|line| line.claims.iter());
        own.any(|own| id == Some(own.claim.id) || self.space.is_key(key, &own.claim, own.number))
    }

    /// Until when a copy of a question may arrive for a claim that is not known any more; none if all are known.
    pub(super) fn copies_until(&self) -> Option<Moment> {
        self.forgot.map(|forgot| forgot + LATEST)
    }

    /// The lease of a claim is over.
    pub(super) fn lease_is_over(&mut self, claim: &Claim) {
        if let Some(own) = self.get_mut(&claim.name, claim.id) {
            own.lease = 0;
        }
    }

    /// Hears how far the stream is.
    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn get_mut(&mut self, name: &Name, id: ClaimId) -> Option<&mut OwnClaim> {
        self.lines.get_mut(name)?.claims.get_mut(id)
    }

    /// Takes a claim that is to be given back.
    pub(super) fn leaving(&mut self, name: &Name, id: ClaimId, now: Moment) -> Option<Leaving> {
        let own = self.get_mut(name, id)?;
        let is_first = !matches!(std::mem::replace(&mut own.phase, Phase::Over), Phase::Over);
        if is_first {
            self.unleft.push_back((now + UNLEFT, name.clone(), id));
        }
        let own = self.lines.get(name)?.claims.get(id)?;
        Some(Leaving {
            key: own.key(&self.space),
            lease: own.lease,
            created: own.created,
            may_repeat: own.unanswered > 0,
            claim: Arc::clone(&own.claim),
        })
    }

    /// A claim is not in line. If a question for it may still arrive it is kept until it was left.
    fn is_gone(&mut self, name: &Name, id: ClaimId, now: Moment) {
        let Some(own) = self.get_mut(name, id) else { return };
        if own.unanswered == 0 {
            self.forget(name, id, now);
        } else if !matches!(std::mem::replace(&mut own.phase, Phase::Over), Phase::Over) {
            self.unleft.push_back((now + UNLEFT, name.clone(), id));
        }
    }

    /// A claim is not in line any more, and will not be.
    pub(super) fn forget(&mut self, name: &Name, id: ClaimId, now: Moment) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let Some(gone) = line.claims.remove(id) else { return };
        self.forgot = Some(now);
        if !line.claims.is_empty() {
            line.long().free.push(gone.number);
            return;
        }
        if let Some(long) = &mut line.long {
            long.free.clear();
            line.long.take_if(|long| long.single.is_empty());
        }
        if line.whole.is_some() {
            line.idle_since = now;
            if !std::mem::replace(&mut line.is_queued, true) {
                self.idle.push_back((now + LINGER, name.clone()));
            }
        } else {
            self.forget_line(name);
        }
    }

    /// Nothing is watched for a line any more.
    fn forget_line(&mut self, name: &Name) {
        let line = self.lines.remove(name);
        for watch in line.iter().flat_map(|line| line.watches()) {
            self.cancel(watch);
        }
    }

    /// Whether a claim waits, as far as is known.
    pub(super) fn waits(&self, name: &Name, id: ClaimId) -> bool {
        let own = self.lines.get(name).and_then(|line| line.claims.get(id));
        own.is_some_and(|own| matches!(own.phase, Phase::Waiting(_)))
    }
}

impl OwnClaim {
    /// Whether it has another place than the one that it was last told of: its key was deleted, and a question that was
    /// repeated, or a copy of it, put it back.
    fn came_back(&self, found: &Contender) -> bool {
        matches!(self.phase, Phase::Waiting(_) | Phase::Held(_)) && found.created > self.created
    }

    fn key(&self, space: &Space) -> Vec<u8> {
        space.key(&self.claim, self.number)
    }
}
