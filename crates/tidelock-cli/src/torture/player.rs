//! One task of a client: takes locks in all ways, holds them, checks them, writes through the fence, and lets go.

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use tidelock::{Guard, Locks, Result};
use tokio::time::sleep;

use super::{
    client::{Journal, Run},
    record::{Event, Nanos, Share},
    rng::Rng,
    work::{Use, Work},
};
use crate::clock::Moment;

/// A request in progress.
type Asking<'a> = Pin<Box<dyn Future<Output = Result<Option<Guard>>> + Send + 'a>>;

/// How a request waits.
#[derive(Clone, Copy, Debug)]
enum Way {
    Wait,
    Try,
    TryFor(Duration),
    /// Its future is dropped after this time.
    Drop(Duration),
}

impl Way {
    fn patience(self) -> Nanos {
        match self {
            Self::Wait => Nanos::MAX,
            Self::Try => 0,
            Self::TryFor(limit) | Self::Drop(limit) => nanos(limit),
        }
    }
}

#[derive(Debug)]
pub(super) struct Player {
    locks: Locks,
    journal: Arc<Journal>,
    run: Arc<Run>,
    work: Arc<Work>,
    rng: Rng,
    ttl: Duration,
    /// The owner of locks that this task re-enters: the same after its process was killed and started again.
    owner: u32,
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
            owner: 1 + work.client * 1_000 + task,
            work,
        }
    }

    /// Plays until the run ends.
    pub(super) async fn play(mut self) {
        while !self.run.is_ending() {
            if self.rng.chance(self.work.breaks) {
                self.break_holder().await;
            }
            if !self.request().await {
                // A store that fails is not asked in a loop that starves everything else.
                sleep(self.rng.millis(10, 60)).await;
            }
            if self.rng.chance(300) {
                sleep(self.rng.millis(0, 20)).await;
            }
        }
    }

    /// One request and what follows from it. Says whether it went without an error.
    async fn request(&mut self) -> bool {
        let index = self.rng.below(self.work.names.len() as u64) as usize;
        let (name, usage) = self.work.names[index].clone();
        let share = self.share(usage);
        let way = self.way(usage);
        let owner = if usage == Use::Mutex && self.rng.chance(100) { self.owner } else { 0 };
        // Without renewal, and held until after its end: what a program that hangs does to its lock.
        let renews = !self.rng.chance(5);
        let op = self.journal.ask(&name, share, owner, way.patience());
        let guard = match self.ask(op, &name, usage, share, (way, owner, renews)).await {
            Ok(Some(guard)) => guard,
            Ok(None) => return true,
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
        self.granted(op, &guard);
        self.hold(op, index, share, &guard, renews).await;
        if owner != 0 && self.rng.chance(500) {
            self.re_enter(&name, owner, index).await;
        }
        let token = guard.token().get();
        self.let_go(op, guard).await;
        if share == Share::Exclusive && self.rng.chance(50) {
            // A write that was on its way for too long.
            sleep(self.rng.millis(0, 40)).await;
            self.run.write(op, index, token).await;
        }
        true
    }

    fn share(&mut self, usage: Use) -> Share {
        match usage {
            Use::Mutex | Use::Election => Share::Exclusive,
            Use::ReadWrite if self.rng.chance(600) => Share::Shared,
            Use::ReadWrite => Share::Exclusive,
            Use::Permits(of) => {
                Share::Permits { n: u16::try_from(self.rng.between(1, u64::from(of))).unwrap_or(1), of }
            }
        }
    }

    fn way(&mut self, usage: Use) -> Way {
        match (usage, self.rng.below(100)) {
            (_, 0..15) => Way::Drop(self.rng.millis(0, 300)),
            (Use::Election, _) | (_, 15..60) => Way::Wait,
            (_, 60..80) => Way::TryFor(self.rng.millis(1, 1_500)),
            _ => Way::Try,
        }
    }

    /// Asks, and notes every answer but errors and grants.
    async fn ask(
        &mut self,
        op: u32,
        name: &str,
        usage: Use,
        share: Share,
        (way, owner, renews): (Way, u32, bool),
    ) -> Result<Option<Guard>> {
        let limit = if let Way::Drop(after) = way { Some(after) } else { None };
        let looks = matches!(way, Way::Wait | Way::TryFor(_)) && self.rng.chance(150);
        let look_after = self.rng.millis(5, 50);
        let asking = asking(&self.locks, name, usage, share, self.ttl, (way, owner, renews));
        let looking = async {
            if looks {
                sleep(look_after).await;
                if let Ok(views) = self.locks.look([name]).await
                    && let Some(view) = views.first()
                    && view.waiters.iter().any(|waiter| self.locks.is_own(waiter.id))
                {
                    self.journal.note(&Event::Queued { op });
                }
            }
            pending::<()>().await;
        };
        let dropping = async {
            match limit {
                Some(after) => sleep(after).await,
                None => pending().await,
            }
        };
        tokio::select! {
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

    fn granted(&self, op: u32, guard: &Guard) {
        // The clock before the question: the window that is noted is never longer than the real one.
        let now = Moment::now();
        let until = now.plus(guard.valid_for()).as_nanos();
        self.journal.note_at(now.as_nanos(), &Event::Granted { op, token: guard.token().get(), until });
    }

    /// Uses a lock for a while.
    async fn hold(&mut self, op: u32, name: usize, share: Share, guard: &Guard, renews: bool) {
        let (steps, most) = match self.rng.below(1_000) {
            _ if !renews => (4, self.ttl.as_millis() as u64 / 2),
            // Long enough to be renewed several times.
            0..2 => (6, self.ttl.as_millis() as u64 / 3),
            2..300 => (0, 0),
            _ => (self.rng.between(1, 3), 6),
        };
        for step in 0..=steps {
            if !self.check(op, guard) {
                return;
            }
            if share == Share::Exclusive && self.rng.chance(500) {
                self.run.write(op, name, guard.token().get()).await;
            }
            if step < steps {
                sleep(self.rng.millis(most / 2, most)).await;
            }
        }
    }

    /// Notes whether the lock is still held.
    fn check(&self, op: u32, guard: &Guard) -> bool {
        let now = Moment::now();
        if guard.is_held() {
            let until = now.plus(guard.valid_for()).as_nanos();
            self.journal.note_at(now.as_nanos(), &Event::Checked { op, until });
            return true;
        }
        self.journal.note(&Event::Lost { op, reason: format!("{:?}", guard.state()) });
        false
    }

    /// Takes a lock that its owner has already.
    async fn re_enter(&mut self, name: &str, owner: u32, index: usize) {
        let op = self.journal.ask(name, Share::Exclusive, owner, Nanos::MAX);
        let way = (Way::Wait, owner, true);
        match asking(&self.locks, name, Use::Mutex, Share::Exclusive, self.ttl, way).await {
            Ok(Some(guard)) => {
                self.granted(op, &guard);
                self.check(op, &guard);
                self.run.write(op, index, guard.token().get()).await;
                self.let_go(op, guard).await;
            }
            Ok(None) => self.journal.note(&Event::Refused { op }),
            Err(error) => self.journal.note(&Event::Failed { op, why: format!("{:?}", error.kind()) }),
        }
    }

    async fn let_go(&mut self, op: u32, guard: Guard) {
        self.journal.note(&Event::Releasing { op });
        if self.rng.chance(150) {
            drop(guard);
            return;
        }
        let answer = match guard.release().await {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        self.journal.note(&Event::Released { op, answer });
    }

    /// Takes the holder of some lock out.
    async fn break_holder(&mut self) {
        let Some((name, _)) = self.rng.pick(&self.work.names).cloned() else { return };
        let Ok(views) = self.locks.look([&name]).await else { return };
        let Some(holder) = views.first().and_then(|view| view.holders.first()) else { return };
        let Some(token) = holder.token() else { return };
        self.journal.note(&Event::Breaking { name: name.clone(), token: token.get() });
        // If it was late, nobody was taken out, and the line above excuses nothing that happened before it.
        let _ = self.locks.evict(&name, holder.id, "torture").await;
    }
}

/// A request that is about to be made.
fn asking<'a>(
    locks: &Locks,
    name: &str,
    usage: Use,
    share: Share,
    ttl: Duration,
    (way, owner, renews): (Way, u32, bool),
) -> Asking<'a> {
    /// The three ways to ask a handle.
    macro_rules! ask {
        ($handle:expr, $wait:ident, $try:ident, $try_for:ident $(, $n:expr)?) => {{
            let handle = $handle.ttl(ttl).auto_renew(renews);
            Box::pin(async move {
                match way {
                    Way::Wait | Way::Drop(_) => handle.$wait($($n)?).await.map(Some),
                    Way::Try => handle.$try($($n)?).await,
                    Way::TryFor(limit) => handle.$try_for($($n,)? limit).await,
                }
            })
        }};
    }
    match (usage, share) {
        (Use::Election, _) => {
            let election = locks.election(name).ttl(ttl);
            Box::pin(async move { election.campaign().await.map(Some) })
        }
        (_, Share::Shared) => ask!(locks.rw_lock(name), read, try_read, try_read_for),
        (Use::ReadWrite, _) => ask!(locks.rw_lock(name), write, try_write, try_write_for),
        (_, Share::Permits { n, of }) => {
            let n = u32::from(n);
            ask!(locks.semaphore(name, of.into()), acquire, try_acquire, try_acquire_for, n)
        }
        (_, Share::Exclusive) if owner != 0 => {
            ask!(locks.mutex(name).owner(format!("torture-{owner}")), lock, try_lock, try_lock_for)
        }
        (_, Share::Exclusive) => ask!(locks.mutex(name), lock, try_lock, try_lock_for),
    }
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
