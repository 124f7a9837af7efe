//! Watching a store: what is held and waited for, and what happens, for all who want to see it.
//!
//! One [`Observer`] looks at the store on behalf of all viewers, and asks nothing while there is none. It looks at
//! everything seldom and at names that are on a screen often, within a budget of the store's time ([`pace`]). What it
//! saw is on a [`board`], and what it concludes from two looks is in a [`history`].
//!
//! | file | what is in it |
//! |---|---|
//! | [`watch`] | the task that looks |
//! | [`shared`] | what it shares with viewers, and which names it looks at next |
//! | [`pace`] | how often it looks (pure) |
//! | [`lock`] | a lock as it was seen, pinned to moments |
//! | [`compare`] | what happened between two looks (pure) |
//! | [`endings`] | how claims ended, as far as it is known from elsewhere than from looks |
//! | [`event`] | what happened, as people and programs read it |
//! | [`board`] | all locks, and what changed since when |
//! | [`history`] | the latest events, and gaps |
//! | [`health`] | how the store answers |

mod board;
mod compare;
mod endings;
mod event;
mod health;
mod history;
mod lock;
mod pace;
mod shared;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use hyper::body::Bytes;
use tidelock::{Locks, Name, backend::ClaimId};
use tokio::{
    sync::{Notify, watch as channel},
    task::AbortHandle,
};

use self::{
    board::Board,
    pace::Pace,
    shared::{Latest, Shared, State, Waiting},
};
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
            focused: HashSet::new(),
            told: Waiting::default(),
            later: Waiting::default(),
            latest: None,
            next_viewer: 0,
            turn: 0,
            polled: None,
            caught_up: None,
        };
        let shared = Arc::new(Shared {
            locks,
            pace: Pace { interval: options.interval },
            state: Mutex::new(state),
            version: channel::Sender::new(0),
            viewers: channel::Sender::new(usize::from(options.always)),
            names_told: Notify::new(),
            all_told: Notify::new(),
            gone: Notify::new(),
            changed: Notify::new(),
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
        self.0.shared.tell(Some(name), claim, how);
        self.poke([name.clone()]);
    }

    /// It did not end as it was told.
    pub(crate) fn untell(&self, claim: ClaimId) {
        self.0.shared.state().board.untell(claim);
    }

    /// Says which names a viewer has on its screen: they are looked at often.
    pub(crate) fn focus(&self, viewer: u64, names: impl IntoIterator<Item = Name>) {
        let names: Vec<Name> = names.into_iter().take(MOST_FOCUS).collect();
        let mut state = self.0.shared.state();
        let Some(focus) = state.focus.get_mut(&viewer) else { return };
        *focus = names.clone();
        let before = std::mem::take(&mut state.focused);
        state.gather_focus();
        // What comes into view is looked at now.
        names.into_iter().filter(|name| !before.contains(name)).for_each(|name| state.told.push(name));
        drop(state);
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
    /// How pages read it, written once for all that are told the same.
    pub(crate) text: OnceLock<Bytes>,
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
    /// Viewers that know the same are told the same, a few times a second.
    ///
    /// Cancel safe: what was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Arc<News> {
        let shared = &self.observer.0.shared;
        let mut version = shared.version.subscribe();
        // The sender lives as long as the observer.
        let published =
            version.wait_for(|version| *version > self.version).await.map_or(0, |version| *version);
        let mut state = shared.state();
        let from = (if self.is_new { 0 } else { self.version }, self.serial);
        let is_enough = |latest: &&Latest| latest.from == from && latest.to.0 >= published;
        let latest = match state.latest.as_ref().filter(is_enough) {
            Some(latest) => latest.clone(),
            None => state.news(from),
        };
        (self.version, self.serial) = latest.to;
        // Before everything was seen, a viewer has not got it.
        self.is_new = self.is_new && !latest.is_whole;
        state.latest = Some(latest.clone());
        latest.news
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let shared = &self.observer.0.shared;
        let mut state = shared.state();
        state.focus.remove(&self.viewer);
        state.gather_focus();
        drop(state);
        shared.viewers.send_modify(|viewers| *viewers -= 1);
    }
}
