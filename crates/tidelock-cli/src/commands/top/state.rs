//! What `top` shows, and what the user chose. Nothing here knows of terminals.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tidelock::{Name, backend::ClaimId};

use crate::{
    args::Sort,
    clock::Moment,
    observe::{Event, Health, Lock, News},
    output::escaped,
};

/// How many events are kept for the pane of a lock.
const EVENTS: usize = 2_000;

/// What the user is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Looking.
    Normal,
    /// Typing a filter.
    Filter,
    /// Reading which keys there are.
    Help,
    /// Asked for the reason to break a lock.
    Break(Asked),
}

/// A lock that is about to be broken, as it was when the user asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) name: Name,
    pub(super) claims: Vec<ClaimId>,
    pub(super) holder: String,
    pub(super) held: Duration,
    pub(super) waiting: usize,
    /// Whether a holder belongs to another program than ours, which does not notice.
    pub(super) is_foreign: bool,
    pub(super) reason: String,
    /// What is wrong with the reason.
    pub(super) wrong: Option<&'static str>,
}

/// Everything that the screen depends on.
#[derive(Debug)]
pub(super) struct State {
    pub(super) place: String,
    prefix: String,
    all: HashMap<Name, Arc<Lock>>,
    /// Those that the filter lets through, in their order.
    pub(super) rows: Vec<Arc<Lock>>,
    events: VecDeque<Arc<Event>>,
    pub(super) health: Health,
    /// Whether everything was seen once.
    pub(super) has_looked: bool,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) selected: Option<Name>,
    pub(super) has_detail: bool,
    /// The first row on the screen, and how many there are; set when it is drawn.
    pub(super) offset: usize,
    pub(super) height: usize,
    /// What to tell the user, until the next key.
    pub(super) message: Option<String>,
}

impl State {
    pub(super) fn new(place: &str, prefix: &str, sort: Sort) -> Self {
        Self {
            place: escaped(place),
            prefix: prefix.to_owned(),
            all: HashMap::new(),
            rows: Vec::new(),
            events: VecDeque::new(),
            health: Health::default(),
            has_looked: false,
            sort,
            is_reversed: false,
            filter: String::new(),
            mode: Mode::Normal,
            selected: None,
            has_detail: false,
            offset: 0,
            height: 1,
            message: None,
        }
    }

    /// Takes in what is new.
    pub(super) fn take(&mut self, news: &News) {
        if news.locks.is_all {
            self.all.clear();
        }
        for lock in &news.locks.changed {
            if lock.name.as_str().starts_with(&self.prefix) {
                self.all.insert(lock.name.clone(), Arc::clone(lock));
            }
        }
        for name in &news.locks.gone {
            self.all.remove(name);
        }
        self.events.extend(news.events.iter().cloned());
        let surplus = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..surplus);
        self.health = news.health.clone();
        self.has_looked |= news.since.is_some();
        self.arrange();
    }

    /// Filters and sorts anew.
    pub(super) fn arrange(&mut self) {
        let filter = self.filter.to_lowercase();
        let fits = |lock: &&Arc<Lock>| {
            let has = |text: &str| text.to_lowercase().contains(&filter);
            filter.is_empty()
                || has(lock.name.as_str())
                || lock.holders.iter().any(|holder| has(&holder.view.label))
        };
        let before = self.position();
        let mut rows: Vec<_> = self.all.values().filter(fits).cloned().collect();
        // The name decides between equals, so that rows do not swap places.
        match self.sort {
            Sort::Name => rows.sort_by(|one, other| one.name.cmp(&other.name)),
            Sort::Age => rows.sort_by_cached_key(|lock| {
                (
                    lock.oldest_holder().map_or(Moment::from_nanos(u64::MAX), |holder| holder.since),
                    lock.name.clone(),
                )
            }),
            Sort::Waiting => {
                rows.sort_by_cached_key(|lock| (usize::MAX - lock.waiters.len(), lock.name.clone()));
            }
            Sort::Left => rows.sort_by_cached_key(|lock| (until(lock), lock.name.clone())),
        }
        if self.is_reversed {
            rows.reverse();
        }
        self.rows = rows;
        if self.position().is_none() {
            // The lock that was selected is free: its neighbour is next.
            self.select(before.unwrap_or_default());
        }
    }

    /// The index of the row that is selected.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.rows.iter().position(|lock| lock.name == *selected)
    }

    /// Selects a row, or the last one.
    pub(super) fn select(&mut self, index: usize) {
        let index = index.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(index).map(|lock| lock.name.clone());
    }

    /// Moves the selection.
    pub(super) fn step(&mut self, by: isize) {
        let here = self.position().unwrap_or_default();
        self.select(here.saturating_add_signed(by));
    }

    /// The lock that is selected.
    pub(super) fn lock(&self) -> Option<&Arc<Lock>> {
        self.rows.get(self.position()?)
    }

    /// What happened to a lock, the latest first.
    pub(super) fn events_of<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Event> {
        self.events.iter().rev().map(|event| &**event).filter(move |event| event.name == *name)
    }

    /// How many claims wait, for all rows.
    pub(super) fn waiting(&self) -> usize {
        self.rows.iter().map(|lock| lock.waiters.len()).sum()
    }

    /// How many locks there are, whatever the filter says.
    pub(super) fn all(&self) -> usize {
        self.all.len()
    }

    /// The names on the screen.
    pub(super) fn visible(&self) -> Vec<Name> {
        self.rows.iter().skip(self.offset).take(self.height).map(|lock| lock.name.clone()).collect()
    }

    /// Fits the rows into this many lines, with the selected one among them.
    pub(super) fn scroll(&mut self, height: usize) {
        self.height = height.max(1);
        let most = self.rows.len().saturating_sub(self.height);
        let here = self.position().unwrap_or_default();
        self.offset = self.offset.min(here).max((here + 1).saturating_sub(self.height)).min(most);
    }

    /// Asks for the reason to break the lock that is selected.
    pub(super) fn ask_to_break(&mut self, now: Moment) {
        let Some(lock) = self.lock() else { return };
        let Some(oldest) = lock.oldest_holder() else {
            return self.say("nobody holds this lock: there is nothing to break");
        };
        let more = if lock.holders.len() > 1 {
            format!(" and {} more", lock.holders.len() - 1)
        } else {
            String::new()
        };
        self.mode = Mode::Break(Asked {
            name: lock.name.clone(),
            claims: lock.holders.iter().map(|holder| holder.id()).collect(),
            holder: format!("{}{more}", escaped(&oldest.view.label)),
            held: now.since(oldest.since),
            waiting: lock.waiters.len(),
            is_foreign: lock.holders.iter().any(|holder| holder.view.foreign.is_some()),
            reason: String::new(),
            wrong: None,
        });
    }

    /// Tells the user something.
    pub(super) fn say(&mut self, what: impl Into<String>) {
        self.message = Some(escaped(&what.into()));
    }
}

/// When the first of the holders runs out of time; one that nobody holds comes last.
pub(super) fn until(lock: &Lock) -> Moment {
    lock.holders.iter().map(|holder| holder.until).min().unwrap_or_else(|| Moment::from_nanos(u64::MAX))
}
