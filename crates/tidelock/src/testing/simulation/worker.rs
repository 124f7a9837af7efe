//! What the tasks of a simulated client do: ask, hold, look whether they may, give back.

use std::{sync::Arc, time::Duration};

use super::{Use, World};
use crate::{
    Guard, LockState, Locks, Name,
    backend::Share,
    clock::Moment,
    error::{ErrorKind, Result as LockResult},
    testing::{history::Hold, rng::Rng},
};

/// One task of one client.
pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) locks: Locks,
    pub(super) client: u64,
    pub(super) rng: Rng,
}

/// What a worker asks for.
#[derive(Clone, Debug)]
struct Wish {
    name: Name,
    share: Share,
    owner: Option<String>,
    ttl: Duration,
    auto_renew: bool,
    max_hold: Option<Duration>,
}

impl Worker {
    pub(super) async fn work(mut self) {
        let busy = self.world.plan.busy;
        for _ in 0..self.world.plan.rounds {
            let pause = if busy { Duration::ZERO } else { self.rng.millis(0, 60) };
            tokio::time::sleep(pause).await;
            let wish = self.wish();
            let asked = self.world.tick();
            self.asks(1);
            let got = self.acquire(&wish).await;
            self.asks(-1);
            match got {
                Ok(Some(guard)) => self.hold(guard, &wish, asked).await,
                Ok(None) => self.world.seen().outcome.refused += 1,
                Err(_) => self.world.seen().outcome.errors += 1,
            }
        }
    }

    fn asks(&self, more: i32) {
        let now = self.world.clock.now();
        let mut seen = self.world.seen();
        let asking = &mut seen.asking[self.client as usize];
        asking.tasks = asking.tasks.saturating_add_signed(more);
        asking.idle_since = now;
    }

    fn wish(&mut self) -> Wish {
        let rng = &mut self.rng;
        let gentle = self.world.plan.gentle;
        let (name, used) =
            self.world.plan.names[rng.below(self.world.plan.names.len() as u64) as usize].clone();
        let sharing = match used {
            Use::Mutex => Share::Exclusive,
            Use::ReadWrite => Share::Shared,
            Use::Permits => Share::Permits { n: rng.between(1, 3) as u32, of: 3 },
        };
        let owned = rng.chance(150);
        Wish {
            name,
            share: if rng.chance(250) { Share::Exclusive } else { sharing },
            owner: owned.then(|| format!("owner-{}", rng.below(3))),
            ttl: Duration::from_millis(if rng.chance(800) { 120 } else { rng.pick(&[60, 300, 2_000]) }),
            auto_renew: gentle || rng.chance(850),
            max_hold: (!gentle && rng.chance(100)).then(|| rng.millis(5, 150)),
        }
    }

    async fn acquire(&mut self, wish: &Wish) -> LockResult<Option<Guard>> {
        let limit = self.rng.millis(1, 200);
        match self.rng.below(10) {
            0 => ask(&self.locks, wish, Some(Duration::ZERO)).await,
            1 | 2 => ask(&self.locks, wish, Some(limit)).await,
            // Dropped half-way.
            3 | 4 => match tokio::time::timeout(limit, self.wait(wish)).await {
                Ok(got) => got,
                Err(_) => {
                    self.world.seen().outcome.dropped += 1;
                    Ok(None)
                }
            },
            _ => self.wait(wish).await,
        }
    }

    /// Asks with patience that has no end: whatever the store does, it must not end it.
    async fn wait(&self, wish: &Wish) -> LockResult<Option<Guard>> {
        let got = ask(&self.locks, wish, None).await;
        if let Err(error) = &got
            && error.kind() == ErrorKind::Unavailable
        {
            self.world.breach(format!("patience was ended by the store: {error}"));
        }
        got
    }

    async fn hold(&mut self, guard: Guard, wish: &Wish, asked: u64) {
        let at = self.note(&guard, wish, asked);
        let longest = if self.world.plan.busy { 15 } else { 150 };
        let mut left = self.rng.between(0, longest);
        // An owner takes again what it has.
        let inner = if wish.owner.is_some() && self.rng.chance(500) {
            let asked = self.world.tick();
            let got = ask(&self.locks, wish, Some(Duration::ZERO)).await.ok().flatten();
            got.map(|inner| (self.note(&inner, wish, asked), inner))
        } else {
            None
        };
        while guard.is_held() {
            self.used(at, &guard, wish);
            if let Some((at, inner)) = &inner
                && inner.is_held()
            {
                self.used(*at, inner, wish);
            }
            if left == 0 {
                break;
            }
            let step = self.rng.between(1, 8).min(left);
            left -= step;
            tokio::time::sleep(Duration::from_millis(step)).await;
        }
        match guard.state() {
            LockState::Lost => self.world.seen().outcome.lost += 1,
            LockState::Released => {
                self.world.breach(format!("given back under its holder: {:?}", guard.token()))
            }
            LockState::Held | LockState::Uncertain => {}
        }
        drop(inner);
        if self.rng.chance(300) {
            drop(guard);
            return;
        }
        let (name, epoch) = (guard.name().clone(), guard.token().epoch());
        match guard.release().await {
            // An owner has several claims with one epoch, and one of them may go while others stay.
            Ok(()) if wish.owner.is_none() && self.world.store.was_told_absent(&name, epoch) => {
                self.world.breach(format!("released, though the store did not know it: {name:?} {epoch}"));
            }
            Ok(()) => {}
            Err(_) => self.world.seen().outcome.errors += 1,
        }
    }

    /// Writes down that a lock was got.
    fn note(&self, guard: &Guard, wish: &Wish, asked: u64) -> usize {
        let got = self.world.tick();
        let hold = Hold {
            name: wish.name.clone(),
            client: self.client as usize,
            share: wish.share,
            owner: wish.owner.clone(),
            token: guard.token(),
            asked,
            got,
            got_at: self.world.clock.now().since(Moment::default()),
            used: got,
            usable: guard.is_held(),
        };
        let mut seen = self.world.seen();
        seen.outcome.grants += 1;
        seen.outcome.hand_offs += u64::from(guard.token().get() & 1_023 != 0);
        seen.holds.push(hold);
        seen.holds.len() - 1
    }

    /// Writes down that a lock is in use, checked to be held just now.
    fn used(&self, at: usize, guard: &Guard, wish: &Wish) {
        let tick = self.world.tick();
        self.world.seen().holds[at].used = tick;
        // What was told a moment ago may not have been read yet. An owner has several claims with
        // one epoch, and one of them may go while others stay.
        let before = self.world.clock.now() - Duration::from_millis(2);
        if wish.owner.is_none() && self.world.store.was_told_gone(guard.name(), guard.token().epoch(), before)
        {
            self.world
                .breach(format!("used though its client was told that it is gone: {:?}", guard.token()));
        }
    }
}

/// Asks for what is wished, with a limit or without.
async fn ask(locks: &Locks, wish: &Wish, limit: Option<Duration>) -> LockResult<Option<Guard>> {
    macro_rules! set {
        ($handle:expr) => {{
            let mut handle = $handle.ttl(wish.ttl).auto_renew(wish.auto_renew);
            if let Some(limit) = wish.max_hold {
                handle = handle.max_hold(limit);
            }
            if let Some(owner) = &wish.owner {
                handle = handle.owner(owner);
            }
            handle
        }};
    }
    let name = wish.name.as_str();
    match wish.share {
        Share::Exclusive => {
            let mutex = set!(locks.mutex(name));
            match limit {
                Some(limit) => mutex.try_lock_for(limit).await,
                None => mutex.lock().await.map(Some),
            }
        }
        Share::Shared => {
            let lock = set!(locks.rw_lock(name));
            match limit {
                Some(limit) => lock.try_read_for(limit).await,
                None => lock.read().await.map(Some),
            }
        }
        Share::Permits { n, of } => {
            let semaphore = set!(locks.semaphore(name, of));
            match limit {
                Some(limit) => semaphore.try_acquire_for(n, limit).await,
                None => semaphore.acquire(n).await.map(Some),
            }
        }
    }
}
