//! What has a client or a runtime of its own inside a client process: runtimes that share a client, clients that are shut
//! down or dropped, clients whose runtime ends, and programs without async.
//!
//! And holds that others are kept out of for a while after they were let go.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use tidelock::{ErrorKind, Guard, LockState, Locks, blocking};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    asks::{Hold, Request, Way},
    history::{TAKEN_AWAY, guest_label, label_of},
    moves::TIDY,
    player::{Player, nanos, window},
    record::{Event, Share},
    viewers::check_printed,
    work::{Pace, URL, Use},
};
use crate::clock::Moment;

/// How long such a client tries to reach its store.
const CONNECT: Duration = Duration::from_secs(5);

/// How much later than the end of its lease a guard may tell that it was lost, on a busy machine.
const LATE: Duration = Duration::from_millis(2_500);

/// Another client of this process.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) number: u32,
    /// As others see it.
    label: String,
    /// The locks that it asked for, and its last request for each.
    used: Mutex<HashMap<usize, u32>>,
}

impl Guest {
    pub(super) fn asks(&self, lock: usize, op: u32) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(lock, op);
    }

    fn used(&self) -> Vec<(usize, u32)> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.iter().map(|(lock, op)| (*lock, *op)).collect()
    }
}

/// A client on a runtime of its own.
struct Apart {
    locks: Locks,
    runtime: Handle,
    /// Dropped, it lets the runtime end.
    stay: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Player {
    pub(super) async fn host(&mut self) -> bool {
        sleep(self.rng.millis(20, 400)).await;
        match self.rng.below(100) {
            0..50 => self.short_job().await,
            50..60 => self.upgrade().await,
            60..70 => self.elsewhere().await,
            70..80 => self.shut_down().await,
            80..90 => self.end_runtime().await,
            _ => self.without_async().await,
        }
    }

    /// A job that several machines start by their own clocks: others are kept out for a while after it.
    async fn short_job(&mut self) -> bool {
        let pace = if self.rng.chance(600) { Pace::Slow } else { Pace::Quick };
        let Some(lock) = self.some_lock(pace) else { return false };
        let usage = self.work.locks[lock].usage;
        if usage == Use::Election {
            return true;
        }
        let ttl = Duration::from_millis(self.work.locks[lock].ttl_ms);
        let percent = if pace == Pace::Slow { (10, 90) } else { (1, 8) };
        let time = self.rng.around(ttl, percent.0, percent.1);
        // Some take longer than that.
        let work = self.rng.around(time, 0, 120);
        let (way, share) = (Way::TryFor(ttl / 4), self.share(usage));
        self.request(Request { lock, share, way, owner: 0, renews: true, hold: Hold::Keep(time, work) }).await
    }

    /// Lets go of a hold that others are kept out of until a moment.
    pub(super) async fn keep(&mut self, op: u32, guard: Guard, until: Moment, work: Duration) {
        sleep(work).await;
        if !self.check(op, &guard.holding()) {
            return self.let_go(op, guard).await;
        }
        check_printed(&format!("{guard:?} {:?}", guard.holding()), guard.name().as_str());
        let now = Moment::now();
        let until = until.as_nanos().max(now.as_nanos());
        let left = nanos(window(&guard.holding())).max(1);
        self.journal.note_at(now.as_nanos(), &Event::Releasing { op, left });
        if self.rng.chance(300) {
            let is_held = guard.is_held();
            drop(guard);
            if is_held {
                self.journal.note_at(now.as_nanos(), &Event::Kept { op, until });
            }
            return;
        }
        match guard.release().await {
            Ok(()) => {
                self.journal.note(&Event::Released { op, answer: "ok".to_owned() });
                self.journal.note_at(now.as_nanos(), &Event::Kept { op, until });
            }
            Err(error) => {
                self.journal.note(&Event::Released { op, answer: format!("{:?}", error.kind()) });
            }
        }
    }

    /// An owner that reads asks to write as well, which is refused: it would wait for itself.
    async fn upgrade(&mut self) -> bool {
        let is_shared = |lock: &usize| self.work.locks[*lock].usage == Use::ReadWrite;
        let all: Vec<_> =
            self.locks_of(Pace::Slow).chain(self.locks_of(Pace::Quick)).filter(is_shared).collect();
        let Some(lock) = self.rng.pick(&all).copied() else { return false };
        let (share, way, owner, hold) = (Share::Shared, Way::TryFor(self.ttl / 8), self.owner, Hold::Not);
        let request = Request { lock, share, way, owner, renews: true, hold };
        let Ok((op, Some(guard))) = self.acquire(&request).await else { return false };
        let more = Request { share: Share::Exclusive, way: Way::TryFor(self.ttl / 4), ..request };
        let asked = self.note_ask(lock, Share::Exclusive, owner, more.way.patience());
        match self.asking(&more).await {
            Ok(Some(both)) => {
                self.granted(asked, &both.holding());
                self.let_go(asked, both).await;
            }
            Ok(None) => self.journal.note(&Event::TimedOut { op: asked }),
            Err(error) if error.kind() == ErrorKind::Upgrade => {
                self.journal.note(&Event::Refused { op: asked });
            }
            Err(error) => {
                let why = format!("{:?}", error.kind());
                self.journal.note(&Event::Failed { op: asked, why });
            }
        }
        self.check(op, &guard.holding());
        self.let_go(op, guard).await;
        true
    }

    /// Another runtime uses the first client of this process.
    async fn elsewhere(&mut self) -> bool {
        let mut player = self.fork();
        let requests = self.rng.between(1, 20);
        let done = apart(move || {
            let Some(runtime) = runtime() else { return };
            runtime.block_on(async {
                player.wait_for_loss().await;
                for _ in 0..requests {
                    player.quick().await;
                }
            });
        });
        done.await.unwrap_or_else(|_| std::process::abort());
        true
    }

    /// Holds a slow lock and waits to be told that it is lost, which it mostly is not.
    async fn wait_for_loss(&mut self) {
        let Some(request) = self.slow_mutex(self.ttl / 4) else { return };
        let time = self.rng.millis(0, 900);
        let Ok((op, Some(guard))) = self.acquire(&request).await else { return };
        // Either way: whether it is held is looked at then.
        let _ = timeout(time, guard.lost()).await;
        self.check(op, &guard.holding());
        self.let_go(op, guard).await;
    }

    /// Shuts a client down, with calls of several runtimes under way.
    async fn shut_down(&mut self) -> bool {
        let Some((mut player, apart)) = self.guest().await else { return false };
        let tasks = busy(&mut player, Some(&apart.runtime));
        let here = busy(&mut player, None);
        sleep(self.rng.millis(0, 1_200)).await;
        let grace = if self.rng.chance(300) { Duration::ZERO } else { self.rng.around(self.ttl, 0, 60) };
        player.note_end(|guest| Event::Closing { guest, grace: nanos(grace) });
        apart.locks.shutdown(grace).await;
        player.note_end(|guest| Event::Closed { guest });
        // Nothing new.
        player.quick().await;
        finish(tasks).await;
        finish(here).await;
        if let Some(guest) = &player.guest {
            self.look_after_guest(guest).await;
        }
        end(apart).await;
        true
    }

    /// Ends the runtime of a client while it is used, also by another runtime.
    async fn end_runtime(&mut self) -> bool {
        let Some((mut player, apart)) = self.guest().await else { return false };
        let tasks = busy(&mut player, Some(&apart.runtime));
        let here = busy(&mut player, None);
        let request = self.slow_mutex(Duration::from_millis(600));
        let held = match request {
            Some(request) => player.acquire(&request).await,
            None => Err(()),
        };
        sleep(self.rng.millis(0, 800)).await;
        player.note_end(|guest| Event::Ending { guest });
        end(apart).await;
        player.note_end(|guest| Event::Closed { guest });
        if let Ok((op, Some(guard))) = held {
            // It is held until its lease ends: nobody renews it.
            player.check(op, &guard.holding());
            let left = guard.valid_for();
            let lost = timeout(left + LATE, guard.lost()).await;
            player.check(op, &guard.holding());
            if lost.is_err() && guard.state() != LockState::Released {
                self.journal.note(&Event::Unheard { op });
            }
            player.let_go(op, guard).await;
        }
        player.quick().await;
        finish(here).await;
        // They ended with the runtime.
        drop(tasks);
        true
    }

    /// A program without async, in a thread. It drops its client when it has dropped its guards: what was released arrives.
    async fn without_async(&mut self) -> bool {
        let Some(guest) = self.invite() else { return false };
        let (mut player, url) = (self.fork(), url());
        player.guest = Some(Arc::clone(&guest));
        let done = apart(move || {
            let connected = blocking::Locks::builder(&*url).label(&guest.label).connect_within(CONNECT);
            if let Ok(locks) = connected {
                for _ in 0..player.rng.between(1, 12) {
                    player.blocking(&locks);
                }
            }
            guest
        });
        let guest = done.await.unwrap_or_else(|_| std::process::abort());
        self.look_after_guest(&guest).await;
        true
    }

    /// One request of a program without async.
    fn blocking(&mut self, locks: &blocking::Locks) {
        let pace = if self.rng.chance(700) { Pace::Quick } else { Pace::Slow };
        let is_mutex = |lock: &usize| self.work.locks[*lock].usage == Use::Mutex;
        let all: Vec<_> = self.locks_of(pace).filter(is_mutex).collect();
        let Some(lock) = self.rng.pick(&all).copied() else { return };
        let limit = self.rng.millis(1, 300);
        let op = self.note_ask(lock, Share::Exclusive, 0, nanos(limit));
        let it = &self.work.locks[lock];
        let mutex = locks.mutex(&it.name).ttl(Duration::from_millis(it.ttl_ms));
        let guard = match mutex.try_lock_for(limit) {
            Ok(Some(guard)) => guard,
            Ok(None) => return self.journal.note(&Event::TimedOut { op }),
            Err(error) => {
                return self.journal.note(&Event::Failed { op, why: format!("{:?}", error.kind()) });
            }
        };
        let holding = guard.holding();
        self.granted(op, &holding);
        if self.rng.chance(300) {
            thread::sleep(self.rng.millis(0, 30));
            self.check(op, &holding);
        }
        let now = Moment::now();
        let left = if guard.is_held() { nanos(window(&holding)).max(1) } else { 0 };
        if guard.state() == LockState::Released {
            self.journal.note(&Event::Lost { op, reason: TAKEN_AWAY.to_owned() });
        }
        self.journal.note_at(now.as_nanos(), &Event::Releasing { op, left });
        if self.rng.chance(300) {
            return drop(guard);
        }
        let answer = match guard.release() {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        self.journal.note(&Event::Released { op, answer });
    }

    /// A slow mutex, asked for with a limit.
    fn slow_mutex(&mut self, limit: Duration) -> Option<Request> {
        let is_mutex = |lock: &usize| self.work.locks[*lock].usage == Use::Mutex;
        let all: Vec<_> = self.locks_of(Pace::Slow).filter(is_mutex).collect();
        let lock = self.rng.pick(&all).copied()?;
        let (share, way, hold) = (Share::Exclusive, Way::TryFor(limit), Hold::Not);
        Some(Request { lock, share, way, owner: 0, renews: true, hold })
    }

    /// A player that goes another way from here.
    fn fork(&mut self) -> Self {
        let mut other = self.clone();
        other.rng.fork(1);
        self.rng.fork(2);
        other
    }

    /// Another client of this process that is about to come.
    fn invite(&self) -> Option<Arc<Guest>> {
        if self.run.is_ending() {
            return None;
        }
        let number = self.journal.number();
        let label = guest_label(&label_of(self.work.client, self.work.generation), number);
        Some(Arc::new(Guest { number, label, used: Mutex::default() }))
    }

    /// Another client of this process, on a runtime of its own, and a player that uses it.
    async fn guest(&mut self) -> Option<(Self, Apart)> {
        let guest = self.invite()?;
        let (label, url) = (guest.label.clone(), url());
        let (tell, connected) = oneshot::channel();
        let (stay, leave) = oneshot::channel();
        let ended = apart(move || {
            let Some(runtime) = runtime() else { return };
            let connected = runtime.block_on(Locks::builder(&*url).label(&label).connect_within(CONNECT));
            let Ok(locks) = connected else { return };
            if tell.send((locks, runtime.handle().clone())).is_ok() {
                // Nobody sends: it is dropped.
                let _: Result<(), _> = runtime.block_on(leave);
            }
        });
        let (locks, runtime) = connected.await.ok()?;
        let mut player = self.fork();
        (player.locks, player.guest) = (locks.clone(), Some(guest));
        Some((player, Apart { locks, runtime, stay, ended }))
    }

    fn note_end(&self, event: impl FnOnce(u32) -> Event) {
        if let Some(guest) = &self.guest {
            self.journal.note(&event(guest.number));
        }
    }

    /// Looks a while after a client ended whether its claims are out of the store.
    async fn look_after_guest(&self, guest: &Guest) {
        let ended = Moment::now();
        sleep(TIDY).await;
        let used = guest.used();
        let names: Vec<_> = used.iter().map(|(lock, _)| &self.work.locks[*lock].name).collect();
        let Ok(views) = self.locks.look(names).await else { return };
        if Moment::now().since(ended) > TIDY + TIDY / 8 {
            return;
        }
        for view in views {
            let mut claims = view.holders.iter().chain(&view.waiters);
            if claims.any(|claim| *claim.label == *guest.label)
                && let Some((_, op)) =
                    used.iter().find(|(lock, _)| self.work.locks[*lock].name == view.name.as_str())
            {
                self.journal.note(&Event::Stray { op: *op });
            }
        }
    }
}

/// Lets tasks use a client until it does not work any more: on its runtime, or here.
fn busy(player: &mut Player, runtime: Option<&Handle>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..if runtime.is_some() { 3 } else { 2 } {
        let mut player = player.fork();
        let work = async move {
            while !player.run.is_ending() {
                let went_well = match number {
                    0 => player.quick().await,
                    _ => player.slowly().await,
                };
                if !went_well {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        match runtime {
            Some(runtime) => tasks.spawn_on(work, runtime),
            None => tasks.spawn(work),
        };
    }
    tasks
}

impl Player {
    /// A slow lock, waited for and held for a while.
    async fn slowly(&mut self) -> bool {
        let Some(request) = self.slow_mutex(self.ttl * 2) else { return false };
        let hold = Hold::For(self.rng.around(self.ttl, 5, 60), 3);
        let way = if self.rng.chance(300) { Way::Wait } else { request.way };
        self.request(Request { hold, way, ..request }).await
    }
}

/// Waits for tasks that end on their own.
async fn finish(mut tasks: JoinSet<()>) {
    let ended = async { while tasks.join_next().await.is_some_and(|ended| ended.is_ok()) {} };
    // A request that is not answered is found in the history.
    let _ = timeout(Duration::from_secs(20), ended).await;
}

/// Lets the runtime of a client end.
async fn end(apart: Apart) {
    let Apart { stay, ended, .. } = apart;
    drop(stay);
    ended.await.unwrap_or_else(|_| std::process::abort());
}

/// Works in a thread of its own.
fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (tell, done) = oneshot::channel();
    // Nobody listens if the run ended meanwhile.
    thread::spawn(move || drop(tell.send(work())));
    done
}

/// A runtime. Nothing where the process can open no file.
fn runtime() -> Option<Runtime> {
    Builder::new_current_thread().enable_all().build().ok()
}

fn url() -> String {
    std::env::var(URL).unwrap_or_default()
}
