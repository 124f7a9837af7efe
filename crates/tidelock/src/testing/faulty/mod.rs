//! A store that does to its clients what networks, servers and clocks do, driven by a seed.
//!
//! Underneath are the lines of [`line`](crate::model::line). A call travels to the store and its answer
//! travels back; both may take long, and one that was sent arrives even if its sender gave up.
//!
//! | fault | what happens |
//! |---|---|
//! | delay | questions and answers take their time; pushes too, so they overtake each other |
//! | lost question | nothing changes, no answer comes |
//! | lost answer | it changed, no answer comes |
//! | doubled call | it is done again later |
//! | lost push, doubled push | a waiter is not told, or told twice |
//! | cut | a client reaches nothing for a while |
//! | restart | nobody reaches anything for a while; with or without the memory of what was |
//! | restore | an older state of the store is back: what was granted since is unknown, what left is there |
//! | clock step | the wall clock behind the epochs jumps |
//!
//! After a restart without memory, and after a restore, the store keeps the *restart rule*: it grants
//! nothing until the longest ttl in use has passed, so that those who held before have noticed.
#![allow(
    clippy::disallowed_methods,
    reason = "calls under way belong to the simulated network, not to an engine"
)]

mod backend;
mod faults;
mod flaws;
mod network;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;

pub use self::faults::Faults;
use self::{
    backend::{FaultyBackend, Inbox},
    flaws::Flaws,
};
use super::{defect::Defects, order::OrderWatch, rng::Rng};
use crate::{
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Failure, Left, LockView, News, Scope, Share},
    clock::{Clock, Moment},
    model::line::{Effect, Line, StoreTime},
    model::name::Name,
};

/// The store, shared by its clients.
#[derive(Debug)]
pub struct FaultyStore {
    clock: Clock,
    flaws: Flaws,
    /// The mistakes that its lines make.
    defects: Defects,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    faults: Faults,
    lines: BTreeMap<Name, Line>,
    inboxes: BTreeMap<ClientId, mpsc::UnboundedSender<Result<News, Failure>>>,
    cut: HashSet<ClientId>,
    down: bool,
    denies: bool,
    /// What the wall clock shows beyond the lease clock, in µs.
    wall: i64,
    longest_ttl: Duration,
    /// Until when the restart rule holds.
    closed_until: Moment,
    restarts: u64,
    lapsed: usize,
    /// Grants of claims, to find out which one an answer is about.
    epochs: BTreeMap<ClaimId, u64>,
    order: OrderWatch,
    overtaken: Option<String>,
    /// Holds that their client was told are gone, and when.
    told_gone: Vec<(Name, u64, Moment)>,
    /// Holds whose client was told, by the answer to its only leave, that they were not there.
    told_absent: HashSet<(Name, u64)>,
    /// How often each claim was left, by questions that were sent.
    leaves: HashMap<ClaimId, u32>,
    /// Every claim that was ever in line, for restores.
    claims: HashMap<ClaimId, Arc<Claim>>,
    /// The state that a restore brings back.
    backup: BTreeMap<Name, Line>,
}

impl FaultyStore {
    /// A store with these faults.
    pub fn new(seed: u64, faults: Faults, clock: Clock, defects: Defects) -> Arc<Self> {
        let state = State {
            rng: Rng::new(seed),
            faults,
            lines: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            cut: HashSet::new(),
            down: false,
            denies: false,
            wall: 1_000_000_000_000,
            longest_ttl: Duration::ZERO,
            closed_until: Moment::default(),
            restarts: 0,
            lapsed: 0,
            epochs: BTreeMap::new(),
            order: OrderWatch::default(),
            overtaken: None,
            told_gone: Vec::new(),
            told_absent: HashSet::new(),
            leaves: HashMap::new(),
            claims: HashMap::new(),
            backup: BTreeMap::new(),
        };
        Arc::new(Self { clock, flaws: defects.into(), defects, state: Mutex::new(state) })
    }

    /// A client of it.
    pub fn connect(self: &Arc<Self>, client: ClientId) -> Arc<dyn Backend> {
        let (send, receive) = mpsc::unbounded_channel();
        self.state().inboxes.insert(client, send);
        Arc::new(FaultyBackend::new(self, client, Inbox::new(receive)))
    }

    /// Cuts a client off, or lets it through again.
    pub fn cut(&self, client: ClientId, cut: bool) {
        let mut state = self.state();
        if cut {
            state.cut.insert(client);
        } else if state.cut.remove(&client) {
            state.break_inbox(client);
        }
    }

    /// Stops the store.
    pub fn stop(&self) {
        self.state().down = true;
    }

    /// Starts it again, with or without its memory.
    pub fn start(&self, with_memory: bool) {
        let now = self.clock.now();
        let mut state = self.state();
        state.down = false;
        if !with_memory {
            state.lines.clear();
            state.order.restart();
            state.restarts += 1;
            if !self.flaws.skip_restart_rule() {
                state.closed_until = now + state.longest_ttl;
            }
        }
        let clients: Vec<_> = state.inboxes.keys().copied().collect();
        for client in clients {
            state.break_inbox(client);
        }
    }

    /// Keeps the state of now for a later [`restore`](Self::restore).
    pub fn back_up(&self) {
        let mut state = self.state();
        state.backup = state.lines.clone();
    }

    /// Brings an older state back. Those who were in line then are so again, and nobody holds until
    /// the leases of those who may hold now are over.
    pub fn restore(&self) {
        let now = self.clock.now();
        let mut state = self.state();
        let at = self.time(&state, now);
        let older = state.backup.clone();
        state.order.restart();
        if self.flaws.skip_restore_rule() {
            state.lines = older;
            return;
        }
        state.lines.clear();
        state.closed_until = now + state.longest_ttl;
        for (name, line) in older {
            let view = line.look(&name, at);
            for seen in view.holders.iter().chain(&view.waiters) {
                let Some(claim) = state.claims.get(&seen.id).cloned() else { continue };
                self.change(&mut state, &name, now, |line, at, effects| {
                    line.enter(&claim, Ask::Queue, at, effects)
                });
            }
        }
    }

    /// Refuses every call, or none any more.
    pub fn deny(&self, denies: bool) {
        self.state().denies = denies;
    }

    /// Lets the wall clock jump.
    pub fn step_clock(&self, micros: i64) {
        self.state().wall += micros;
    }

    /// Loses all that is known of a name, without a word to anybody.
    pub fn forget(&self, name: &str) {
        self.state().lines.retain(|line, _| line.as_str() != name);
    }

    /// From now on these faults.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults = Faults { delay_ms: state.faults.delay_ms, ..Faults::default() };
    }

    /// How many claims lapsed so far.
    pub fn lapsed(&self) -> usize {
        let now = self.clock.now();
        let mut state = self.state();
        let names: Vec<_> = state.lines.keys().cloned().collect();
        for name in names {
            self.change(&mut state, &name, now, |_, _, _| ());
        }
        state.lapsed
    }

    /// Who overtook whom, if anybody did.
    pub fn overtaken(&self) -> Option<String> {
        self.state().overtaken.clone()
    }

    /// Whether a claim of this client waits.
    pub fn has_waiting(&self, client: ClientId) -> bool {
        self.look(&Scope::All).iter().any(|view| view.waiters.iter().any(|claim| claim.id.client() == client))
    }

    /// Whether the client of this hold was told before `now` that it is gone.
    pub fn was_told_gone(&self, name: &Name, epoch: u64, now: Moment) -> bool {
        let told = &self.state().told_gone;
        told.iter().any(|(gone, at_epoch, at)| gone == name && *at_epoch == epoch && *at < now)
    }

    /// Whether the client of this hold was told, when it left, that it was not there.
    pub fn was_told_absent(&self, name: &Name, epoch: u64) -> bool {
        self.state().told_absent.contains(&(name.clone(), epoch))
    }

    /// What is in line, without any fault.
    pub fn left_behind(&self) -> Vec<LockView> {
        self.look(&Scope::All)
    }

    fn look(&self, scope: &Scope) -> Vec<LockView> {
        let state = self.state();
        let at = self.time(&state, self.clock.now());
        let wanted = |name: &Name| match scope {
            Scope::All => true,
            Scope::Names(names) => names.contains(name),
        };
        let views =
            state.lines.iter().filter(|(name, _)| wanted(name)).map(|(name, line)| line.look(name, at));
        views.filter(|view| !view.holders.is_empty() || !view.waiters.is_empty()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self, state: &State, now: Moment) -> StoreTime {
        let forgets = state.restarts > 0 && self.flaws.begin_epochs_anew();
        let micros = if forgets { 0 } else { now.as_nanos() as i64 / 1_000 + state.wall };
        StoreTime { lease: now, micros: micros.max(0) as u64 }
    }

    fn change<T>(
        &self,
        state: &mut State,
        name: &Name,
        now: Moment,
        change: impl FnOnce(&mut Line, StoreTime, &mut Vec<Effect>) -> T,
    ) -> T {
        let at = self.time(state, now);
        let mut effects = Vec::new();
        let closed_for = state.closed_until.since(now);
        let line = state.lines.entry(name.clone()).or_insert_with(|| {
            let mut line = Line::with_defects(self.defects);
            if !closed_for.is_zero() {
                // The restart rule: nobody holds before earlier holders have noticed.
                line.enter(&nobody(name, closed_for), Ask::Queue, at, &mut Vec::new());
            }
            line
        });
        let before = line.len();
        line.reap(at, &mut effects);
        state.lapsed += before - line.len();
        // Looked at twice: who got the lock because others lapsed may leave in the same breath.
        let mut watched = state.order.look(&line.look(name, at));
        let answer = change(line, at, &mut effects);
        watched = watched.and_then(|()| state.order.look(&line.look(name, at)));
        if let Err(overtaken) = watched {
            state.overtaken.get_or_insert(overtaken);
        }
        for effect in effects {
            self.push(state, name, effect, now);
        }
        answer
    }
}

impl State {
    fn break_inbox(&mut self, client: ClientId) {
        if let Some(inbox) = self.inboxes.get(&client) {
            let _ = inbox.send(Err(Failure::unreachable("the connection broke")));
        }
    }

    /// The client of a claim hears what its leave found.
    fn note_left(&mut self, name: &Name, id: ClaimId, left: Left) {
        // Of several leaves an earlier one may have found it.
        if left == Left::Absent
            && self.leaves.get(&id) == Some(&1)
            && let Some(epoch) = self.epochs.get(&id)
        {
            self.told_absent.insert((name.clone(), *epoch));
        }
    }

    fn note_gone(&mut self, name: &Name, id: ClaimId, at: Moment) {
        if let Some(epoch) = self.epochs.get(&id) {
            self.told_gone.push((name.clone(), *epoch, at));
        }
    }
}

/// The claim that stands first after a restart without memory.
fn nobody(name: &Name, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim {
        id: ClaimId::from_u128(0),
        name: name.clone(),
        share: Share::Exclusive,
        owner: None,
        ttl,
        label: "restart rule".into(),
        detached: false,
        writes: false,
        auto_renew: true,
    })
}
