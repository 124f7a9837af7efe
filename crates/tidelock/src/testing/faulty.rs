//! A store that does to its clients what networks, servers and clocks do, driven by a seed.
//!
//! Underneath are the lines of [`line`](crate::line). A call travels to the store and its answer
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
//! | clock step | the wall clock behind the epochs jumps |
//!
//! After a restart without memory the store keeps the *restart rule*: it grants nothing until the
//! longest ttl in use has passed, so that whoever held before has noticed.
#![allow(
    clippy::disallowed_methods,
    reason = "calls under way belong to the simulated network, not to an engine"
)]

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{order::OrderWatch, rng::Rng};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Leave, LockView, News,
        Scope, Share, Standing, TokenGrade, What,
    },
    clock::{Clock, Moment},
    defect::{Defect, Defects},
    line::{Effect, Line, StoreTime},
    name::Name,
};

/// How often what goes wrong, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Answers that come at once, without travelling.
    pub instant: u64,
    /// The usual longest journey, in ms.
    pub delay_ms: u64,
    /// Journeys that take up to `long_ms`.
    pub long: u64,
    /// How long those take at most, in ms.
    pub long_ms: u64,
    /// Questions that are lost.
    pub lost_question: u64,
    /// Answers that are lost.
    pub lost_answer: u64,
    /// Calls that are done twice.
    pub doubled: u64,
    /// Pushes that are lost.
    pub lost_push: u64,
    /// Pushes that come twice.
    pub doubled_push: u64,
}

/// The store, shared by its clients.
#[derive(Debug)]
pub struct FaultyStore {
    clock: Clock,
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
            wall: 1_000_000_000_000,
            longest_ttl: Duration::ZERO,
            closed_until: Moment::default(),
            restarts: 0,
            lapsed: 0,
            epochs: BTreeMap::new(),
            order: OrderWatch::default(),
            overtaken: None,
            told_gone: Vec::new(),
        };
        Arc::new(Self { clock, defects, state: Mutex::new(state) })
    }

    /// A client of it.
    pub fn connect(self: &Arc<Self>, client: ClientId) -> Arc<dyn Backend> {
        let (send, receive) = mpsc::unbounded_channel();
        self.state().inboxes.insert(client, send);
        let inbox = Arc::new(tokio::sync::Mutex::new(receive));
        let abilities = Abilities {
            store: "faulty",
            token: TokenGrade::TimeAssisted,
            push: true,
            fair: true,
            reentry: true,
            permits: Ok(()),
            min_ttl: Duration::from_millis(20),
            renew_batch: 8,
        };
        Arc::new(FaultyBackend { store: Arc::clone(self), client, inbox, abilities })
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
            if !self.defects.has(Defect::NoRestartRule) {
                state.closed_until = now + state.longest_ttl;
            }
        }
        let clients: Vec<_> = state.inboxes.keys().copied().collect();
        for client in clients {
            state.break_inbox(client);
        }
    }

    /// Lets the wall clock jump.
    pub fn step_clock(&self, micros: i64) {
        self.state().wall += micros;
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
        let forgets = state.restarts > 0 && self.defects.has(Defect::EpochFromZero);
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
                // The restart rule: nobody holds before whoever held has noticed.
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

    fn push(&self, state: &mut State, name: &Name, effect: Effect, now: Moment) {
        let client = effect.id.client();
        let Faults { lost_push, doubled_push, .. } = state.faults;
        if let What::Granted(grant) = effect.what {
            state.epochs.insert(effect.id, grant.epoch);
        }
        let lost = state.rng.chance(lost_push) || state.cut.contains(&client) || state.down;
        let copies = if state.rng.chance(doubled_push) { 2 } else { 1 };
        let Some(inbox) = state.inboxes.get(&client).filter(|_| !lost).cloned() else { return };
        for _ in 0..copies {
            let (journey, inbox) = (state.journey(), inbox.clone());
            let news = News { name: name.clone(), id: effect.id, what: effect.what.clone() };
            if matches!(effect.what, What::Evicted(_)) {
                state.note_gone(name, effect.id, now + journey);
            }
            tokio::spawn(async move {
                tokio::time::sleep(journey).await;
                // A client that is gone hears nothing.
                let _ = inbox.send(Ok(news));
            });
        }
    }

    /// Sends a call over the simulated network.
    fn send<T: Clone + Unpin + Send + 'static>(
        self: &Arc<Self>,
        client: ClientId,
        work: impl Fn(&Self, &mut State, Moment) -> T + Send + 'static,
        arrived: impl FnOnce(&mut State, &T, Moment) + Send + 'static,
    ) -> Call<T> {
        let mut state = self.state();
        if state.down {
            return Call::now(Err(Failure::unreachable("the store is down")));
        }
        let Faults { instant, lost_question, lost_answer, doubled, .. } = state.faults;
        if state.rng.chance(instant) && !state.cut.contains(&client) {
            let answer = work(self, &mut state, self.clock.now());
            arrived(&mut state, &answer, self.clock.now());
            return Call::now(Ok(answer));
        }
        let lost = state.rng.chance(lost_question);
        let deaf = state.rng.chance(lost_answer);
        let again = state.rng.chance(doubled).then(|| state.journey() * 8);
        let (there, back) = (state.journey(), state.journey());
        drop(state);
        let store = Arc::clone(self);
        let (tell, hear) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(there).await;
            let answer = if lost { None } else { store.arrive(client, &work) };
            if let (Some(later), true) = (again, answer.is_some()) {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    tokio::time::sleep(later).await;
                    store.arrive(client, &work);
                });
            }
            tokio::time::sleep(back).await;
            let deaf = deaf || store.state().cut.contains(&client);
            match answer {
                // Nobody hears an answer that comes after its time.
                Some(answer) if !deaf && !tell.is_closed() => {
                    arrived(&mut store.state(), &answer, store.clock.now());
                    let _ = tell.send(answer);
                }
                // As with a dead connection: nobody says that there is no answer.
                _ => std::future::pending().await,
            }
        });
        Call::later(async { hear.await.map_err(|_| Failure::unknown("the connection broke")) })
    }

    fn arrive<T>(&self, client: ClientId, work: &impl Fn(&Self, &mut State, Moment) -> T) -> Option<T> {
        let mut state = self.state();
        (!state.down && !state.cut.contains(&client)).then(|| work(self, &mut state, self.clock.now()))
    }
}

impl State {
    fn journey(&mut self) -> Duration {
        let Faults { delay_ms, long, long_ms, .. } = self.faults;
        let most = if self.rng.chance(long) { long_ms } else { delay_ms };
        self.rng.millis(0, most)
    }

    fn break_inbox(&mut self, client: ClientId) {
        if let Some(inbox) = self.inboxes.get(&client) {
            let _ = inbox.send(Err(Failure::unreachable("the connection broke")));
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

/// A client of a [`FaultyStore`].
#[derive(Debug)]
struct FaultyBackend {
    store: Arc<FaultyStore>,
    client: ClientId,
    inbox: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Result<News, Failure>>>>,
    abilities: Abilities,
}

impl Backend for FaultyBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let mut claim = Arc::clone(claim);
        let twice = self.store.defects.has(Defect::EnterTwice);
        let mut asked_before = false;
        {
            let mut state = self.store.state();
            state.longest_ttl = state.longest_ttl.max(claim.ttl);
            if twice && let Some(line) = state.lines.get(&claim.name) {
                let at = self.store.time(&state, self.store.clock.now());
                let view = line.look(&claim.name, at);
                asked_before = view.holders.iter().chain(&view.waiters).any(|seen| seen.id == claim.id);
            }
        }
        if asked_before {
            let id = ClaimId::from_u128(claim.id.get() ^ 1 << 63);
            claim = Arc::new(Claim { id, ..(*claim).clone() });
        }
        let work = move |store: &FaultyStore, state: &mut State, now| {
            let answer = store
                .change(state, &claim.name, now, |line, at, effects| line.enter(&claim, ask, at, effects));
            if let Entered::Held(grant) = answer {
                state.epochs.insert(claim.id, grant.epoch);
            }
            answer
        };
        self.store.send(self.client, work, |_, _, _| ())
    }

    fn wait(&self) -> Call<News> {
        let inbox = Arc::clone(&self.inbox);
        Call::later(async move {
            let news = inbox.lock().await.recv().await;
            news.unwrap_or_else(|| Err(Failure::unreachable("the store was dropped")))
        })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let claims = claims.to_vec();
        let about = claims.clone();
        let work = move |store: &FaultyStore, state: &mut State, now| {
            let renew = |claim: &Arc<Claim>| {
                store.change(state, &claim.name, now, |line, at, effects| line.renew(claim.id, at, effects))
            };
            claims.iter().map(renew).collect::<Vec<_>>()
        };
        let arrived = move |state: &mut State, standings: &Vec<Standing>, now| {
            for (claim, standing) in about.iter().zip(standings) {
                if *standing == Standing::Gone {
                    state.note_gone(&claim.name, claim.id, now);
                }
            }
        };
        self.store.send(self.client, work, arrived)
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<()> {
        let name = name.clone();
        let work = move |store: &FaultyStore, state: &mut State, now: Moment| {
            store.change(state, &name, now, |line, at, effects| {
                let holder = || line.look(&name, at).holders.first().map(|holder| holder.id);
                let id = if store.defects.has(Defect::LeaveWithoutId) { holder().unwrap_or(id) } else { id };
                line.leave(id, why.clone(), at, effects);
            });
        };
        self.store.send(self.client, work, |_, _, _| ())
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let scope = scope.clone();
        let views = self.store.look(&scope);
        self.store.send(self.client, move |_, _, _| views.clone(), |_, _, _| ())
    }
}
