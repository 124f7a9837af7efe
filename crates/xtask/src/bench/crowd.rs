//! Many waiters on one name: ten times as many must take ten times as long, not a hundred times.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::{
    Locks, Mutex, Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Failure, Leave, Share},
    backends::memory::{MemoryBackend, MemoryStore},
    clock::Clock,
};
use tokio::task::JoinSet;

use super::{Effort, Threads, duel::Duel, report::Row};
use crate::progress::Progress;

const MANY: u32 = 10_000;
const FEW: u32 = 1_000;
const BAR: &str = "≤ 2 × as with 1,000";

/// Tasks of one process that wait for each other.
pub(super) fn tasks(
    store: &str,
    url: &str,
    threads: Threads,
    effort: Effort,
    progress: &Progress,
) -> Result<Row, String> {
    let runtime = threads.runtime()?;
    let mutex = runtime.block_on(Locks::connect(url)).map_err(|error| error.to_string())?.mutex("crowd");
    let scenario = format!("{store}, {}: 10,000 tasks wait, per task", threads.name());
    compare(scenario, effort, progress, |waiters| runtime.block_on(line_of_tasks(&mutex, waiters)))
}

/// Claims of different clients, on the waist itself.
pub(super) fn clients(effort: Effort, progress: &Progress) -> Result<Row, String> {
    let runtime = Threads::One.runtime()?;
    let scenario = "memory, the waist: 10,000 clients wait, per client".to_owned();
    compare(scenario, effort, progress, |waiters| {
        runtime.block_on(line_of_clients(waiters)).map_err(|error| error.to_string())
    })
}

fn compare(
    scenario: String,
    effort: Effort,
    progress: &Progress,
    line: impl Fn(u32) -> Result<Duration, String>,
) -> Result<Row, String> {
    let many = || Ok(line(MANY)?.as_secs_f64() / f64::from(MANY));
    let few = || {
        // As many waiters in sum, so that noise weighs as little as with the long line.
        let times = (0..MANY / FEW).map(|_| line(FEW));
        Ok(times.sum::<Result<Duration, String>>()?.as_secs_f64() / f64::from(MANY))
    };
    let duel = Duel::rounds(&scenario, effort.lines, progress, many, few)?;
    Ok(Row::duel(scenario, &duel, duel.cost(), BAR, |ratio| ratio <= 2.0))
}

/// How long a line of tasks takes from its beginning until all had the lock.
async fn line_of_tasks(mutex: &Mutex, waiters: u32) -> Result<Duration, String> {
    let clock = Clock::machine();
    let arrived = Arc::new(AtomicUsize::new(0));
    let first = mutex.lock().await.map_err(|error| error.to_string())?;
    let start = clock.now();
    let mut set = JoinSet::new();
    for _ in 0..waiters {
        let (mutex, arrived) = (mutex.clone(), Arc::clone(&arrived));
        set.spawn(async move {
            arrived.fetch_add(1, Ordering::Relaxed);
            mutex.lock().await?.release().await
        });
    }
    // Without this the first could be gone before the last came, and the line would be short.
    while arrived.load(Ordering::Relaxed) < waiters as usize {
        tokio::task::yield_now().await;
    }
    first.release().await.map_err(|error| error.to_string())?;
    while let Some(done) = set.join_next().await {
        done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    }
    Ok(clock.now().since(start))
}

/// How long a line of clients takes to come, to be told one after the other, and to go.
async fn line_of_clients(waiters: u32) -> Result<Duration, Failure> {
    let clock = Clock::machine();
    let store = MemoryStore::new(Clock::machine());
    let name = Name::new("crowd").map_err(|error| Failure::denied(error.to_string()))?;
    let label: Arc<str> = "bench".into();
    let line: Vec<_> = (0..waiters)
        .map(|_| {
            let client = ClientId::random();
            let backend = MemoryBackend::connect(Arc::clone(&store), client);
            let claim = Claim {
                id: ClaimId::new(client, 0),
                name: name.clone(),
                share: Share::Exclusive,
                owner: None,
                ttl: Duration::from_secs(30),
                label: Arc::clone(&label),
                detached: false,
                writes: false,
                auto_renew: true,
            };
            (backend, Arc::new(claim))
        })
        .collect();
    let start = clock.now();
    for (backend, claim) in &line {
        backend.enter(claim, Ask::Queue).await?;
    }
    for (place, (backend, claim)) in line.iter().enumerate() {
        // The first holds since it came; the others are told.
        if place > 0 {
            backend.wait().await?;
        }
        backend.leave(&name, claim.id, Leave::Done).await?;
    }
    Ok(clock.now().since(start))
}
