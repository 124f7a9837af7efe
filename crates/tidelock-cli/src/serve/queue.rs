//! Who waits before whom, for the lines that say so.
//!
//! Streams of this server that wait for one name share one place in the store's queue, so the store knows only the
//! first of them. One task looks at all names that somebody waits for, in one call, and only while somebody waits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::StatusCode;
use serde_json::json;
use tidelock::{Locks, Name, backend::LockView};
use tokio::{sync::Notify, time::sleep};

use super::{pace::Pace, problem::Problem, shutdown::Running};

/// Those who come within this time are looked for together.
const GATHER: Duration = Duration::from_millis(10);
/// How often the store is asked how its queues stand.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the store has to say it.
const LOOK: Duration = Duration::from_secs(2);

/// The queues that streams of this server are in.
#[derive(Debug)]
pub(super) struct Queues {
    locks: Locks,
    inner: Mutex<HashMap<Name, Queue>>,
    serial: AtomicU64,
    /// Somebody waits for a lock whose holder is not known.
    wanted: Notify,
    pace: Arc<Pace>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order in which they came.
    streams: Vec<Stream>,
    /// What the store said last.
    view: Option<LockView>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Stream {
    serial: u64,
    label: Arc<str>,
    holds: bool,
}

/// How a wait stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// How many wait before it.
    pub(super) ahead: usize,
    /// Who holds the lock, if that is known.
    pub(super) behind: Option<Arc<str>>,
}

/// The place of one stream in the queues of its names, which it leaves when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    queues: Arc<Queues>,
    names: Vec<Name>,
    serial: u64,
    told: Mutex<Option<Seen>>,
}

impl Queues {
    pub(super) fn new(locks: Locks, tasks: Running) -> Arc<Self> {
        Arc::new(Self {
            locks,
            inner: Mutex::default(),
            serial: AtomicU64::new(0),
            wanted: Notify::new(),
            pace: Pace::new(tasks),
        })
    }

    fn inner(&self) -> MutexGuard<'_, HashMap<Name, Queue>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(self: &Arc<Self>, names: &[Name], label: &str) -> Place {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let label: Arc<str> = label.into();
        let mut inner = self.inner();
        for name in names {
            let stream = Stream { serial, label: Arc::clone(&label), holds: false };
            inner.entry(name.clone()).or_default().streams.push(stream);
        }
        Place { queues: Arc::clone(self), names: names.to_vec(), serial, told: Mutex::default() }
    }

    /// Looks at the names that streams wait for, again and again.
    pub(super) async fn watch(&self) {
        loop {
            let names: Vec<Name> = {
                let inner = self.inner();
                let waited = |queue: &Queue| queue.streams.iter().any(|stream| !stream.holds);
                inner.iter().filter(|(_, queue)| waited(queue)).map(|(name, _)| name.clone()).collect()
            };
            if !names.is_empty() {
                let look = self.locks.look(names.iter().map(Name::as_str));
                // A store that does not answer says nothing new. The wait goes on in any case.
                if let Ok(Ok(views)) = tokio::time::timeout(LOOK, look).await {
                    self.note(views);
                }
            }
            sleep(GATHER).await;
            let _ = tokio::time::timeout(AGAIN, self.wanted.notified()).await;
        }
    }

    fn note(&self, views: Vec<LockView>) {
        let mut inner = self.inner();
        for view in views {
            if let Some(queue) = inner.get_mut(&view.name) {
                queue.view = Some(view);
                queue.changed.notify_waiters();
            }
        }
    }

    /// The error for a try that found one of the locks taken.
    pub(super) async fn busy(&self, names: &[Name]) -> Problem {
        let store = self.locks.abilities().store;
        let busy = |name: &Name, by: &str, holder| {
            let text = format!("lock {name:?} on {store} is taken; held by {by}");
            let problem = Problem::new(StatusCode::CONFLICT, "busy", text).retryable();
            problem.with("name", name.as_str()).with("holder", holder)
        };
        let own = |name: &Name| {
            let inner = self.inner();
            inner
                .get(name)?
                .streams
                .iter()
                .find(|stream| stream.holds)
                .map(|stream| Arc::clone(&stream.label))
        };
        if let Some((name, label)) = names.iter().find_map(|name| Some((name, own(name)?))) {
            return busy(name, &label, json!({"label": &*label}));
        }
        let look = self.locks.look(names.iter().map(Name::as_str));
        let views = tokio::time::timeout(LOOK, look).await.ok().and_then(Result::ok).unwrap_or_default();
        match views.iter().find_map(|view| Some((&view.name, view.holders.first()?))) {
            Some((name, holder)) => busy(name, &holder.label, json!(holder)),
            None => busy(&names[0], "another client", json!(null)),
        }
    }
}

impl Place {
    /// The stream holds what it waited for.
    pub(super) fn holds(&self) {
        let mut inner = self.queues.inner();
        for name in &self.names {
            if let Some(queue) = inner.get_mut(name) {
                for stream in queue.streams.iter_mut().filter(|stream| stream.serial == self.serial) {
                    stream.holds = true;
                }
                queue.changed.notify_waiters();
            }
        }
    }

    /// Resolves when the wait stands otherwise than was said last. Cancel safe.
    pub(super) async fn moved(&self) -> Seen {
        if self.told().is_none() {
            // A wait that is shorter is not worth a line, nor a call to the store.
            self.queues.pace.pause().await;
            self.meet_holder().await;
        }
        loop {
            let changed = self.queues.inner().get(&self.names[0]).map(|queue| Arc::clone(&queue.changed));
            let Some(changed) = changed else { return std::future::pending().await };
            // Listen before looking, or the news could fall between.
            let news = changed.notified();
            let seen = self.look();
            if self.told().replace(seen.clone()).as_ref() != Some(&seen) {
                return seen;
            }
            news.await;
        }
    }

    /// Gives the store a moment to say who holds the lock, if nobody here does.
    async fn meet_holder(&self) {
        let changed = self.queues.inner().get(&self.names[0]).map(|queue| Arc::clone(&queue.changed));
        let Some(changed) = changed else { return };
        let news = changed.notified();
        if self.look().behind.is_none() {
            self.queues.wanted.notify_one();
            let _ = tokio::time::timeout(AGAIN / 4, news).await;
        }
    }

    fn told(&self) -> MutexGuard<'_, Option<Seen>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the wait stands: of several names, at the one with the longest queue.
    fn look(&self) -> Seen {
        let inner = self.queues.inner();
        let locks = &self.queues.locks;
        let seen = self.names.iter().filter_map(|name| {
            let Queue { streams, view, .. } = inner.get(name)?;
            let here = streams.iter().filter(|stream| !stream.holds && stream.serial < self.serial).count();
            let own_holder = streams.iter().find(|stream| stream.holds).map(|stream| &stream.label);
            let view = view.as_ref();
            // Those of other clients, up to the one place that this server has.
            let waiters = view.map(|view| view.waiters.as_slice()).unwrap_or_default();
            let there = waiters.iter().take_while(|waiter| !locks.is_own(waiter.id)).count();
            let is_waiting = there < waiters.len();
            let holder = own_holder.or_else(|| view?.holders.first().map(|holder| &holder.label));
            Some(Seen { ahead: here + if is_waiting { there } else { 0 }, behind: holder.cloned() })
        });
        seen.max_by_key(|seen| (seen.behind.is_some(), seen.ahead)).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.queues.inner();
        for name in &self.names {
            if let Some(queue) = inner.get_mut(name) {
                queue.streams.retain(|stream| stream.serial != self.serial);
                queue.changed.notify_waiters();
                if queue.streams.is_empty() {
                    inner.remove(name);
                }
            }
        }
    }
}
