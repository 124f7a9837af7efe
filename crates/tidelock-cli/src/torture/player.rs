//! One task of a client: takes locks in all ways, holds them, checks them, writes through the fence, and lets go.
//!
//! Most tasks are quick, so that there are many requests; what takes long is in `moves.rs`.

use std::{future::pending, sync::Arc, time::Duration};

use tidelock::{Guard, Holding, LockState, Locks, Result, backend::ClaimView};
use tokio::{task::yield_now, time::sleep};

use super::{
    asks::{Hold, Request, Way},
    client::{Journal, Run},
    guests::Guest,
    history::TAKEN_AWAY,
    record::{Event, Nanos, Share},
    rng::Rng,
    work::{Pace, Use, Work},
};
use crate::clock::Moment;

/// How long a quick request waits at most: a lock whose holder failed costs it this time.
const MOST: Duration = Duration::from_millis(400);

/// What a task does most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Quick,
    Slow,
    Prober,
    /// Waits until a server or the network is about to fail.
    Brink,
    /// Looks at locks, and does not use them.
    Viewer,
    /// Has clients and runtimes of its own.
    Host,
}

#[derive(Clone, Debug)]
pub(super) struct Player {
    pub(super) locks: Locks,
    pub(super) journal: Arc<Journal>,
    pub(super) run: Arc<Run>,
    pub(super) work: Arc<Work>,
    pub(super) rng: Rng,
    pub(super) ttl: Duration,
    role: Role,
    /// Whether it is mostly at one lock that readers and writers share. One task per process is: it is alone there, so
    /// that its place in the queue is certain.
    pub(super) meets: bool,
    /// How often this task heard that something is about to fail.
    pub(super) warnings: u64,
    /// How long a grant took lately: on a busy machine, who waits less gets nothing.
    usual: Duration,
    /// The owner of locks that this task re-enters: the same after its process was killed and started again.
    pub(super) owner: u32,
    /// Whose client it uses, if not the first one of this process.
    pub(super) guest: Option<Arc<Guest>>,
}

impl Player {
    pub(super) fn new(
        locks: Locks,
        journal: Arc<Journal>,
        run: Arc<Run>,
        work: Arc<Work>,
        task: u32,
    ) -> Self {
        let purpose =
            u64::from(work.client) << 40 | u64::from(work.generation) << 16 | u64::from(task) << 8 | 1;
        Self {
            locks,
            journal,
            run,
            rng: Rng::new(work.seed, purpose),
            ttl: Duration::from_millis(work.ttl_ms),
            warnings: 0,
            meets: task == 1,
            role: match task {
                0 => Role::Prober,
                task if task == work.tasks => Role::Brink,
                task if task == work.tasks + 1 => Role::Viewer,
                task if task > work.tasks => Role::Host,
                task if task % 4 == 1 => Role::Slow,
                _ => Role::Quick,
            },
            usual: Duration::ZERO,
            owner: 1 + work.client * 1_000 + task,
            guest: None,
            work,
        }
    }

    /// Plays until the run ends.
    pub(super) async fn play(mut self) {
        while !self.run.is_ending() {
            if self.role != Role::Brink {
                self.run.hushed().await;
            }
            let went_well = match self.role {
                Role::Quick => self.quick().await,
                Role::Slow => self.slow().await,
                Role::Prober => self.probe().await,
                Role::Brink => self.brink().await,
                Role::Viewer => self.view().await,
                Role::Host => self.host().await,
            };
            if !went_well {
                // A store that fails is not asked in a loop that starves everything else.
                sleep(self.rng.millis(20, 120)).await;
            }
            // A store that always answers at once gives other tasks no turn.
            yield_now().await;
        }
    }

    /// A quick request. It does not wait for long, so that a lock whose holder failed costs few others their time.
    pub(super) async fn quick(&mut self) -> bool {
        let pace = match self.rng.below(100) {
            0..85 => Pace::Quick,
            85..97 => Pace::Long,
            _ => Pace::Slow,
        };
        let Some(lock) = self.some_lock(pace) else { return false };
        let usage = self.work.locks[lock].usage;
        if usage == Use::Election {
            return true;
        }
        let way = match self.rng.below(1_000) {
            0..60 => Way::DropAfter(self.rng.below(6)),
            60..100 => Way::Drop(self.rng.millis(0, 20)),
            100..350 => Way::Try,
            350..998 => Way::TryFor(self.rng.millis(1, 30) + (4 * self.usual).min(MOST)),
            _ => Way::Wait,
        };
        let hold = match self.rng.below(100) {
            0..85 => Hold::Not,
            _ => Hold::For(self.rng.millis(0, 3), 1),
        };
        let owner = if usage == Use::Mutex && self.rng.chance(20) { self.owner } else { 0 };
        let share = self.share(usage);
        self.request(Request { lock, share, way, owner, renews: true, hold }).await
    }

    /// One request and what follows from it. Says whether it went without an error.
    pub(super) async fn request(&mut self, request: Request) -> bool {
        let Request { lock, share, way, owner, .. } = request;
        let op = self.note_ask(lock, share, owner, way.patience());
        let asked = Moment::now();
        let guard = match self.ask(op, &request).await {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                // Those who got one in time are not all: the usual time grows until enough are.
                if matches!(way, Way::TryFor(_)) {
                    self.usual = (self.usual * 9 / 8 + Duration::from_micros(500)).min(MOST / 4);
                }
                return true;
            }
            Err(error) => {
                let event = if error.is_timed_out() {
                    Event::TimedOut { op }
                } else {
                    Event::Failed { op, why: format!("{:?}", error.kind()) }
                };
                self.journal.note(&event);
                return error.is_timed_out();
            }
        };
        self.granted(op, &guard.holding());
        self.usual = (self.usual * 3 + Moment::now().since(asked)) / 4;
        match request.hold {
            Hold::ByTicket(pause, times) => {
                self.by_ticket(op, lock, guard, (pause, times)).await;
                return true;
            }
            Hold::Keep(time, pause) => {
                self.keep(op, guard, asked.plus(time), pause).await;
                return true;
            }
            _ => {}
        }
        self.hold(op, &request, &guard).await;
        if owner != 0 && self.rng.chance(500) {
            self.re_enter(lock, owner).await;
        }
        let token = guard.token().get();
        self.let_go(op, guard).await;
        if share == Share::Exclusive && self.rng.chance(20) {
            // A write that was on its way for too long.
            sleep(self.rng.millis(0, 40)).await;
            self.run.write(op, lock, token).await;
        }
        true
    }

    /// A lock that is used in this way.
    pub(super) fn some_lock(&mut self, pace: Pace) -> Option<usize> {
        let locks: Vec<_> = self
            .work
            .locks
            .iter()
            .enumerate()
            .filter(|(_, lock)| lock.pace == pace)
            .map(|(at, _)| at)
            .collect();
        // One of them is hot: the more of a process want it, the more is handed on inside of it.
        if self.rng.chance(150) { locks.first().copied() } else { self.rng.pick(&locks).copied() }
    }

    pub(super) fn share(&mut self, usage: Use) -> Share {
        match usage {
            Use::Mutex | Use::Election => Share::Exclusive,
            Use::ReadWrite if self.rng.chance(600) => Share::Shared,
            Use::ReadWrite => Share::Exclusive,
            Use::Permits(of) => {
                Share::Permits { n: u16::try_from(self.rng.between(1, u64::from(of))).unwrap_or(1), of }
            }
        }
    }

    /// Asks, and notes every answer but errors and grants.
    async fn ask(&mut self, op: u32, request: &Request) -> Result<Option<Guard>> {
        let way = request.way;
        // Who holds for moments is seldom in a queue that others can jump.
        let often = if self.role == Role::Slow { 400 } else { 40 };
        let looks = matches!(way, Way::Wait | Way::TryFor(_)) && self.rng.chance(often);
        let look_after = self.rng.millis(0, 12);
        let asked = Moment::now();
        let asking = self.asking(request);
        let name = &self.work.locks[request.lock].name;
        // A claim that waits for longer is of an earlier request of this client, which may be about to leave.
        let is_this =
            |waiter: &ClaimView| self.locks.is_own(waiter.id) && waiter.age <= Moment::now().since(asked);
        let looking = async {
            if looks {
                sleep(look_after).await;
                if let Ok(views) = self.locks.look([name]).await
                    && let Some(view) = views.first()
                    && view.waiters.iter().any(is_this)
                {
                    self.journal.note(&Event::Queued { op });
                }
            }
            pending::<()>().await;
        };
        let dropping = async {
            match way {
                Way::Drop(after) => sleep(after).await,
                Way::DropAfter(turns) => {
                    for _ in 0..turns {
                        yield_now().await;
                    }
                }
                _ => pending().await,
            }
        };
        tokio::select! {
            // A request that is dropped was asked at least once.
            biased;
            answer = asking => {
                if matches!(answer, Ok(None)) {
                    let event = if matches!(way, Way::Try) { Event::Refused { op } } else { Event::TimedOut { op } };
                    self.journal.note(&event);
                }
                answer
            }
            () = dropping => {
                self.journal.note(&Event::GaveUp { op });
                Ok(None)
            }
            () = looking => Ok(None),
        }
    }

    pub(super) fn granted(&self, op: u32, guard: &Holding) {
        // The clock before the question: the window that is noted is never longer than the real one.
        let now = Moment::now();
        let until = now.plus(window(guard)).as_nanos();
        self.journal.note_at(now.as_nanos(), &Event::Granted { op, token: guard.token().get(), until });
    }

    /// Uses a lock for a while.
    pub(super) async fn hold(&mut self, op: u32, request: &Request, guard: &Guard) {
        let (pause, steps) = match request.hold {
            Hold::Not | Hold::ByTicket(..) | Hold::Keep(..) => (Duration::ZERO, 0),
            Hold::For(time, steps) => (time / steps.max(1), steps.max(1)),
            Hold::Hang(time) => {
                self.block(time);
                (Duration::ZERO, 1)
            }
        };
        for step in 0..=steps {
            if steps > 0 && !self.check(op, &guard.holding()) {
                return;
            }
            if request.share == Share::Exclusive && self.rng.chance(60) {
                self.run.write(op, request.lock, guard.token().get()).await;
            }
            if step < steps {
                sleep(pause).await;
            }
        }
    }

    /// Notes whether the lock is still held.
    pub(super) fn check(&self, op: u32, guard: &Holding) -> bool {
        let now = Moment::now();
        if guard.is_held() {
            let until = now.plus(window(guard)).as_nanos();
            self.journal.note_at(now.as_nanos(), &Event::Checked { op, until });
            return true;
        }
        self.journal.note(&Event::Lost { op, reason: format!("{:?}", guard.state()) });
        false
    }

    /// Takes a lock that its owner has already.
    async fn re_enter(&mut self, lock: usize, owner: u32) {
        let op = self.note_ask(lock, Share::Exclusive, owner, Nanos::MAX);
        let (way, hold) = (Way::Wait, Hold::Not);
        let request = Request { lock, share: Share::Exclusive, way, owner, renews: true, hold };
        match self.asking(&request).await {
            Ok(Some(guard)) => {
                self.granted(op, &guard.holding());
                self.check(op, &guard.holding());
                self.run.write(op, lock, guard.token().get()).await;
                self.let_go(op, guard).await;
            }
            Ok(None) => self.journal.note(&Event::Refused { op }),
            Err(error) => self.journal.note(&Event::Failed { op, why: format!("{:?}", error.kind()) }),
        }
    }

    pub(super) async fn let_go(&mut self, op: u32, guard: Guard) {
        let now = Moment::now();
        let left = if guard.is_held() { nanos(window(&guard.holding())).max(1) } else { 0 };
        if guard.state() == LockState::Released {
            self.journal.note(&Event::Lost { op, reason: TAKEN_AWAY.to_owned() });
        }
        self.journal.note_at(now.as_nanos(), &Event::Releasing { op, left });
        if self.rng.chance(100) {
            drop(guard);
            return;
        }
        let answer = match guard.release().await {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        self.journal.note(&Event::Released { op, answer });
    }
}

/// What is left of the time in which nobody else holds the lock.
pub(super) fn window(guard: &Holding) -> Duration {
    guard.valid_for()
}

pub(super) fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
