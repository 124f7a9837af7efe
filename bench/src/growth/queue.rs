//! Long queues: many clients want one lock, and a hand-over must not cost more because many wait behind it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidelock::{Locks, testing::Clock};
use tokio::task::JoinSet;

use super::{
    limit, runtime,
    stand::{STORES, Stand},
};
use crate::contest::machine;

const TTL: Duration = Duration::from_secs(30);
const NAME: &str = "queue";

/// How long the queues are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these stores
    #[arg(long = "backend", value_name = "STORE", default_values = STORES, value_parser = STORES)]
    stores: Vec<String>,
    /// Clients in the short queue
    #[arg(long, default_value_t = 10)]
    few: u64,
    /// Clients in the long queue
    #[arg(long, default_value_t = 200)]
    many: u64,
    /// How many hand-overs are measured in each queue
    #[arg(long, default_value_t = 1_000)]
    hand_overs: u64,
    /// How often both are measured, in turns
    #[arg(long, default_value_t = 3)]
    turns: usize,
}

/// What one hand-over cost, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    time: f64,
    client: f64,
    server: f64,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let mut kept = true;
    for store in &args.stores {
        kept &= compare(store, args).map_err(|error| format!("{store}: {error}"))?;
    }
    Ok(kept)
}

fn compare(store: &str, args: &Args) -> Result<bool, String> {
    let stand = Stand::start(store, TTL.as_secs())?;
    println!("{store}, a hand-over to the next client and its next place in the queue:");
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for _ in 0..args.turns.max(1) {
        for (clients, costs) in [(args.few, &mut short), (args.many, &mut long)] {
            let cost = runtime()?.block_on(measure(&stand, clients, args.hand_overs))?;
            println!(
                "  {clients:>4} clients {:>9.0} µs, work of the client {:>6.0} µs, of the server {:>6.0} µs",
                cost.time, cost.client, cost.server
            );
            costs.push(cost);
        }
    }
    let times = |of: fn(&Cost) -> f64| median(&long, of) / median(&short, of);
    // A file has no server, and its clients work less than can be measured in a short time.
    let work = times(|cost| cost.client + cost.server);
    if work.is_finite() {
        println!("  {:<34} {work:>9.2}", "work, long queue ÷ short");
    }
    Ok(limit("time, long queue ÷ short", times(|cost| cost.time), 2.0, ""))
}

/// Lets so many clients, each with a connection of its own, take turns.
async fn measure(stand: &Stand, clients: u64, hand_overs: u64) -> Result<Cost, String> {
    let said = |error: tidelock::Error| error.to_string();
    let mut all = Vec::new();
    for _ in 0..clients {
        all.push(stand.connect().await?);
    }
    // All stand in line before anything is measured: each takes its turn once.
    let turns = Arc::new(AtomicU64::new(0));
    let clock = Clock::machine();
    let mut tasks = JoinSet::new();
    for locks in &all {
        tasks.spawn(take_turns(locks.clone(), Arc::clone(&turns), clients + hand_overs));
    }
    while turns.load(Ordering::Relaxed) < clients {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let own = [std::process::id()];
    let seen = || (turns.load(Ordering::Relaxed), clock.now(), machine::worked(&own));
    let ((first, began, client), server) = (seen(), machine::worked(&stand.processes()));
    while turns.load(Ordering::Relaxed) < clients + hand_overs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ((last, ended, client_then), server_then) = (seen(), machine::worked(&stand.processes()));
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics").map_err(said)?;
    }
    let each = 1e6 / (last - first).max(1) as f64;
    Ok(Cost {
        time: ended.since(began).as_secs_f64() * each,
        client: (client_then - client) * each,
        server: (server_then - server) * each,
    })
}

/// Takes the lock again and again, until all together have had it so often.
async fn take_turns(locks: Locks, turns: Arc<AtomicU64>, most: u64) -> tidelock::Result<()> {
    while turns.load(Ordering::Relaxed) < most {
        let guard = locks.mutex(NAME).ttl(TTL).lock().await?;
        turns.fetch_add(1, Ordering::Relaxed);
        guard.release().await?;
    }
    Ok(())
}

fn median(costs: &[Cost], of: fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<f64> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
