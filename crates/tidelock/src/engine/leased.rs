//! A claim of this client and its lease: shared by the keeper, the local line and the guards.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use super::{
    lease::{Due, Lease, State},
    rare::Rare,
    schedule::{KeptSpot, Schedule, Scheduled, Spot, When},
};
use crate::{
    backend::{Claim, Failure, Grant, Place},
    clock::Moment,
    error::LossReason,
};

/// How much earlier a claim in line may be asked about, if others of its client are. Once they went together they stay
/// together: all pauses but the longest are multiples of the first one's.
const RIDE: Duration = Duration::from_secs(1);

/// A claim in line or holding, as this client knows it.
#[derive(Debug)]
pub(crate) struct LeasedClaim {
    pub(crate) claim: Arc<Claim>,
    /// Which cohort of the local line it stands for.
    pub(crate) cohort: u64,
    /// Whether it is renewed once it holds. A claim that waits always is.
    pub(super) auto_renew: bool,
    cell: Mutex<Cell>,
    /// Its place among the young claims; the schedule's own.
    young_slot: AtomicU32,
}

#[derive(Debug)]
struct Cell {
    lease: Lease,
    /// The grant, once it is known.
    held: Option<Known>,
    /// When to ask how the claim stands, before the lease needs it.
    ask_at: Option<Moment>,
    /// What most claims never have. A process may hold very many of them.
    rare: Option<Box<Rare>>,
    /// Where the keeper has it.
    spot: KeptSpot,
}

/// A grant, in less room, and when it became known. Its ttl is that of the lease.
#[derive(Clone, Copy, Debug)]
struct Known {
    epoch: u64,
    since: Moment,
    waiting: u32,
}

/// What the keeper finds when it looks at a claim.
pub(super) enum Look {
    Renew,
    Lost(LossReason),
    Later,
}

impl LeasedClaim {
    pub(super) fn new(claim: Claim, cohort: u64, auto_renew: bool, asked: Moment) -> Arc<Self> {
        let lease = Lease::new(asked, claim.ttl, true);
        Arc::new(Self {
            claim: Arc::new(claim),
            cohort,
            auto_renew,
            cell: Mutex::new(Cell { lease, held: None, ask_at: None, rare: None, spot: KeptSpot::default() }),
            young_slot: AtomicU32::new(0),
        })
    }

    fn cell(&self) -> MutexGuard<'_, Cell> {
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The grant, if it holds or held, and when that became known here.
    pub(super) fn grant(&self) -> Option<(Grant, Moment)> {
        self.cell().grant()
    }

    pub(crate) fn state(&self, now: Moment) -> State {
        self.cell().lease.state(now)
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.cell().lease.deadline()
    }

    /// Whether the next of this process would get a lock worth having: the grant and when it became
    /// known, if so. With a part of the lease gone and no answer, it would be nearly lost.
    pub(super) fn healthy_grant(&self, now: Moment) -> Option<(Grant, Moment)> {
        let mut cell = self.cell();
        let healthy = cell.lease.state(now) == State::Held;
        let healthy = healthy && cell.lease.deadline().since(now) > cell.lease.ttl() / 3;
        cell.grant().filter(|_| healthy)
    }

    /// For which reason it is lost; if nobody knows, the store does not know it.
    pub(super) fn loss(&self, now: Moment) -> LossReason {
        match self.state(now) {
            State::Lost(reason) => reason,
            _ => LossReason::Gone,
        }
    }

    /// Keeps what is to be told to its holder.
    pub(super) fn note_eviction(&self, reason: &Arc<str>) {
        self.cell().rare.get_or_insert_default().evicted_for = Some(Arc::clone(reason));
    }

    /// Another leave is about to be sent while the release of its guard is under way.
    pub(super) fn note_second_leave(&self) {
        self.cell().rare.get_or_insert_default().left_twice = true;
    }

    /// Whether the release of its guard may find that a leave of this client was faster.
    pub(super) fn is_left_twice(&self) -> bool {
        self.cell().rare.as_ref().is_some_and(|rare| rare.left_twice)
    }

    /// The reason given for its eviction, if it was evicted.
    pub(super) fn evicted_for(&self) -> Option<Arc<str>> {
        self.cell().rare.as_ref()?.evicted_for.clone()
    }

    /// The store did not answer a question; `lasting` if it was asked several times.
    pub(super) fn note_trouble(&self, failure: &Failure, lasting: bool) {
        self.cell().set_trouble(Some((failure.clone(), lasting)));
    }

    /// Why the store did not answer the last question, if it did not.
    pub(super) fn trouble(&self) -> Option<Failure> {
        self.cell().trouble().map(|(failure, _)| failure.clone())
    }

    /// The same, if it failed several times.
    pub(super) fn lasting_trouble(&self) -> Option<Failure> {
        self.cell().trouble().filter(|(_, lasting)| *lasting).map(|(failure, _)| failure.clone())
    }

    /// It takes the place of another claim, which the store did not answer either.
    pub(super) fn keep_trouble_of(&self, other: &Self) {
        let trouble = other.cell().trouble().cloned();
        self.cell().set_trouble(trouble);
    }

    /// Its ttl, and for how long the store has not confirmed it.
    pub(super) fn silence(&self, now: Moment) -> (Duration, Duration) {
        let cell = self.cell();
        (cell.lease.ttl(), cell.lease.silent(now))
    }

    /// Resolves when the claim is lost, or with nothing when `released` says that nobody needs to know.
    pub(super) async fn lost(
        &self,
        released: impl Fn() -> bool,
        now: impl Fn() -> Moment,
    ) -> Option<LossReason> {
        // Under the lock: either this is seen by those who tell, or what they did before is seen here.
        let changed = Arc::clone(self.cell().rare.get_or_insert_default().changed.get_or_insert_default());
        loop {
            // Listen before looking, or the signal could fall between.
            let told = changed.notified();
            if released() {
                return None;
            }
            if let State::Lost(reason) = self.state(now()) {
                return Some(reason);
            }
            told.await;
        }
    }

    /// Lets those who wait for a loss look again.
    pub(super) fn tell(&self) {
        let changed = self.cell().rare.as_ref().and_then(|rare| rare.changed.clone());
        if let Some(changed) = changed {
            changed.notify_waiters();
        }
    }

    /// The claim is in line: its place was confirmed by what was asked at `asked`.
    pub(super) fn waits(
        self: &Arc<Self>,
        place: Place,
        ask_at: Option<Moment>,
        asked: Moment,
        now: Moment,
        schedule: &Schedule<Self>,
    ) {
        let mut cell = self.cell();
        cell.set_trouble(None);
        cell.lease.confirmed(asked, self.claim.ttl, now);
        let lapses = place.lapse_in.map(|lapse_in| asked + lapse_in);
        cell.ask_at = [cell.take_moved(now), lapses, ask_at].into_iter().flatten().min();
        self.reschedule(&mut cell, now, schedule);
    }

    /// The claim became a holder. `asked` is missing if nobody asked: the lease then counts from
    /// when the claim was last known to wait, and is renewed at once if that was long ago, or if
    /// nobody renews it later.
    pub(super) fn holds(
        self: &Arc<Self>,
        grant: Grant,
        asked: Option<Moment>,
        now: Moment,
        schedule: &Schedule<Self>,
    ) -> State {
        let mut cell = self.cell();
        match asked {
            Some(asked) => cell.lease.confirmed(asked, grant.ttl, now),
            // A store may give a holder less time than it keeps a place for.
            None => cell.lease.at_most(grant.ttl),
        }
        let is_fresh = self.auto_renew && cell.lease.silent(now) < cell.lease.ttl() / 8;
        // It may have been evicted since the answer was given.
        cell.ask_at = cell.take_moved(now).or((asked.is_none() && !is_fresh).then_some(now));
        cell.lease.renew(self.auto_renew);
        cell.held = Some(Known { epoch: grant.epoch, since: now, waiting: grant.waiting });
        if grant.foreign.is_some() || cell.rare.is_some() {
            cell.rare.get_or_insert_default().foreign = grant.foreign;
        }
        self.reschedule(&mut cell, now, schedule);
        cell.lease.state(now)
    }

    /// The store confirmed that it still holds.
    pub(super) fn renewed(
        self: &Arc<Self>,
        grant: Grant,
        asked: Moment,
        now: Moment,
        schedule: &Schedule<Self>,
    ) -> State {
        let mut cell = self.cell();
        cell.lease.confirmed(asked, grant.ttl, now);
        if let Some(held) = &mut cell.held {
            held.waiting = grant.waiting;
        }
        self.reschedule(&mut cell, now, schedule);
        cell.lease.state(now)
    }

    /// No answer came, for this reason if it is known.
    pub(super) fn unanswered(
        self: &Arc<Self>,
        failure: Option<&Failure>,
        now: Moment,
        schedule: &Schedule<Self>,
    ) {
        let mut cell = self.cell();
        cell.set_trouble(failure.map(|failure| (failure.clone(), false)));
        cell.lease.unanswered(now);
        self.reschedule(&mut cell, now, schedule);
    }

    /// Asking will be worth it once the enter is answered.
    pub(super) fn ask_once_entered(&self) {
        self.cell().has_moved();
    }

    /// Somebody thinks that asking is worth it: at once, or as soon as the question that is under way is answered.
    pub(super) fn ask_now(self: &Arc<Self>, now: Moment, schedule: &Schedule<Self>) {
        let mut cell = self.cell();
        cell.ask_at = Some(now);
        if cell.lease.is_asking() {
            cell.has_moved();
        }
        self.reschedule(&mut cell, now, schedule);
    }

    /// `max_hold` of its holder now.
    pub(super) fn limit(self: &Arc<Self>, limit: Option<Moment>, now: Moment, schedule: &Schedule<Self>) {
        let mut cell = self.cell();
        if cell.lease.limit(limit) {
            self.reschedule(&mut cell, now, schedule);
        }
    }

    /// It has ended. Says how it stood before.
    pub(super) fn end(self: &Arc<Self>, now: Moment, schedule: &Schedule<Self>) -> State {
        let mut cell = self.cell();
        let state = cell.lease.state(now);
        cell.lease.end(now);
        schedule.take(self, &mut cell.spot);
        state
    }

    /// It is lost for this reason, unless it had ended already. Says for which reason it is lost.
    pub(super) fn lose(
        self: &Arc<Self>,
        reason: LossReason,
        now: Moment,
        schedule: &Schedule<Self>,
    ) -> Option<LossReason> {
        let mut cell = self.cell();
        cell.lease.lose(reason, now);
        schedule.take(self, &mut cell.spot);
        match cell.lease.state(now) {
            State::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// The keeper moves it from the young claims to where its lease says.
    pub(super) fn grow_up(self: &Arc<Self>, now: Moment, schedule: &Schedule<Self>) {
        let mut cell = self.cell();
        if cell.spot.get() == Spot::Young {
            cell.spot.set(Spot::Taken);
            self.reschedule(&mut cell, now, schedule);
        }
    }

    /// The keeper's look at a claim that it took out of its schedule under `key`.
    pub(super) fn look(self: &Arc<Self>, key: Moment, now: Moment, schedule: &Schedule<Self>) -> Look {
        let mut cell = self.cell();
        if cell.spot.get() != Spot::At(key) {
            return Look::Later;
        }
        cell.spot.set(Spot::Taken);
        let asked_for = cell.asks().is_some_and(|asks| now >= asks.early);
        let due = cell.lease.due(now, self.jitter());
        match due {
            Due::Lost(reason) => Look::Lost(reason),
            Due::Over => Look::Later,
            Due::Nothing { early, .. } if early > now && !asked_for => {
                let when = cell.when(due, now);
                schedule.put(self, &mut cell.spot, when, now);
                Look::Later
            }
            Due::Renew | Due::Nothing { .. } => {
                cell.ask_at = None;
                cell.take_moved(now);
                cell.lease.asking();
                self.reschedule(&mut cell, now, schedule);
                Look::Renew
            }
        }
    }

    /// Puts the claim where its lease says.
    fn reschedule(self: &Arc<Self>, cell: &mut Cell, now: Moment, schedule: &Schedule<Self>) {
        let due = cell.lease.due(now, self.jitter());
        let when = cell.when(due, now);
        schedule.put(self, &mut cell.spot, when, now);
    }

    /// Spreads renewals of claims that began together.
    fn jitter(&self) -> u8 {
        (self.claim.id.serial().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }
}

impl Scheduled for LeasedClaim {
    fn serial(&self) -> u64 {
        self.claim.id.serial()
    }

    fn young_slot(&self) -> &AtomicU32 {
        &self.young_slot
    }
}

impl Cell {
    fn grant(&self) -> Option<(Grant, Moment)> {
        let Known { epoch, since, waiting } = self.held?;
        let foreign = self.rare.as_ref().and_then(|rare| rare.foreign);
        Some((Grant { foreign, ..Grant::new(epoch, self.lease.ttl(), waiting) }, since))
    }

    fn has_moved(&mut self) {
        self.rare.get_or_insert_default().moved = true;
    }

    /// When to ask again because something moved while a question was under way.
    fn take_moved(&mut self, now: Moment) -> Option<Moment> {
        let rare = self.rare.as_mut()?;
        let moved = std::mem::take(&mut rare.moved);
        self.rare.take_if(|rare| rare.is_empty());
        moved.then_some(now)
    }

    fn trouble(&self) -> Option<&(Failure, bool)> {
        self.rare.as_ref()?.trouble.as_ref()
    }

    fn set_trouble(&mut self, trouble: Option<(Failure, bool)>) {
        match &mut self.rare {
            Some(rare) => {
                rare.trouble = trouble;
                // After an outage every claim had some.
                if rare.is_empty() {
                    self.rare = None;
                }
            }
            None if trouble.is_some() => self.rare.get_or_insert_default().trouble = trouble,
            None => {}
        }
    }

    /// When the keeper has to look at it, given what its lease needs. None if the lease has ended.
    fn when(&self, due: Due, now: Moment) -> Option<When> {
        let when = match due {
            Due::Over => return None,
            Due::Lost(_) | Due::Renew => return Some(When { early: now, late: now }),
            Due::Nothing { early, late } => When { early, late },
        };
        match self.asks() {
            Some(asks) => Some(When { early: when.early.min(asks.early), late: when.late.min(asks.late) }),
            None => Some(when),
        }
    }

    /// When to ask how the claim stands, whatever its lease needs.
    fn asks(&self) -> Option<When> {
        let late = self.ask_at.filter(|_| !self.lease.is_asking())?;
        Some(When { early: late - (self.lease.silent(late) / 2).min(RIDE), late })
    }
}
