//! New names, one after the other: a store remembers names for a while, and must not get slower for that.

use std::time::Duration;

use tidelock::{Locks, testing::Clock};
use tokio::task::JoinSet;

use super::{
    limit, runtime,
    stand::{STORES, Stand},
};
use crate::contest::machine;

const TTL: Duration = Duration::from_secs(30);
/// How many locks are under way at a time.
const TASKS: u64 = 64;
const TENTHS: u64 = 10;

/// How many names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these stores
    #[arg(long = "backend", value_name = "STORE", default_values = ["postgres", "mysql"], value_parser = STORES)]
    stores: Vec<String>,
    /// Names that are locked and released once each, on a new server
    #[arg(long, default_value_t = 200_000)]
    names: u64,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let mut kept = true;
    for store in &args.stores {
        kept &= measure(store, args.names).map_err(|error| format!("{store}: {error}"))?;
    }
    Ok(kept)
}

fn measure(store: &str, names: u64) -> Result<bool, String> {
    let stand = Stand::start(store, TTL.as_secs())?;
    let clock = Clock::machine();
    println!("{store}, {names} new names on a new server, {TASKS} at a time:");
    let mut rates = Vec::new();
    runtime()?.block_on(async {
        let locks = stand.connect().await?;
        for tenth in 0..TENTHS {
            let (from, to) = (names * tenth / TENTHS, names * (tenth + 1) / TENTHS);
            let (began, worked) = (clock.now(), machine::worked(&stand.processes()));
            use_once(&locks, from, to).await.map_err(|error| error.to_string())?;
            let rate = (to - from) as f64 / clock.now().since(began).as_secs_f64();
            let micros = (machine::worked(&stand.processes()) - worked) / (to - from) as f64 * 1e6;
            println!("  names {from:>7} to {to:>7}  {rate:>8.0}/s  {micros:>6.1} µs of the server each");
            rates.push(rate);
        }
        Ok::<_, String>(())
    })?;
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    // A planner may go by what a table was for a while, and count again later.
    Ok(limit("rate, first tenth ÷ slowest tenth", rates[0] / slowest, 1.0 / 0.9, ""))
}

/// Locks and releases each of the names.
async fn use_once(locks: &Locks, from: u64, to: u64) -> tidelock::Result<()> {
    let mut tasks = JoinSet::new();
    for first in from..(from + TASKS).min(to) {
        let locks = locks.clone();
        tasks.spawn(async move {
            for number in (first..to).step_by(TASKS as usize) {
                locks.mutex(format!("name/{number}")).ttl(TTL).lock().await?.release().await?;
            }
            Ok::<_, tidelock::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics")?;
    }
    Ok(())
}
