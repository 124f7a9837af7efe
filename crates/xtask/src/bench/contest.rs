//! One lock against tokio's mutex, alone and in a crowd of 64 tasks.

use std::{hint::black_box, sync::Arc, time::Duration};

use tidelock::{Locks, Mutex, clock::Clock};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{Effort, Threads, duel::Duel, report::Row};
use crate::progress::Progress;

/// How many tasks want the same name.
const TASKS: u32 = 64;

/// What a task does while it holds the lock.
#[derive(Clone, Copy, Debug)]
enum Inside {
    Nothing,
    /// Lets others run, so that they find the lock taken.
    Yield,
}

impl Inside {
    async fn work(self) {
        if let Self::Yield = self {
            tokio::task::yield_now().await;
        }
    }
}

/// A contestant. Both run the same loop.
trait Lock: Clone + Send + 'static {
    /// Locks, works and releases once.
    fn pair(&self, inside: Inside) -> impl Future<Output = Result<(), String>> + Send;
}

impl Lock for Mutex {
    async fn pair(&self, inside: Inside) -> Result<(), String> {
        let guard = self.lock().await.map_err(|error| error.to_string())?;
        black_box(guard.token());
        inside.work().await;
        guard.release().await.map_err(|error| error.to_string())
    }
}

impl Lock for Arc<tokio::sync::Mutex<u64>> {
    async fn pair(&self, inside: Inside) -> Result<(), String> {
        let mut guard = self.lock().await;
        *guard = black_box(*guard + 1);
        inside.work().await;
        Ok(())
    }
}

/// The rows of one store on one runtime.
pub(super) fn rows(
    store: &str,
    url: &str,
    threads: Threads,
    effort: Effort,
    progress: &Progress,
) -> Result<Vec<Row>, String> {
    let runtime = threads.runtime()?;
    let ours = runtime.block_on(Locks::connect(url)).map_err(|error| error.to_string())?.mutex("contest");
    let tokio = Arc::new(tokio::sync::Mutex::new(0));
    let name = |what: &str| format!("{store}, {}: {what}", threads.name());
    let duel = |label: &str, tasks, inside| {
        Duel::fight(
            label,
            effort,
            progress,
            |pairs| turn(&runtime, &ours, tasks, pairs, inside),
            |pairs| turn(&runtime, &tokio, tasks, pairs, inside),
        )
    };

    let alone = name("lock and release, nobody else");
    let pair = duel(&alone, 1, Inside::Nothing)?;
    let crowd = name("64 tasks, one name");
    let together = duel(&crowd, TASKS, Inside::Nothing)?;
    let crowd_yields = name("64 tasks, one name, a yield inside");
    let yielding = duel(&crowd_yields, TASKS, Inside::Yield)?;
    Ok(vec![
        Row::duel(alone, &pair, pair.cost(), "cost < 20 × tokio", |ratio| ratio < 20.0),
        Row::duel(crowd, &together, together.throughput(), "throughput ≥ 0.2 × tokio", |ratio| {
            ratio >= 0.2
        }),
        Row::duel(crowd_yields, &yielding, yielding.throughput(), "throughput ≥ 0.2 × tokio", |ratio| {
            ratio >= 0.2
        }),
    ])
}

/// Lets tasks share the pairs of one turn. Says what all of them took.
fn turn(
    runtime: &Runtime,
    lock: &impl Lock,
    tasks: u32,
    pairs: u32,
    inside: Inside,
) -> Result<Duration, String> {
    let clock = Clock::machine();
    let each = pairs / tasks;
    runtime.block_on(async {
        let start = clock.now();
        let mut set = JoinSet::new();
        for _ in 0..tasks {
            let lock = lock.clone();
            set.spawn(async move {
                for _ in 0..each {
                    lock.pair(inside).await?;
                }
                Ok::<(), String>(())
            });
        }
        while let Some(done) = set.join_next().await {
            done.map_err(|error| error.to_string())??;
        }
        Ok(clock.now().since(start))
    })
}
