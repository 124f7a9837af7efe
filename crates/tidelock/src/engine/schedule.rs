//! When which claim has to be looked at. What is due is the claim's business: it is told here.
//!
//! Most locks are held for a moment only. So a claim is *young* at first: in a plain list, put there
//! and taken out in constant time. The few that live on are moved into the order by time.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{self, AtomicU32},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::clock::{Alarm, Moment};

/// How far ahead the keeper looks for claims that may ride along in a batch.
const LOOK_AHEAD: Duration = Duration::from_millis(2_500);

/// How many of them ride along at most. A batch needs room for its questions and answers, and of very many claims some are
/// due all the time.
const RIDERS: usize = 512;

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

/// Where a claim is: a [`Spot`] in as few bytes as a moment has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptSpot(u64);

impl KeptSpot {
    /// Moments begin behind the other spots.
    const FIRST: u64 = 3;

    pub(super) fn get(self) -> Spot {
        match self.0 {
            0 => Spot::Nowhere,
            1 => Spot::Young,
            2 => Spot::Taken,
            moment => Spot::At(Moment::from_nanos(moment - Self::FIRST)),
        }
    }

    pub(super) fn set(&mut self, spot: Spot) {
        self.0 = match spot {
            Spot::Nowhere => 0,
            Spot::Young => 1,
            Spot::Taken => 2,
            Spot::At(moment) => moment.as_nanos().saturating_add(Self::FIRST),
        };
    }
}

/// Where a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// It was never scheduled, or has ended.
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
    /// By the latest moment. With each, from when on it may ride along.
    ordered: BTreeMap<Entry<T>, Moment>,
    /// Until when the keeper sleeps; a claim that is due earlier wakes it.
    sleeps_until: Option<Moment>,
    closed: bool,
}

/// A claim in the order by time. Its serial number is looked up where it is needed: of a large number of claims every
/// byte is one too many.
#[derive(Debug)]
struct Entry<T> {
    late: Moment,
    leased: Arc<T>,
}

impl<T: Scheduled> Entry<T> {
    fn new(late: Moment, leased: &Arc<T>) -> Self {
        Self { late, leased: Arc::clone(leased) }
    }
}

impl<T: Scheduled> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.late.cmp(&other.late).then_with(|| self.leased.serial().cmp(&other.leased.serial()))
    }
}

impl<T: Scheduled> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Scheduled> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Scheduled> Eq for Entry<T> {}

impl<T: Scheduled> Inner<T> {
    fn remove(&mut self, leased: &Arc<T>, spot: Spot) {
        match spot {
            Spot::Nowhere | Spot::Taken => {}
            Spot::At(moment) => drop(self.ordered.remove(&Entry::new(moment, leased))),
            Spot::Young => {
                let number = leased.young_slot().load(atomic::Ordering::Relaxed);
                let slot = number as usize;
                // The list may have been taken away to be moved just now.
                if self.young.get(slot).is_some_and(|there| Arc::ptr_eq(there, leased)) {
                    self.young.swap_remove(slot);
                    if let Some(moved) = self.young.get(slot) {
                        moved.young_slot().store(number, atomic::Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Adds a claim, and says when the keeper has to wake for it.
    fn add(&mut self, leased: &Arc<T>, spot: &mut KeptSpot, when: When, now: Moment) -> Moment {
        let When { early, late } = when;
        let grown_up = now + YOUTH;
        if spot.get() == Spot::Nowhere
            && late > grown_up
            && let Ok(slot) = u32::try_from(self.young.len())
        {
            spot.set(Spot::Young);
            leased.young_slot().store(slot, atomic::Ordering::Relaxed);
            self.young.push(Arc::clone(leased));
            *self.young_until.get_or_insert(grown_up)
        } else {
            spot.set(Spot::At(late));
            self.ordered.insert(Entry::new(late, leased), early);
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
    pub(super) fn put(&self, leased: &Arc<T>, spot: &mut KeptSpot, when: Option<When>, now: Moment) {
        let mut inner = self.inner();
        inner.remove(leased, spot.get());
        let Some(when) = when else {
            spot.set(Spot::Nowhere);
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
    pub(super) fn take(&self, leased: &Arc<T>, spot: &mut KeptSpot) {
        if spot.get() != Spot::Nowhere {
            self.inner().remove(leased, spot.get());
            spot.set(Spot::Nowhere);
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

    /// All claims that have to be looked at now, and some that may ride along.
    pub(super) fn take_due(&self, now: Moment) -> Vec<(Moment, Arc<T>)> {
        let mut inner = self.inner();
        let mut taken = Vec::new();
        while let Some(first) = inner.ordered.first_entry().filter(|first| first.key().late <= now) {
            let Entry { late, leased } = first.remove_entry().0;
            taken.push((late, leased));
        }
        if taken.is_empty() {
            return taken;
        }
        let near = inner.ordered.iter().take_while(|(entry, _)| entry.late <= now + LOOK_AHEAD);
        let riders = near.filter(|(_, early)| **early <= now).take(RIDERS);
        let riders: Vec<_> = riders.map(|(entry, _)| Entry::new(entry.late, &entry.leased)).collect();
        for rider in riders {
            inner.ordered.remove(&rider);
            taken.push((rider.late, rider.leased));
        }
        taken
    }

    /// Sleeps until something is due. Says whether to go on.
    pub(super) async fn sleep(&self, alarm: &mut Alarm) -> bool {
        let next = {
            let mut inner = self.inner();
            if inner.closed {
                return false;
            }
            let first = inner.ordered.first_key_value().map(|(entry, _)| entry.late);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Claim(u64, AtomicU32);

    impl Scheduled for Claim {
        fn serial(&self) -> u64 {
            self.0
        }

        fn young_slot(&self) -> &AtomicU32 {
            &self.1
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// A schedule with claims that are due then, and may ride along from the beginning on.
    fn scheduled(due: impl Iterator<Item = u64>) -> Schedule<Claim> {
        let schedule = Schedule::new();
        for (serial, ms) in due.enumerate() {
            let mut spot = KeptSpot::default();
            spot.set(Spot::Taken);
            let leased = Arc::new(Claim(serial as u64, AtomicU32::new(0)));
            schedule.put(&leased, &mut spot, Some(When { early: at(0), late: at(ms) }), at(0));
            assert_eq!(spot.get(), Spot::At(at(ms)));
        }
        schedule
    }

    #[test]
    fn all_that_are_due_are_taken_and_only_some_ride_along() {
        let many = RIDERS as u64 * 2;
        let schedule = scheduled((0..many).map(|_| 10).chain((0..many).map(|_| 20)));
        assert!(schedule.take_due(at(9)).is_empty());
        let taken = schedule.take_due(at(10));
        assert_eq!(taken.len(), 3 * RIDERS);
        assert!(taken[..2 * RIDERS].iter().all(|(key, _)| *key == at(10)));
        // The others are taken when they are due.
        assert_eq!(schedule.take_due(at(20)).len(), RIDERS);
        assert!(schedule.take_due(at(1_000_000)).is_empty());
    }

    #[test]
    fn no_claim_rides_along_before_its_time_or_far_ahead() {
        let schedule = scheduled([10, 20, 5_000].into_iter());
        let mut spot = KeptSpot::default();
        spot.set(Spot::Taken);
        let late = Arc::new(Claim(9, AtomicU32::new(0)));
        schedule.put(&late, &mut spot, Some(When { early: at(15), late: at(30) }), at(0));
        let serials = |now| schedule.take_due(now).iter().map(|(_, claim)| claim.0).collect::<Vec<_>>();
        assert_eq!(serials(at(10)), [0, 1]);
        assert_eq!(serials(at(30)), [9]);
        assert_eq!(serials(at(5_000)), [2]);
    }

    #[test]
    fn a_spot_is_kept_as_it_is() {
        let mut kept = KeptSpot::default();
        assert_eq!(kept.get(), Spot::Nowhere);
        for spot in [Spot::Young, Spot::Taken, Spot::At(at(0)), Spot::At(at(7)), Spot::Nowhere] {
            kept.set(spot);
            assert_eq!(kept.get(), spot);
        }
    }
}
