//! The local line: tasks of one process that want the same name.
//!
//! They stand in one FIFO and send *one* claim, which goes from hand to hand without a message: a
//! *cohort*. Each hand-off has a token of its own, larger than the one before. So that nobody
//! outside starves, a cohort gives the lock back after some hand-offs or some time, and sooner when
//! others are known to wait. Nobody of the same process who came earlier is passed either.
//!
//! This file only keeps the books; [`acquire`](super::acquire), [`grant`](super::grant) and
//! [`release`](super::release) turn them into calls. Nothing here waits, and no lock is held over an await.

use std::{
    collections::VecDeque,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{cohorts::Cohorts, held::Held, leased::LeasedClaim, request::Request, schedule::Schedule};
use crate::{
    backend::{Ask, ClaimId, Grant, Share},
    clock::Moment,
    error::Error,
    events::HoldMeter,
    model::name::Name,
    model::shards::{Shard, Shards},
    model::token,
};

/// What a task that waits is told: a guard, busy (a try), or an error.
pub(super) type Outcome = Result<Option<Held>, Error>;

/// How far a lock is handed on inside the process: up to this often, and for up to this long.
const ALONE: (u32, Duration) = (token::HAND_OFFS, Duration::from_millis(50));
const OTHERS_WAIT: (u32, Duration) = (64, Duration::from_millis(5));

/// All local lines of a client.
#[derive(Debug)]
pub(super) struct Table(Shards<LocalLine>);

impl Table {
    pub(super) fn new() -> Self {
        Self(Shards::new())
    }

    pub(super) fn shard(&self, name: &Name) -> MutexGuard<'_, Shard<LocalLine>> {
        self.0.lock(name)
    }

    /// The claims of all cohorts and where they are, in the order of the names.
    pub(super) fn claims(&self) -> Vec<(Arc<LeasedClaim>, Phase)> {
        let of_line = |_: &Name, line: &LocalLine| {
            Some(line.cohorts.iter().map(|c| (Arc::clone(&c.leased), c.phase)).collect::<Vec<_>>())
        };
        self.0.collect(of_line).into_iter().flatten().collect()
    }

    /// Whether any claim holds.
    pub(super) fn holds_any(&self) -> bool {
        self.0.any(|line| line.cohorts.iter().any(|cohort| matches!(cohort.phase, Phase::Held { .. })))
    }
}

/// The cohorts of one name, by id: in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct LocalLine {
    pub(super) cohorts: Cohorts,
}

impl LocalLine {
    pub(super) fn is_idle(&self) -> bool {
        self.cohorts.is_empty()
    }

    pub(super) fn push(&mut self, cohort: Cohort) {
        self.cohorts.push(cohort);
    }

    pub(super) fn position(&self, cohort: u64) -> Option<usize> {
        self.cohorts.position(cohort)
    }

    /// The cohort that a claim stands for now, if any.
    pub(super) fn cohort_of(&mut self, leased: &LeasedClaim) -> Option<&mut Cohort> {
        let index = self.index_of(leased)?;
        self.cohorts.get_mut(index)
    }

    pub(super) fn index_of(&self, leased: &LeasedClaim) -> Option<usize> {
        self.position(leased.cohort).filter(|index| self.is_at(*index, leased.claim.id))
    }

    fn is_at(&self, index: usize, id: ClaimId) -> bool {
        self.cohorts.get(index).is_some_and(|cohort| cohort.leased.claim.id == id)
    }

    /// The cohort that a claim id stands for now, if any.
    pub(super) fn cohort_with(&mut self, id: ClaimId) -> Option<&mut Cohort> {
        // A cohort's first claim has the cohort's number; later ones are looked for.
        let index = self
            .position(id.serial())
            .filter(|index| self.is_at(*index, id))
            .or_else(|| self.cohorts.iter().position(|cohort| cohort.leased.claim.id == id))?;
        self.cohorts.get_mut(index)
    }

    /// The cohort that a request may join or stand behind.
    pub(super) fn cohort_for(&mut self, request: &Request<'_>) -> Option<&mut Cohort> {
        if request.owner.is_some() && !request.store_reenters {
            // Nobody but us can let it in: what an owner holds it holds for all that is covered.
            let holding = self.cohorts.iter().position(|cohort| {
                let claim = &cohort.leased.claim;
                claim.owner.as_ref() == request.owner && cohort.holds() && claim.share.covers(request.share)
            });
            if let Some(index) = holding {
                return self.cohorts.get_mut(index);
            }
        }
        if stands_alone(request) {
            return None;
        }
        self.cohorts.iter_mut().find(|cohort| cohort.is_for(request))
    }

    /// Whether somebody of this process came before `serial` and waits in another cohort.
    pub(super) fn is_passed_by(&self, serial: u64, cohort: u64) -> bool {
        self.cohorts
            .iter()
            .take_while(|other| other.id < serial)
            .filter(|other| other.id != cohort && !other.holds())
            .any(|other| other.next_serial().is_some_and(|first| first < serial))
    }

    pub(super) fn remove(&mut self, cohort: u64) {
        if let Some(index) = self.position(cohort) {
            self.cohorts.remove(index);
        }
    }
}

/// Whether a request cannot share its claim with others.
///
/// Readers and permits are held by several processes at once. If a process gave its own share to
/// a newcomer, that one would get a token smaller than a share that another process got before.
///
/// Guards of one owner share a claim if they asked for the same: then re-entry costs no message.
/// One with a limit of its own enters the store's line with a claim of its own and rides there.
fn stands_alone(request: &Request<'_>) -> bool {
    if request.detached || request.alone {
        // Left behind, it takes its claim along. A leader's goes to the next in the store's line.
        return true;
    }
    match request.owner {
        Some(_) => request.max_hold.is_some() && request.store_reenters,
        // A lease that is not renewed is worth less to the next.
        None => request.share != Share::Exclusive || !request.auto_renew,
    }
}

/// Where a cohort's claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The question is under way.
    Asking(Ask),
    /// In the store's line.
    InLine,
    /// It holds, for this many guards.
    Held { guards: u32 },
    /// It is being given back; requests that come now wait for that.
    Leaving,
}

/// Tasks that share a claim.
#[derive(Debug)]
pub(super) struct Cohort {
    pub(super) id: u64,
    /// Nobody else may join.
    alone: bool,
    pub(super) leased: Arc<LeasedClaim>,
    phase: Phase,
    /// Follows the phase.
    meter: HoldMeter,
    /// The epoch of the grant, once it holds.
    pub(super) epoch: u64,
    /// The number of the last hand-off, if the claim was in anybody's hands.
    pub(super) hand_off: Option<u32>,
    /// The task that asks for the cohort has not sat down yet: it may have its answer at once.
    pub(super) reserved: bool,
    /// Nearly always nobody waits: then there is no queue.
    queue: Option<Box<Queue>>,
}

/// Those of a cohort who wait.
#[derive(Debug, Default)]
struct Queue {
    waiters: VecDeque<Waiter>,
    /// How many of the waiters went away and were not yet swept out.
    gone: usize,
    /// Whether somebody only tries. A hand-off must not search a long queue for that.
    has_tries: bool,
    /// A grant that was pushed before the task that asks knew whether it has to wait.
    early: Option<Grant>,
}

impl Queue {
    fn sweep(&mut self) {
        self.waiters.retain(|waiter| !waiter.tell.is_closed());
        self.gone = 0;
    }
}

/// A task that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) serial: u64,
    pub(super) try_only: bool,
    /// It does not wait for a store that fails.
    pub(super) impatient: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) tell: oneshot::Sender<Outcome>,
}

impl Cohort {
    pub(super) fn new(
        id: u64,
        request: &Request<'_>,
        leased: Arc<LeasedClaim>,
        ask: Ask,
        meter: HoldMeter,
    ) -> Self {
        Self {
            id,
            alone: stands_alone(request),
            leased,
            phase: Phase::Asking(ask),
            meter,
            epoch: 0,
            hand_off: None,
            reserved: true,
            queue: None,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The one way to another phase, so that what is counted as held is what holds.
    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.meter.set(self.holds());
    }

    /// The claim went to the next task of this process.
    pub(super) fn begin_next_hold(&mut self) {
        self.meter.begin_next();
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    /// Whether its claim is what this request would ask for.
    fn is_for(&self, request: &Request<'_>) -> bool {
        let claim = &self.leased.claim;
        !self.alone
            && claim.share == request.share
            && claim.owner.as_ref() == request.owner
            && claim.ttl == request.ttl
            && claim.label == *request.label
            && self.leased.auto_renew == request.auto_renew
    }

    fn queue(&mut self) -> &mut Queue {
        self.queue.get_or_insert_default()
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let queue = self.queue();
        queue.has_tries |= waiter.try_only;
        queue.waiters.push_back(waiter);
    }

    /// The task that asks for the cohort sits down, before all others.
    pub(super) fn seat(&mut self, waiter: Waiter) {
        self.reserved = false;
        let queue = self.queue();
        queue.has_tries |= waiter.try_only;
        queue.waiters.push_front(waiter);
    }

    /// A grant came while the task that asks had not sat down.
    pub(super) fn keep_early(&mut self, grant: Grant) {
        self.queue().early = Some(grant);
    }

    pub(super) fn take_early(&mut self) -> Option<Grant> {
        self.queue.as_mut().and_then(|queue| queue.early.take())
    }

    /// A waiter went away.
    pub(super) fn forget_one(&mut self) {
        let queue = self.queue();
        queue.gone += 1;
        if queue.gone > 16 && queue.gone * 2 > queue.waiters.len() {
            queue.sweep();
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.reserved || self.queue.as_ref().is_some_and(|queue| queue.waiters.len() > queue.gone)
    }

    /// The next waiter that is still there.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let queue = self.queue.as_mut()?;
        let mut next = None;
        while let Some(waiter) = queue.waiters.pop_front() {
            if !waiter.tell.is_closed() {
                next = Some(waiter);
                break;
            }
            queue.gone = queue.gone.saturating_sub(1);
        }
        if queue.waiters.is_empty() && queue.early.is_none() {
            // A process may hold very many locks for which nobody else waits: room for a queue is a third of each.
            self.queue = None;
        }
        next
    }

    /// Whether its claim is being left, so that what came for it in the meantime has to be left as well.
    /// Whichever leave arrives second finds nothing, and that is no loss.
    pub(super) fn is_left_again(&self) -> bool {
        let leaving = self.phase == Phase::Leaving;
        if leaving {
            self.leased.note_second_leave();
        }
        leaving
    }

    /// Tells all waiters that only try that they came in vain.
    pub(super) fn refuse_tries(&mut self) {
        if !self.queue.as_mut().is_some_and(|queue| std::mem::take(&mut queue.has_tries)) {
            return;
        }
        for waiter in self.take(|waiter| waiter.try_only) {
            // A receiver that is gone hears nothing; there is nothing to give back.
            let _ = waiter.tell.send(Ok(None));
        }
    }

    /// All waiters that do not wait for a store that fails, in order.
    pub(super) fn take_impatient(&mut self) -> VecDeque<Waiter> {
        self.take(|waiter| waiter.impatient)
    }

    fn take(&mut self, wanted: impl Fn(&Waiter) -> bool) -> VecDeque<Waiter> {
        let queue = self.queue();
        queue.sweep();
        let (taken, others) = std::mem::take(&mut queue.waiters).into_iter().partition(wanted);
        queue.waiters = others;
        taken
    }

    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.queue.iter().flat_map(|queue| &queue.waiters)
    }

    /// The serial number of the waiter a hand-off would go to.
    pub(super) fn next_serial(&self) -> Option<u64> {
        self.waiters().find(|waiter| !waiter.tell.is_closed()).map(|waiter| waiter.serial)
    }

    /// Whether those who wait only try.
    pub(super) fn ask(&self) -> Ask {
        if self.waiters().all(|waiter| waiter.try_only) { Ask::Try } else { Ask::Queue }
    }

    /// The claim is in hands now: for the nth time, for up to `max_hold`.
    pub(super) fn take_up(
        &mut self,
        nth: u32,
        max_hold: Option<Duration>,
        now: Moment,
        schedule: &Schedule<LeasedClaim>,
    ) {
        // A claim that was in nobody's hands has no limit to be lifted.
        if max_hold.is_some() || self.hand_off.is_some() {
            self.leased.limit(max_hold.map(|limit| now + limit), now, schedule);
        }
        self.hand_off = Some(nth);
    }

    /// The number of the next hand-off. An owner that re-enters has the same token as before.
    pub(super) fn next_number(&self) -> u32 {
        match self.hand_off {
            None => 0,
            Some(number) if self.is_joint() => number,
            Some(number) => number + 1,
        }
    }

    /// Whether several guards may hold the claim at once: those of one owner.
    pub(super) fn is_joint(&self) -> bool {
        self.leased.claim.owner.is_some()
    }

    /// Whether the process may keep what was granted at `since` for one more of its own.
    pub(super) fn may_hand_off(&self, (grant, since): (Grant, Moment), now: Moment) -> bool {
        // The next holder needs a number of its own.
        if grant.foreign.is_some() {
            return false;
        }
        let (times, time) = if grant.waiting == 0 { ALONE } else { OTHERS_WAIT };
        self.hand_off.unwrap_or(0) < times && now.since(since) < time
    }
}
