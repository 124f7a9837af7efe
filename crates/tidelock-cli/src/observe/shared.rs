//! What the task that looks and all viewers share: the board, and which names to look at next.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tidelock::{
    Locks, Name,
    backend::{ClaimId, LockView},
};
use tokio::sync::{Notify, watch as channel};

use super::{
    News,
    board::Board,
    event::Ending,
    health::{self, Health},
    history::History,
    lock::Asked,
    pace::Pace,
};
use crate::clock::Moment;

/// The most names that wait for a look because they changed. If there are more, everything is looked at.
const MOST_TOLD: usize = 20_000;

/// What the task and all viewers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) locks: Locks,
    pub(super) pace: Pace,
    pub(super) state: Mutex<State>,
    pub(super) version: channel::Sender<u64>,
    pub(super) viewers: channel::Sender<usize>,
    /// Names are to be looked at, or everything is.
    pub(super) names_told: Notify,
    pub(super) all_told: Notify,
    /// It is waited for how a claim ended.
    pub(super) gone: Notify,
    /// There is something new for viewers.
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) board: Board,
    pub(super) history: History,
    pub(super) health: Health,
    pub(super) focus: HashMap<u64, Vec<Name>>,
    /// All names that are on a screen.
    pub(super) focused: HashSet<Name>,
    /// Names that are known to have changed.
    pub(super) told: Waiting,
    /// The same of names that were in use before and are on no screen: most of them were renewed.
    pub(super) later: Waiting,
    /// What was last told to a viewer, for others that know the same.
    pub(super) latest: Option<Latest>,
    pub(super) next_viewer: u64,
    /// Where to go on if more names are on screens than fit in one look.
    pub(super) turn: usize,
    /// When the names on screens were last looked at without having been told.
    pub(super) polled: Option<Moment>,
    /// When names were last looked at that could wait.
    pub(super) caught_up: Option<Moment>,
}

/// Names that wait for a look: each once, and the first first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    order: VecDeque<Name>,
    names: HashSet<Name>,
}

impl Waiting {
    pub(super) fn push(&mut self, name: Name) {
        if self.names.insert(name.clone()) {
            self.order.push_back(name);
        }
    }

    fn pop(&mut self) -> Option<Name> {
        let name = self.order.pop_front()?;
        self.names.remove(&name);
        Some(name)
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn clear(&mut self) {
        self.order.clear();
        self.names.clear();
    }
}

/// What viewers are told that know this much.
#[derive(Clone, Debug)]
pub(super) struct Latest {
    /// The version and the number of the last event that they know, and those that they know then.
    pub(super) from: (u64, u64),
    pub(super) to: (u64, u64),
    /// Whether everything had been looked at.
    pub(super) is_whole: bool,
    pub(super) news: Arc<News>,
}

impl State {
    pub(super) fn gather_focus(&mut self) {
        self.focused = self.focus.values().flatten().cloned().collect();
    }

    /// What is new for viewers that know this much.
    pub(super) fn news(&self, from: (u64, u64)) -> Latest {
        let (events, has_missed) = self.history.after(from.1);
        let news = News {
            locks: self.board.since(from.0),
            events,
            has_missed,
            health: self.health.clone(),
            since: self.history.since(),
            now: Moment::now(),
            text: OnceLock::new(),
        };
        let to = (self.board.version(), self.history.latest());
        Latest { from, to, is_whole: self.board.has_looked(), news: Arc::new(news) }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when somebody views, or when nobody does.
    pub(super) async fn is_wanted(&self, wanted: bool) {
        let mut viewers = self.viewers.subscribe();
        // The sender is here, so it does not fail.
        let _ = viewers.wait_for(|viewers| (*viewers > 0) == wanted).await;
    }

    /// Whether the store tells of all changes.
    pub(super) fn store_tells(&self) -> bool {
        self.state().health.tells
    }

    /// What the store tells: whether of all changes, and since when of all evictions.
    pub(super) fn set_tells(&self, tells: bool, evictions: Option<Moment>) {
        let mut state = self.state();
        state.board.hear_evictions(evictions);
        if state.health.tells != tells {
            state.health.tells = tells;
            state.board.touch();
            self.publish(&state);
        }
    }

    /// Names may have changed. Those that are new or on a screen are looked at first: most of the others were renewed.
    pub(super) fn told(&self, names: impl IntoIterator<Item = Name>) {
        let mut state = self.state();
        let State { board, focused, told, later, .. } = &mut *state;
        for name in names {
            let is_urgent = board.lock(&name).is_none() || focused.contains(&name);
            if is_urgent {
                told.push(name);
            } else {
                later.push(name);
            }
        }
        if told.len() + later.len() > MOST_TOLD {
            told.clear();
            later.clear();
            self.all_told.notify_one();
        }
        self.names_told.notify_one();
    }

    /// A claim has ended, or is about to.
    pub(super) fn tell(&self, name: Option<&Name>, claim: ClaimId, how: Ending) {
        let mut state = self.state();
        let State { board, history, .. } = &mut *state;
        board.tell(name, claim, how, history);
        self.publish(&state);
    }

    /// What is not known of claims that are gone, and was waited for, is said so.
    pub(super) fn say_pending(&self) {
        let mut state = self.state();
        let State { board, history, .. } = &mut *state;
        board.say_pending(Moment::now(), history);
        self.publish(&state);
    }

    /// Locks whose leases should have been renewed or should have ended are looked at.
    pub(super) fn tell_due(&self) {
        let due = self.state().board.due(Moment::now());
        if !due.is_empty() {
            self.told(due);
        }
    }

    /// The names to look at next: those that changed, then those on screens, in turn if they are too many. A store that
    /// tells of changes is asked for names that did not change only in case that it missed one.
    pub(super) fn next_names(&self, most: usize) -> Vec<Name> {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut names: Vec<Name> = std::iter::from_fn(|| state.told.pop()).take(most).collect();
        let mut chosen: HashSet<Name> = names.iter().cloned().collect();
        let now = Moment::now();
        let is_due = |polled: Moment| now.since(polled) >= self.pace.focus_while_told();
        if !state.health.tells || state.polled.is_none_or(is_due) {
            state.polled = Some(now);
            let mut focus: Vec<Name> =
                state.focused.iter().filter(|name| !chosen.contains(*name)).cloned().collect();
            focus.sort_unstable();
            let room = (most - names.len()).min(focus.len());
            if room < focus.len() {
                let turn = state.turn % focus.len();
                focus.rotate_left(turn);
                state.turn = turn + room;
            }
            focus.truncate(room);
            chosen.extend(focus.iter().cloned());
            names.extend(focus);
        }
        if state.later.len() > 0 && state.caught_up.is_none_or(|at| now.since(at) >= self.pace.later()) {
            state.caught_up = Some(now);
            while names.len() < most
                && let Some(name) = state.later.pop()
            {
                if chosen.insert(name.clone()) {
                    names.push(name);
                }
            }
        }
        if state.told.len() > 0 {
            self.names_told.notify_one();
        }
        names
    }

    /// Takes in a look at everything, and returns the names that it missed.
    pub(super) fn saw_all(&self, views: Vec<LockView>, asked: Asked, pause: Duration) -> Vec<Name> {
        let mut state = self.state();
        let State { board, history, health, .. } = &mut *state;
        let was_first = !board.has_looked();
        history.regain_sight(asked.from);
        let missing = board.note_all(views, asked, history);
        history.trim(asked.to);
        health.all = Some(health::All { at: asked.from, took: asked.took(), pause });
        if board.has_jumped(asked) {
            health.clock_jumped(asked.to);
            board.touch();
        }
        if health.answered(asked.to) || was_first {
            board.touch();
        }
        self.publish(&state);
        missing
    }

    /// Takes in a look at some names.
    pub(super) fn saw(&self, names: &[Name], views: Vec<LockView>, asked: Asked) {
        let mut state = self.state();
        let State { board, history, health, .. } = &mut *state;
        board.note(names, views, asked, history);
        health.took(asked.took());
        if board.has_jumped(asked) {
            health.clock_jumped(asked.to);
            board.touch();
        }
        if health.answered(asked.to) {
            board.touch();
        }
        self.publish(&state);
    }

    pub(super) fn failed(&self, error: &str) {
        let mut state = self.state();
        let now = Moment::now();
        let State { board, history, health, .. } = &mut *state;
        history.lose_sight(now, error);
        if health.failed(now, error) {
            board.touch();
        }
        self.publish(&state);
    }

    pub(super) fn lose_sight(&self, why: &str) {
        self.state().history.lose_sight(Moment::now(), why);
    }

    /// Has the viewers woken if there is something new.
    pub(super) fn publish(&self, state: &State) {
        if state.board.has_pending() {
            self.gone.notify_one();
        }
        if *self.version.borrow() != state.board.version() {
            self.changed.notify_one();
        }
    }

    /// Wakes all viewers at once, so that they are told the same.
    pub(super) fn wake_viewers(&self) {
        let version = self.state().board.version();
        self.version.send_if_modified(|shown| std::mem::replace(shown, version) != version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_wait_for_a_look_in_the_order_in_which_they_came() {
        let mut waiting = Waiting::default();
        for name in ["b", "a", "b", "c"] {
            waiting.push(Name::new(name).unwrap());
        }
        assert_eq!(waiting.len(), 3);
        assert_eq!(waiting.pop().unwrap(), "b");
        waiting.push(Name::new("b").unwrap());
        let rest: Vec<_> = std::iter::from_fn(|| waiting.pop()).collect();
        assert_eq!(rest, ["a", "c", "b"]);
    }
}
