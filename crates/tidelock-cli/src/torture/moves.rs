//! What takes a task longer than a request: holding past the end of a lease, hanging, crowds, breaking others, and
//! looking in the store for what should not be there.

use std::{thread, time::Duration};

use tidelock::Guard;
use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};

use super::{
    asks::{Hold, Request, Way},
    player::Player,
    record::{Event, Nanos, Share},
    work::{BREAKS, Pace, Use},
};
use crate::clock::Moment;

/// How long a crowd is at one lock: longer than a process may keep it to itself, by far.
const CROWD: Duration = Duration::from_secs(3);

/// How long a claim that nobody wants may still be in the store when nothing disturbs.
pub(super) const TIDY: Duration = Duration::from_millis(1_200);

impl Player {
    /// A task that takes its time.
    pub(super) async fn slow(&mut self) -> bool {
        if self.work.breaks && self.rng.chance(80) {
            let pace = if self.rng.chance(700) { Pace::Slow } else { Pace::Quick };
            self.break_holder(pace).await;
        }
        let is_storm = self.run.is_storm();
        match self.rng.below(100) {
            0..4 => self.crowd().await,
            4..10 if is_storm => self.hang().await,
            // Without renewal, and held until after its end: what a program that hangs does to its lock.
            10..13 if is_storm => self.long(self.ttl * 2, false).await,
            13..19 => self.long(self.ttl * 3 / 2, true).await,
            19..24 => self.ticket().await,
            24..27 if is_storm => self.abandon().await,
            _ => self.patient().await,
        }
    }

    /// A request that may wait.
    async fn patient(&mut self) -> bool {
        let pace = match self.rng.below(10) {
            0..6 => Pace::Slow,
            6..8 => Pace::Long,
            _ => Pace::Quick,
        };
        // Readers, and writers that wait for them, have to meet.
        let is_shared = |lock: &usize| self.work.locks[*lock].usage == Use::ReadWrite;
        let met = self.locks_of(Pace::Slow).find(is_shared).filter(|_| self.meets);
        let (pace, lock) =
            if self.rng.chance(850) && met.is_some() { (Pace::Slow, met) } else { (pace, None) };
        let Some(lock) = lock.or_else(|| self.some_lock(pace)) else { return false };
        let usage = self.work.locks[lock].usage;
        let way = match (usage, self.rng.below(100)) {
            (_, 0..15) => Way::Drop(self.rng.millis(0, 300)),
            (Use::Election, _) | (_, 15..60) => Way::Wait,
            (_, 60..90) => Way::TryFor(self.rng.millis(1, 6_000)),
            _ => Way::Try,
        };
        // Some of those who hold when a server fails were granted just before.
        let most = if pace == Pace::Slow { 600 } else { 15 };
        let hold = Hold::For(self.rng.millis(0, most), 3);
        let owner = if usage == Use::Mutex && self.rng.chance(200) { self.owner } else { 0 };
        let share = self.share(usage);
        self.request(Request { lock, share, way, owner, renews: true, hold }).await
    }

    /// Holds a slow lock for long.
    async fn long(&mut self, time: Duration, renews: bool) -> bool {
        let Some(lock) = self.some_lock(Pace::Slow) else { return false };
        let (way, hold) = (Way::TryFor(self.rng.millis(1, 3_000)), Hold::For(time, 8));
        let share = self.share(self.work.locks[lock].usage);
        self.request(Request { lock, share, way, owner: 0, renews, hold }).await
    }

    /// Holds a part of a lock that is else held for moments, without renewal and past its end. Mostly nobody else is in line
    /// when it ends: the next one finds a line of claims that have all expired.
    async fn abandon(&mut self) -> bool {
        let is_shared = |lock: &usize| !matches!(self.work.locks[*lock].usage, Use::Mutex | Use::Election);
        let locks: Vec<_> = self.locks_of(Pace::Quick).filter(is_shared).collect();
        let Some(lock) = self.rng.pick(&locks).copied() else { return false };
        let share = match self.work.locks[lock].usage {
            Use::Permits(of) => Share::Permits { n: 1, of },
            _ => Share::Shared,
        };
        let (way, hold) = (Way::TryFor(self.ttl / 4), Hold::For(self.ttl * 6 / 5, 3));
        self.request(Request { lock, share, way, owner: 0, renews: false, hold }).await
    }

    /// Several tasks of this process want one lock all the time: others must still get their turn.
    async fn crowd(&mut self) -> bool {
        let is_mutex = |lock: &usize| self.work.locks[*lock].usage == Use::Mutex;
        let Some(lock) = self.locks_of(Pace::Quick).find(is_mutex) else { return false };
        let one = |mut player: Self, number: u64| async move {
            player.rng.fork(number);
            let began = Moment::now();
            while Moment::now().since(began) < CROWD && !player.run.is_ending() {
                let hold = Hold::For(player.rng.millis(0, 2), 1);
                let (share, way) = (Share::Exclusive, Way::TryFor(CROWD));
                if !player.request(Request { lock, share, way, owner: 0, renews: true, hold }).await {
                    return;
                }
            }
        };
        let mut tasks = JoinSet::new();
        for number in 0..3 {
            tasks.spawn(one(self.clone(), number));
        }
        self.rng.fork(3);
        while let Some(done) = tasks.join_next().await {
            // A task that panicked ends the client, which is told.
            if done.is_err() {
                std::process::abort();
            }
        }
        true
    }

    /// Holds a lock and blocks the thread of this process, then lets go before anything else had a turn: the release is
    /// the first to hear of what happened meanwhile. Mostly another task of the process waits for the lock.
    async fn hang(&mut self) -> bool {
        let is_mutex = |lock: &usize| self.work.locks[*lock].usage == Use::Mutex;
        let Some(lock) = self.locks_of(Pace::Slow).find(is_mutex) else { return false };
        let (share, hold) = (Share::Exclusive, Hold::Not);
        let request = Request { lock, share, way: Way::TryFor(self.ttl), owner: 0, renews: true, hold };
        let Ok((op, guard)) = self.acquire(&request).await else { return false };
        let Some(guard) = guard else { return true };
        let mut next = JoinSet::new();
        let mut op_of_next = 0;
        if self.rng.chance(700) {
            op_of_next = self.note_ask(lock, share, 0, Nanos::MAX);
            next.spawn(self.asking(&Request { way: Way::Wait, ..request }));
            // Its turn: it stands in line now.
            yield_now().await;
        }
        // Past the end of the lease, or not.
        let percent = if self.rng.chance(500) { (101, 130) } else { (20, 100) };
        let time = self.rng.around(self.ttl, percent.0, percent.1);
        self.block(time);
        self.let_go(op, guard).await;
        let op = op_of_next;
        match next.join_next().await {
            None => {}
            Some(Ok(Ok(Some(guard)))) => {
                self.granted(op, &guard.holding());
                self.let_go(op, guard).await;
            }
            Some(Ok(Ok(None))) => self.journal.note(&Event::TimedOut { op }),
            Some(Ok(Err(error))) => {
                self.journal.note(&Event::Failed { op, why: format!("{:?}", error.kind()) });
            }
            Some(Err(_)) => std::process::abort(),
        }
        true
    }

    /// Asks, and notes the answer. An error is noted, too.
    pub(super) async fn acquire(&self, request: &Request) -> Result<(u32, Option<Guard>), ()> {
        let op = self.note_ask(request.lock, request.share, request.owner, request.way.patience());
        match self.asking(request).await {
            Ok(Some(guard)) => {
                self.granted(op, &guard.holding());
                Ok((op, Some(guard)))
            }
            Ok(None) => {
                self.journal.note(&Event::TimedOut { op });
                Ok((op, None))
            }
            Err(error) => {
                self.journal.note(&Event::Failed { op, why: format!("{:?}", error.kind()) });
                Err(())
            }
        }
    }

    /// Blocks the thread of this process.
    pub(super) fn block(&self, time: Duration) {
        let from = Moment::now().as_nanos();
        thread::sleep(time);
        self.journal.note(&Event::Hung { from });
    }

    /// The task that uses rare locks and looks what is left of its requests, holds a lock of a long ttl for longer than
    /// that, and takes the holders of such locks out.
    pub(super) async fn probe(&mut self) -> bool {
        match self.rng.below(10) {
            0..2 if self.work.breaks => {
                // Mostly of the one that is held for long.
                let held = self.locks_of(Pace::Long).last().filter(|_| self.rng.chance(700));
                let lock = held.or_else(|| self.some_lock(Pace::Long));
                self.break_holder_of(lock).await;
                sleep(self.rng.millis(0, 500)).await;
                true
            }
            2..4 => {
                let Some(lock) = self.locks_of(Pace::Long).last() else { return false };
                let ttl = Duration::from_millis(self.work.locks[lock].ttl_ms);
                let (share, way) = (Share::Exclusive, Way::TryFor(Duration::from_secs(2)));
                let hold = Hold::For(ttl * 3 / 2, 40);
                self.request(Request { lock, share, way, owner: 0, renews: true, hold }).await
            }
            _ => self.tidy().await,
        }
    }

    /// Takes a lock just before something fails, and looks afterwards whether it is out of the store.
    pub(super) async fn brink(&mut self) -> bool {
        self.warnings = self.run.warned(self.warnings).await;
        let locks: Vec<_> = self.locks_of(Pace::Brink).collect();
        let Some(lock) = self.rng.pick(&locks).copied().filter(|_| !self.run.is_ending()) else {
            return false;
        };
        let is_gust = self.run.is_gust();
        if is_gust && self.work.breaks && self.rng.chance(450) {
            // A holder that is hit at this moment does not hear of it, and has to find out by asking.
            sleep(self.rng.millis(0, 300)).await;
            let held = self.locks_of(Pace::Long).last();
            self.break_holder_of(held).await;
            return true;
        }
        let (pause, way, hold) = if is_gust { self.in_gust() } else { self.over_failure() };
        sleep(pause).await;
        let op = self.journal.next();
        let share = Share::Exclusive;
        let went_well = self.request(Request { lock, share, way, owner: 0, renews: true, hold }).await;
        // Nobody else of this process uses the lock.
        self.look_after(lock, op).await;
        went_well
    }

    /// When a lock is asked for, how, and how it is held when the network is about to fail for a moment: before and after
    /// that, so that some hold when others ask. Some give up before it is back.
    fn in_gust(&mut self) -> (Duration, Way, Hold) {
        let limit = if self.rng.chance(700) { self.ttl * 3 / 2 } else { self.rng.millis(50, 400) };
        let hold = if self.rng.chance(300) { Hold::Not } else { Hold::For(self.rng.millis(0, 500), 2) };
        (self.rng.millis(0, 300), Way::TryFor(limit), hold)
    }

    /// The same when a server is about to fail: for longer than it takes to come back. A process that hangs relies on its
    /// lock and hears nothing of that. Others come when the server is back, and not before: what they wrote would take
    /// the grants before it to the disk.
    fn over_failure(&mut self) -> (Duration, Way, Hold) {
        if self.rng.chance(500) {
            let hold = Hold::For(self.rng.millis(0, 300), 1);
            return (self.rng.millis(700, 1_500), Way::TryFor(self.ttl * 3), hold);
        }
        let pause = if self.run.is_hushed() { self.rng.millis(300, 550) } else { self.rng.millis(0, 150) };
        let hold = if self.rng.chance(300) {
            Hold::Hang(self.rng.around(self.ttl, 60, 150))
        } else {
            let looks = self.rng.between(3, 12) as u32;
            Hold::For(self.rng.around(self.ttl, 200, 350), looks)
        };
        (pause, Way::TryFor(self.ttl), hold)
    }

    /// A request that ends, and a look whether it is out of the store.
    async fn tidy(&mut self) -> bool {
        // Mostly one of them, so that others hold it when it is asked for.
        let first = self.locks_of(Pace::Rare).next();
        let lock = if self.rng.chance(700) { first } else { self.some_lock(Pace::Rare) };
        let Some(lock) = lock else { return false };
        let way = match self.rng.below(10) {
            0..3 => Way::DropAfter(self.rng.below(8)),
            3..6 => Way::Drop(self.rng.millis(0, 150)),
            6 => Way::Try,
            _ => Way::TryFor(self.rng.millis(1, 500)),
        };
        // Some hold for longer than it takes to look what is left of those who gave up meanwhile.
        let most = if self.rng.chance(300) { 3_000 } else { 250 };
        let hold = Hold::For(self.rng.millis(0, most), 1);
        let share = self.share(self.work.locks[lock].usage);
        let op = self.journal.next();
        let went_well = self.request(Request { lock, share, way, owner: 0, renews: true, hold }).await;
        self.look_after(lock, op).await;
        went_well
    }

    /// Looks a while after the last request of this process for a lock whether its claim is out of the store.
    pub(super) async fn look_after(&self, lock: usize, op: u32) {
        let ended = Moment::now();
        sleep(TIDY).await;
        let name = &self.work.locks[lock].name;
        let Ok(views) = self.locks.look([name]).await else { return };
        if Moment::now().since(ended) > TIDY + TIDY / 8 {
            // Where a look takes this long, giving back may still be under way.
            return;
        }
        let mut claims = views.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
        if claims.any(|claim| self.locks.is_own(claim.id)) {
            self.journal.note(&Event::Stray { op });
        }
    }

    /// Takes the holder of some lock out.
    async fn break_holder(&mut self, pace: Pace) {
        let lock = self.some_lock(pace);
        self.break_holder_of(lock).await;
    }

    async fn break_holder_of(&mut self, lock: Option<usize>) {
        let Some(lock) = lock else { return };
        let name = self.work.locks[lock].name.clone();
        let Ok(views) = self.locks.look([&name]).await else { return };
        let Some(holder) = views.first().and_then(|view| view.holders.first()) else { return };
        let Some(token) = holder.token() else { return };
        let (lock, token) = (u16::try_from(lock).unwrap_or(u16::MAX), token.get());
        self.journal.note(&Event::Breaking { lock, token, holder: holder.label.to_string() });
        // If it was late, nobody was taken out, and the line above excuses nothing that happened before it.
        if matches!(self.locks.evict(&name, holder.id, BREAKS).await, Ok(true)) {
            self.journal.note(&Event::Broke { lock, token });
        }
    }

    pub(super) fn locks_of(&self, pace: Pace) -> impl DoubleEndedIterator<Item = usize> {
        let locks = self.work.locks.iter().enumerate();
        locks.filter(move |(_, lock)| lock.pace == pace).map(|(at, _)| at)
    }
}
