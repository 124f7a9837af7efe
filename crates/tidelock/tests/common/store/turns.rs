//! Worker processes that take one lock in turns, and what may be concluded from what they say.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use super::{eventually, worker::Worker};

/// From when to when a process relied on the lock, by a clock that all of them share, and with which token.
type Turn = (u64, u64, u64);

/// Processes that take one lock in turns.
#[derive(Debug)]
pub(crate) struct Turns {
    seen: Arc<Mutex<Vec<Vec<Turn>>>>,
    /// Each ends with how often its process was told that the store does not answer.
    readers: Vec<JoinHandle<usize>>,
}

/// What was seen of them.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) turns: usize,
    /// How often one relied on the lock before the one before it had stopped doing so.
    pub(crate) overlaps: usize,
    /// How many tokens were not larger than that of the turn before.
    pub(crate) unordered: usize,
    /// How often a process was told that the store does not answer.
    pub(crate) errors: usize,
}

impl Turns {
    /// Starts so many processes that take so many turns each.
    pub(crate) fn begin(url: &str, processes: usize, each: usize, ttl: Duration) -> Self {
        let seen = Arc::new(Mutex::new(vec![Vec::new(); processes]));
        let readers = (0..processes)
            .map(|process| {
                let mut worker = Worker::start(url, &format!("turns {each}"), ttl);
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || {
                    loop {
                        match worker.hear("").split_once(' ').unwrap() {
                            ("turn", said) => lock(&seen)[process].push(read(said)),
                            ("done", errors) => return errors.parse().unwrap(),
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        Self { seen, readers }
    }

    /// How many were taken so far.
    pub(crate) fn count(&self) -> usize {
        lock(&self.seen).iter().map(Vec::len).sum()
    }

    /// Whether all were taken.
    pub(crate) fn are_over(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
    }

    /// Waits until each process had one.
    pub(crate) async fn all_take_part(&self) {
        eventually("all take part", || lock(&self.seen).iter().all(|turns| !turns.is_empty())).await;
    }

    /// Waits until so many more were taken, or all.
    pub(crate) async fn go_on(&self, turns: usize) {
        let before = self.count();
        eventually("the lock goes round", || self.count() > before + turns || self.are_over()).await;
    }

    /// Waits until all were taken.
    pub(crate) async fn end(self) -> Verdict {
        eventually("all have had their turns", || self.are_over()).await;
        let errors = self.readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        let mut turns: Vec<Turn> = lock(&self.seen).concat();
        turns.sort_unstable();
        let pairs = || turns.windows(2).map(|pair| (pair[0], pair[1]));
        for (one, next) in pairs().filter(|(one, next)| next.0 < one.1 || next.2 <= one.2) {
            eprintln!("from, until and token of two turns that do not follow each other: {one:?}, {next:?}");
        }
        Verdict {
            turns: turns.len(),
            overlaps: pairs().filter(|(one, next)| next.0 < one.1).count(),
            unordered: pairs().filter(|(one, next)| next.2 <= one.2).count(),
            errors,
        }
    }
}

fn lock(seen: &Mutex<Vec<Vec<Turn>>>) -> MutexGuard<'_, Vec<Vec<Turn>>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(said: &str) -> Turn {
    let mut numbers = said.split(' ').map(|number| number.parse().unwrap());
    let mut next = || numbers.next().unwrap();
    (next(), next(), next())
}
