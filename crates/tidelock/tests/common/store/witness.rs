//! A witness: sees every grant of a lock, counts those that overlap, and insists that tokens grow.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tidelock::{Guard, Holding, Locks, Token};
use tokio::task::JoinHandle;

use super::{LONG, Place, eventually, within};

/// What was seen of one lock.
#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Every hold that may still last.
    holding: Vec<Holding>,
    largest: Option<Token>,
    grants: usize,
    doubles: usize,
    over: bool,
}

/// Clients that take one lock in turns, as fast as they can.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) witness: Arc<Witness>,
    turns: Vec<JoinHandle<()>>,
}

impl Storm {
    /// Begins, with so many clients of a place.
    pub(crate) async fn begin(place: &Place, name: &str, ttl: Duration, clients: usize) -> Self {
        let (witness, mut turns) = (Arc::new(Witness::default()), Vec::new());
        for _ in 0..clients {
            let (witness, mutex) = (Arc::clone(&witness), place.connect().await.mutex(name).ttl(ttl));
            turns.push(tokio::spawn(async move { witness.take_turns(mutex).await }));
        }
        let storm = Self { witness, turns };
        storm.goes_on().await;
        storm
    }

    /// Waits until the lock was granted some more times.
    pub(crate) async fn goes_on(&self) {
        let grants = self.witness.grants();
        eventually("the lock is granted", || self.witness.grants() > grants + 100).await;
    }

    /// Ends it. Says how often two held at once.
    pub(crate) async fn end(self) -> usize {
        self.witness.seen().over = true;
        for turn in self.turns {
            within("the storm ends", turn).await.unwrap();
        }
        self.witness.doubles()
    }
}

impl Witness {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The largest token so far: every claim from now on must get a larger one.
    pub(crate) fn before(&self) -> Option<Token> {
        self.seen().largest
    }

    /// A guard was got, by somebody who began to ask when `before` was the largest token.
    pub(crate) fn saw(&self, guard: &Guard, before: Option<Token>) {
        let mut seen = self.seen();
        let token = guard.token();
        assert!(before.is_none_or(|before| token > before), "{token:?} after {before:?}");
        seen.holding.retain(Holding::is_held);
        if guard.is_held() {
            seen.doubles += seen.holding.len();
        }
        seen.holding.push(guard.holding());
        seen.largest = seen.largest.max(Some(token));
        seen.grants += 1;
    }

    /// Locks, and sees what comes of it.
    pub(crate) async fn lock(&self, mutex: &tidelock::Mutex) -> tidelock::Result<Guard> {
        let before = self.before();
        let guard = mutex.lock().await?;
        self.saw(&guard, before);
        Ok(guard)
    }

    pub(crate) fn grants(&self) -> usize {
        self.seen().grants
    }

    fn is_over(&self) -> bool {
        self.seen().over
    }

    /// How often somebody got the lock while another could still rely on it.
    pub(crate) fn doubles(&self) -> usize {
        self.seen().doubles
    }

    /// Takes the lock again and again until it is told to stop; a store that does not answer is asked again.
    async fn take_turns(&self, mutex: tidelock::Mutex) {
        while !self.is_over() {
            let Ok(guard) = self.lock(&mutex).await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            // Some work, so that there is something to overlap with.
            tokio::time::sleep(Duration::from_millis(2)).await;
            // That it was lost is what the storm is about.
            let _ = guard.release().await;
        }
    }
}

/// Locks that are taken one after the other and kept, up to the moment of a fault and beyond: what a
/// server confirmed last is what it may take with it.
#[derive(Debug)]
pub(crate) struct Rush {
    over: Arc<AtomicBool>,
    taking: JoinHandle<Vec<Guard>>,
}

impl Rush {
    /// Begins to take locks whose names are told by a number.
    pub(crate) fn begin(locks: &Locks, name: impl Fn(usize) -> String + Send + 'static) -> Self {
        let (over, locks) = (Arc::new(AtomicBool::new(false)), locks.clone());
        let is_over = Arc::clone(&over);
        let taking = tokio::spawn(async move {
            let mut guards = Vec::new();
            for n in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // One that is not granted for sure is not relied on.
                if let Ok(guard) = locks.mutex(name(n)).ttl(LONG).fail_fast(true).lock().await {
                    guards.push(guard);
                }
            }
            guards
        });
        Self { over, taking }
    }

    /// Ends it, and lets another client try all that was taken. Says how many were, and how many of them
    /// two held at once.
    pub(crate) async fn end(self, other: &Locks) -> (usize, usize) {
        self.over.store(true, Ordering::Relaxed);
        let guards = within("the rush ends", self.taking).await.unwrap();
        let mut doubles = 0;
        for guard in &guards {
            let mutex = other.mutex(guard.name().as_str());
            let second = within("the store answers", async {
                loop {
                    match mutex.try_lock().await {
                        Ok(second) => return second,
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            });
            if let Some(second) = second.await {
                assert!(second.token() > guard.token());
                doubles += usize::from(guard.is_held() && second.is_held());
            }
        }
        (guards.len(), doubles)
    }
}
