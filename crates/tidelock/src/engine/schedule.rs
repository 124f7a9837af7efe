//! When which claim has to be looked at. What is due is the claim's business: it is told here.
//!
//! Most locks are held for a moment only. So a claim is *young* at first: in a plain list, put there
//! and taken out in constant time. The few that live on are moved into the order by time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::clock::{Alarm, Moment};

/// How far ahead the keeper looks for claims that may ride along in a batch.
const LOOK_AHEAD: Duration = Duration::from_millis(2_500);

/// How long claims may be young.
const YOUTH: Duration = Duration::from_millis(250);

/// What the schedule has to know of a claim.
pub(super) trait Scheduled: Send + Sync {
    /// Tells two apart that have to be looked at in the same moment.
    fn serial(&self) -> u64;

    /// Its place among the young claims; only the schedule changes it.
    fn young_slot(&self) -> &AtomicU32;
}

/// When a claim has to be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    /// From when on it may ride along with others.
    pub(super) early: Moment,
    /// The latest moment.
    pub(super) late: Moment,
}

/// Where a claim is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Spot {
    /// It was never scheduled, or has ended.
    #[default]
    Nowhere,
    /// In the list of young claims.
    Young,
    /// In the order by time, under this moment.
    At(Moment),
    /// Taken out by the keeper, which looks at it.
    Taken,
}

/// The claims of a client. Each is in it at most once.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    inner: Mutex<Inner<T>>,
    wake: Notify,
}

#[derive(Debug)]
struct Inner<T> {
    young: Vec<Arc<T>>,
    /// When those that are still young then are moved.
    young_until: Option<Moment>,
    /// By the latest moment, then by serial number.
    ordered: BTreeMap<(Moment, u64), Entry<T>>,
    /// Until when the keeper sleeps; a claim that is due earlier wakes it.
    sleeps_until: Option<Moment>,
    closed: bool,
}

#[derive(Debug)]
struct Entry<T> {
    early: Moment,
    leased: Arc<T>,
}

impl<T: Scheduled> Inner<T> {
    fn remove(&mut self, leased: &Arc<T>, spot: Spot) {
        match spot {
            Spot::Nowhere | Spot::Taken => {}
            Spot::At(moment) => drop(self.ordered.remove(&(moment, leased.serial()))),
            Spot::Young => {
                let number = leased.young_slot().load(Ordering::Relaxed);
                let slot = number as usize;
                // The list may have been taken away to be moved just now.
                if self.young.get(slot).is_some_and(|there| Arc::ptr_eq(there, leased)) {
                    self.young.swap_remove(slot);
                    if let Some(moved) = self.young.get(slot) {
                        moved.young_slot().store(number, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Adds a claim, and says when the keeper has to wake for it.
    fn add(&mut self, leased: &Arc<T>, spot: &mut Spot, when: When, now: Moment) -> Moment {
        let When { early, late } = when;
        let grown_up = now + YOUTH;
        if *spot == Spot::Nowhere
            && late > grown_up
            && let Ok(slot) = u32::try_from(self.young.len())
        {
            *spot = Spot::Young;
            leased.young_slot().store(slot, Ordering::Relaxed);
            self.young.push(Arc::clone(leased));
            *self.young_until.get_or_insert(grown_up)
        } else {
            *spot = Spot::At(late);
            self.ordered.insert((late, leased.serial()), Entry { early, leased: Arc::clone(leased) });
            late
        }
    }
}

impl<T: Scheduled> Schedule<T> {
    pub(super) fn new() -> Self {
        let inner = Inner {
            young: Vec::new(),
            young_until: None,
            ordered: BTreeMap::new(),
            sleeps_until: None,
            closed: false,
        };
        Self { inner: Mutex::new(inner), wake: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a claim where it is due, taking it from where it was.
    pub(super) fn put(&self, leased: &Arc<T>, spot: &mut Spot, when: Option<When>, now: Moment) {
        let mut inner = self.inner();
        inner.remove(leased, *spot);
        let Some(when) = when else {
            *spot = Spot::Nowhere;
            return;
        };
        let wake = inner.add(leased, spot, when, now);
        if inner.sleeps_until.is_none_or(|until| wake < until) {
            inner.sleeps_until = Some(wake);
            drop(inner);
            self.wake.notify_one();
        }
    }

    /// Takes a claim out.
    pub(super) fn take(&self, leased: &Arc<T>, spot: &mut Spot) {
        if *spot != Spot::Nowhere {
            self.inner().remove(leased, *spot);
            *spot = Spot::Nowhere;
        }
    }

    /// The young claims, if it is time to move them. Each is then put where it is due.
    pub(super) fn take_grown_up(&self, now: Moment) -> Vec<Arc<T>> {
        let mut inner = self.inner();
        if inner.young_until.is_none_or(|until| until > now) {
            return Vec::new();
        }
        inner.young_until = None;
        std::mem::take(&mut inner.young)
    }

    /// All claims that have to be looked at now, and those that may ride along.
    pub(super) fn take_due(&self, now: Moment) -> Vec<(Moment, Arc<T>)> {
        let mut inner = self.inner();
        if inner.ordered.first_key_value().is_none_or(|(key, _)| key.0 > now) {
            return Vec::new();
        }
        let ahead = (now + LOOK_AHEAD, u64::MAX);
        let near = inner.ordered.range(..=ahead).filter(|(key, entry)| key.0 <= now || entry.early <= now);
        let keys: Vec<_> = near.map(|(key, _)| *key).collect();
        let taken =
            keys.into_iter().filter_map(|key| inner.ordered.remove(&key).map(|entry| (key.0, entry.leased)));
        taken.collect()
    }

    /// Sleeps until something is due. Says whether to go on.
    pub(super) async fn sleep(&self, alarm: &mut Alarm) -> bool {
        let next = {
            let mut inner = self.inner();
            if inner.closed {
                return false;
            }
            let first = inner.ordered.first_key_value().map(|(key, _)| key.0);
            inner.sleeps_until = first.into_iter().chain(inner.young_until).min();
            inner.sleeps_until
        };
        let due = async {
            match next {
                Some(next) => alarm.sleep_towards(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.wake.notified() => {}
            () = due => {}
        }
        true
    }

    /// Ends the keeper.
    pub(super) fn close(&self) {
        self.inner().closed = true;
        self.wake.notify_one();
    }
}
