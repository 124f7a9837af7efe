//! Lines of every kind under load: clients that take turns, and whether any two held what does not fit together.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidelock::{Guard, Holding, Locks, Token};
use tokio::task::JoinHandle;

use crate::support::{Place, SHORT, eventually, within};

/// What is in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Owners,
    ReadWrite,
    Permits,
}

/// How many permits there are.
const PERMITS: u32 = 3;

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Mutex, Self::Owners, Self::ReadWrite, Self::Permits];

    /// Takes the lock as the client with this number does in this turn. Says how much of it that is.
    pub(crate) async fn take(
        self,
        locks: &Locks,
        name: &str,
        ttl: Duration,
        client: u32,
        turn: u32,
    ) -> tidelock::Result<(Guard, u32)> {
        Ok(match self {
            Self::Mutex => (locks.mutex(name).ttl(ttl).lock().await?, PERMITS),
            Self::Owners => {
                let owner = format!("owner {client}");
                (locks.mutex(name).owner(&*owner).ttl(ttl).lock().await?, PERMITS)
            }
            Self::ReadWrite if (client + turn).is_multiple_of(3) => {
                (locks.rw_lock(name).ttl(ttl).write().await?, PERMITS)
            }
            Self::ReadWrite => (locks.rw_lock(name).ttl(ttl).read().await?, 0),
            Self::Permits => {
                let n = PERMITS - (client + turn) % PERMITS;
                (locks.semaphore(name, PERMITS).ttl(ttl).acquire(n).await?, n)
            }
        })
    }
}

#[derive(Debug, Default)]
struct Seen {
    /// Who may still hold, and how much.
    holding: Vec<(Holding, u32)>,
    largest: Option<Token>,
    grants: usize,
    overlaps: usize,
    over: bool,
}

/// Clients that take turns on one line.
#[derive(Debug)]
pub(crate) struct Load {
    kind: Kind,
    pub(crate) name: String,
    seen: Arc<Mutex<Seen>>,
    turns: Vec<JoinHandle<()>>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    /// Begins, with so many clients of a place.
    pub(crate) async fn begin(place: &Place, kind: Kind, name: &str, clients: u32) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut turns = Vec::new();
        for client in 0..clients {
            let (seen, locks, name) = (Arc::clone(&seen), place.connect().await, name.to_owned());
            turns.push(tokio::spawn(async move { take_turns(&seen, kind, &locks, &name, client).await }));
        }
        let load = Self { kind, name: name.to_owned(), seen, turns };
        load.goes_on(2 * clients as usize).await;
        load
    }

    pub(crate) fn grants(&self) -> usize {
        lock(&self.seen).grants
    }

    /// Waits until so many more were granted.
    pub(crate) async fn goes_on(&self, grants: usize) {
        let before = self.grants();
        let what = format!("a line of kind {:?} goes on", self.kind);
        eventually(&what, || {
            self.grants() >= before + grants || self.turns.iter().any(JoinHandle::is_finished)
        })
        .await;
    }

    /// Ends it. Says how many grants there were, and how many did not fit with what others still relied on.
    pub(crate) async fn end(self) -> (usize, usize) {
        lock(&self.seen).over = true;
        for turn in self.turns {
            within("the load ends", turn).await.unwrap();
        }
        let seen = lock(&self.seen);
        (seen.grants, seen.overlaps)
    }
}

async fn take_turns(seen: &Mutex<Seen>, kind: Kind, locks: &Locks, name: &str, client: u32) {
    for turn in 0.. {
        let before = {
            let seen = lock(seen);
            if seen.over {
                return;
            }
            seen.largest
        };
        match kind.take(locks, name, SHORT, client, turn).await {
            Ok((guard, amount)) => {
                saw(&mut lock(seen), kind, &guard, amount, before);
                // Some work, so that there is something to overlap with.
                tokio::time::sleep(Duration::from_millis(2)).await;
                // That it was lost is seen by those who overlap with it.
                let _ = guard.release().await;
            }
            // A store that does not answer is asked again; one that refuses what it kept is what this is about.
            Err(error) => {
                assert!(!error.is_denied(), "{kind:?}: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Somebody got it who began to ask when `before` was the largest token.
fn saw(seen: &mut Seen, kind: Kind, guard: &Guard, amount: u32, before: Option<Token>) {
    let token = guard.token();
    // An owner whose release was not confirmed may still hold, and joins that hold.
    let joins = |before| kind == Kind::Owners && token == before;
    let grows = before.is_none_or(|before| token > before || joins(before));
    assert!(grows, "{kind:?}: {token:?} after {before:?}");
    seen.holding.retain(|(holding, _)| holding.is_held());
    if guard.is_held() {
        let fits = match amount {
            // Readers fit with readers, which take nothing.
            0 => seen.holding.iter().all(|(_, other)| *other == 0),
            PERMITS => seen.holding.is_empty(),
            amount => seen.holding.iter().map(|(_, other)| other).sum::<u32>() + amount <= PERMITS,
        };
        seen.overlaps += usize::from(!fits);
    }
    seen.holding.push((guard.holding(), amount));
    seen.largest = seen.largest.max(Some(token));
    seen.grants += 1;
}
