//! Watching a store: what is held and waited for, and what happens, for all who want to see it.
//!
//! One [`Observer`] looks at the store on behalf of all viewers, and asks nothing while there is none. It looks at
//! everything seldom and at names that are on a screen often, within a budget of the store's time ([`pace`]). What it
//! saw is on a [`board`], and what it concludes from two looks is in a [`history`].
//!
//! | file | what is in it |
//! |---|---|
//! | [`watch`] | the task that looks |
//! | [`pace`] | how often it looks (pure) |
//! | [`lock`] | a lock as it was seen, pinned to moments |
//! | [`compare`] | what happened between two looks (pure) |
//! | [`event`] | what happened, as people and programs read it |
//! | [`board`] | all locks, and what changed since when |
//! | [`history`] | the latest events, and gaps |
//! | [`health`] | how the store answers |

mod board;
mod compare;
mod event;
mod health;
mod history;
mod lock;
mod pace;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidelock::{
    Locks, Name,
    backend::{ClaimId, LockView},
};
use tokio::{
    sync::{Notify, watch as channel},
    task::AbortHandle,
};

use self::{board::Board, pace::Pace};
pub(crate) use self::{
    board::Changes,
    event::{Ending, Event, What},
    health::Health,
    history::{Gap, History},
    lock::{Asked, Claim, Lock},
};
use crate::clock::Moment;

/// The most names that one viewer has on its screen.
const MOST_FOCUS: usize = 256;
/// The most names that wait for a look because they changed. If there are more, everything is looked at.
const MOST_TOLD: usize = 20_000;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// How often to look at everything; else as often as the budget allows.
    pub(crate) interval: Option<Duration>,
    /// How long events are kept.
    pub(crate) history: Duration,
    /// Whether to look while nobody views, for the history and for metrics.
    pub(crate) always: bool,
}

/// A watch of a store. Its clones share it; it ends with the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Observer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task and all viewers share.
#[derive(Debug)]
struct Shared {
    locks: Locks,
    pace: Pace,
    state: Mutex<State>,
    version: channel::Sender<u64>,
    viewers: channel::Sender<usize>,
    /// Names are to be looked at, or everything is.
    names_told: Notify,
    all_told: Notify,
}

#[derive(Debug)]
struct State {
    board: Board,
    history: History,
    health: Health,
    focus: HashMap<u64, Vec<Name>>,
    /// Names that are known to have changed.
    told: HashSet<Name>,
    later: HashSet<Name>,
    /// Whether the store tells of all changes.
    tells: bool,
    next_viewer: u64,
    /// Where to go on if more names are on screens than fit in one look.
    turn: usize,
}

/// Everything as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) locks: Vec<Arc<Lock>>,
    pub(crate) health: Health,
    /// Since when events are kept; nothing before the first look.
    pub(crate) since: Option<Moment>,
}

impl Observer {
    /// Starts to watch, within a tokio runtime.
    #[allow(clippy::disallowed_methods, reason = "the one task of the observer, which ends with it")]
    pub(crate) fn start(locks: Locks, options: Options) -> Self {
        let state = State {
            board: Board::default(),
            history: History::new(options.history),
            health: Health::default(),
            focus: HashMap::new(),
            told: HashSet::new(),
            later: HashSet::new(),
            tells: false,
            next_viewer: 0,
            turn: 0,
        };
        let shared = Arc::new(Shared {
            locks,
            pace: Pace { interval: options.interval },
            state: Mutex::new(state),
            version: channel::Sender::new(0),
            viewers: channel::Sender::new(usize::from(options.always)),
            names_told: Notify::new(),
            all_told: Notify::new(),
        });
        let task = tokio::spawn(watch::run(Arc::clone(&shared))).abort_handle();
        Self(Arc::new(Handle { shared, task }))
    }

    /// Everything as it was last seen, which may be nothing if nobody views.
    pub(crate) fn snapshot(&self) -> Seen {
        let state = self.0.shared.state();
        Seen {
            locks: state.board.locks().cloned().collect(),
            health: state.health.clone(),
            since: state.history.since(),
        }
    }

    /// How the store answers.
    pub(crate) fn health(&self) -> Health {
        self.0.shared.state().health.clone()
    }

    /// One lock as it was last seen, if it is in use.
    pub(crate) fn lock(&self, name: &Name) -> Option<Arc<Lock>> {
        self.0.shared.state().board.lock(name).cloned()
    }

    /// Reads the history.
    pub(crate) fn history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.0.shared.state().history)
    }

    /// Views what is seen from now on.
    pub(crate) fn subscribe(&self) -> Subscription {
        let mut state = self.0.shared.state();
        let viewer = state.next_viewer;
        state.next_viewer += 1;
        state.focus.insert(viewer, Vec::new());
        let serial = state.history.latest();
        drop(state);
        self.0.shared.viewers.send_modify(|viewers| *viewers += 1);
        Subscription { observer: self.clone(), viewer, version: 0, serial, is_new: true }
    }

    /// These names may have changed: they are looked at soon.
    pub(crate) fn poke(&self, names: impl IntoIterator<Item = Name>) {
        self.0.shared.told(names);
    }

    /// A claim has ended, or is about to: when a look shows that it is gone, this is how.
    pub(crate) fn tell(&self, name: &Name, claim: ClaimId, how: Ending) {
        self.0.shared.state().board.tell(name.clone(), claim, Some(how));
        self.poke([name.clone()]);
    }

    /// It did not end as it was told.
    pub(crate) fn untell(&self, name: &Name, claim: ClaimId) {
        self.0.shared.state().board.tell(name.clone(), claim, None);
    }

    /// Says which names a viewer has on its screen: they are looked at often.
    pub(crate) fn focus(&self, viewer: u64, names: impl IntoIterator<Item = Name>) {
        if let Some(focus) = self.0.shared.state().focus.get_mut(&viewer) {
            *focus = names.into_iter().take(MOST_FOCUS).collect();
        }
        self.0.shared.names_told.notify_one();
    }
}

/// What is new since a viewer was last told.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub(crate) locks: Changes,
    pub(crate) events: Vec<Arc<Event>>,
    /// Whether there were more events than the history keeps.
    pub(crate) has_missed: bool,
    pub(crate) health: Health,
    /// Since when events are kept; nothing before the first look.
    pub(crate) since: Option<Moment>,
    /// When this was put together.
    pub(crate) now: Moment,
}

/// A viewer. While there is one, the store is watched.
#[derive(Debug)]
pub(crate) struct Subscription {
    observer: Observer,
    viewer: u64,
    version: u64,
    serial: u64,
    is_new: bool,
}

impl Subscription {
    /// The number of this viewer, for [`Observer::focus`].
    pub(crate) fn viewer(&self) -> u64 {
        self.viewer
    }

    /// Says which names this viewer has on its screen: they are looked at often.
    pub(crate) fn focus(&self, names: impl IntoIterator<Item = Name>) {
        self.observer.focus(self.viewer, names);
    }

    /// Waits until something is new, and returns it. The first time, that is everything, when it was first seen.
    ///
    /// Cancel safe: what was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> News {
        let shared = &self.observer.0.shared;
        let mut version = shared.version.subscribe();
        // The sender lives as long as the observer.
        let _ = version.wait_for(|version| *version > self.version).await;
        let state = shared.state();
        let locks = state.board.since(if self.is_new { 0 } else { self.version });
        let (events, has_missed) = state.history.after(self.serial);
        let news = News {
            locks,
            events,
            has_missed,
            health: state.health.clone(),
            since: state.history.since(),
            now: Moment::now(),
        };
        (self.version, self.serial) = (state.board.version(), state.history.latest());
        // Before everything was seen, a viewer has not got it.
        self.is_new = self.is_new && !state.board.has_looked();
        news
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let shared = &self.observer.0.shared;
        shared.state().focus.remove(&self.viewer);
        shared.viewers.send_modify(|viewers| *viewers -= 1);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when somebody views, or when nobody does.
    async fn is_wanted(&self, wanted: bool) {
        let mut viewers = self.viewers.subscribe();
        // The sender is here, so it does not fail.
        let _ = viewers.wait_for(|viewers| (*viewers > 0) == wanted).await;
    }

    /// Whether the store tells of all changes.
    fn store_tells(&self) -> bool {
        self.state().tells
    }

    fn set_tells(&self, tells: bool) {
        self.state().tells = tells;
    }

    /// Names may have changed. Those that are new or on a screen are looked at first: most of the others were renewed.
    fn told(&self, names: impl IntoIterator<Item = Name>) {
        let mut state = self.state();
        let State { board, focus, told, later, .. } = &mut *state;
        for name in names {
            let is_urgent = board.lock(&name).is_none() || focus.values().any(|focus| focus.contains(&name));
            if is_urgent {
                told.insert(name)
            } else {
                later.insert(name)
            };
        }
        if told.len() + later.len() > MOST_TOLD {
            told.clear();
            later.clear();
            self.all_told.notify_one();
        }
        self.names_told.notify_one();
    }

    /// Locks whose leases should have been renewed or should have ended are looked at.
    fn tell_due(&self) {
        let due = self.state().board.due(Moment::now());
        if !due.is_empty() {
            self.told(due);
        }
    }

    /// The names to look at next: those that changed, then those on screens, in turn if they are too many.
    fn next_names(&self, most: usize) -> Vec<Name> {
        let mut state = self.state();
        let mut names: Vec<Name> = state.told.iter().take(most).cloned().collect();
        for name in &names {
            state.told.remove(name);
        }
        let mut focus: Vec<Name> = state.focus.values().flatten().cloned().collect();
        focus.sort_unstable();
        focus.dedup();
        focus.retain(|name| !names.contains(name));
        let room = (most - names.len()).min(focus.len());
        if room < focus.len() {
            let turn = state.turn % focus.len();
            focus.rotate_left(turn);
            state.turn = turn + room;
        }
        names.extend(focus.into_iter().take(room));
        let rest: Vec<Name> = state.later.iter().take(most - names.len()).cloned().collect();
        for name in &rest {
            state.later.remove(name);
        }
        if !state.told.is_empty() || !state.later.is_empty() {
            self.names_told.notify_one();
        }
        // One that was on a screen and was told, too, is asked for once.
        names.extend(rest.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        names
    }

    /// Takes in a look at everything, and returns the names that it missed.
    fn saw_all(&self, views: Vec<LockView>, asked: Asked, pause: Duration) -> Vec<Name> {
        let mut state = self.state();
        let State { board, history, health, .. } = &mut *state;
        let was_first = !board.has_looked();
        history.regain_sight(asked.from);
        let missing = board.note_all(views, asked, history);
        history.trim(asked.to);
        health.all = Some(health::All { at: asked.from, took: asked.took(), pause });
        if health.answered(asked.to) || was_first {
            board.touch();
        }
        self.publish(&state);
        missing
    }

    /// Takes in a look at some names.
    fn saw(&self, names: &[Name], views: Vec<LockView>, asked: Asked) {
        let mut state = self.state();
        let State { board, history, health, .. } = &mut *state;
        board.note(names, views, asked, history);
        health.took(asked.took());
        if health.answered(asked.to) {
            board.touch();
        }
        self.publish(&state);
    }

    fn failed(&self, error: &str) {
        let mut state = self.state();
        let now = Moment::now();
        let State { board, history, health, .. } = &mut *state;
        history.lose_sight(now, error);
        if health.failed(now, error) {
            board.touch();
        }
        self.publish(&state);
    }

    fn lose_sight(&self, why: &str) {
        self.state().history.lose_sight(Moment::now(), why);
    }

    /// Wakes the viewers if there is something new.
    fn publish(&self, state: &State) {
        let version = state.board.version();
        self.version.send_if_modified(|shown| std::mem::replace(shown, version) != version);
    }
}
