//! A contestant in a process of its own: reads what is asked, does it turn by turn, says what it did.

mod bare;
mod by_hand;
mod library;
mod ours;
mod turns;

use std::{process::ExitCode, time::Duration};

use tokio::runtime::{Builder, Runtime};

use self::{
    bare::{etcd::Etcd, files::Files, mysql::Mysql, postgres::Postgres, redis::Redis, zookeeper::Zookeeper},
    by_hand::{GetLock, Map, PolledRow},
    library::Failed,
    ours::Ours,
    turns::Asked,
};
use crate::protocol::{LEASE, NO_SUCH_THING, THREADS};

/// What a contestant is, and what it is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// ours, bare, map, polled-row, get-lock
    contestant: String,
    /// As in peers/README.md, and for some of ours: crowd, trips, sell
    #[command(flatten)]
    asked: Asked,
}

/// Runs to the end of its input.
pub(crate) fn run(args: &Args) -> ExitCode {
    match drive(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("{failed}");
            ExitCode::from(if let Failed::NoSuchThing = failed { NO_SUCH_THING } else { 1 })
        }
    }
}

fn drive(args: &Args) -> Result<(), Failed> {
    let runtime = runtime()?;
    let (asked, url) = (&args.asked, args.asked.servers.as_str());
    let lasting = matches!(asked.verb.as_str(), "hold" | "wait");
    let scheme = url.split(':').next().unwrap_or_default();
    if asked.verb == "crowd" {
        return turns::run(&runtime, asked, || Map::connect(false));
    }
    match (args.contestant.as_str(), scheme) {
        ("ours", _) => turns::run(&runtime, asked, || Ours::connect(url)),
        ("map", _) => turns::run(&runtime, asked, || Map::connect(true)),
        ("bare", "memory") => turns::run(&runtime, asked, || Map::connect(false)),
        ("bare", "file") => turns::run(&runtime, asked, || Files::connect(url)),
        ("bare", "redis") => turns::run(&runtime, asked, || Redis::connect(url)),
        ("bare", "etcd") => turns::run(&runtime, asked, || Etcd::connect(url, lasting)),
        ("bare", "zookeeper") => turns::run(&runtime, asked, || Zookeeper::connect(url, lasting)),
        ("bare", "postgres") => turns::run(&runtime, asked, || Postgres::connect(url, lasting)),
        ("bare", "mysql") => turns::run(&runtime, asked, || Mysql::connect(url, lasting)),
        ("polled-row", _) => turns::run(&runtime, asked, || PolledRow::connect(url)),
        ("get-lock", _) => turns::run(&runtime, asked, || GetLock::connect(url)),
        (other, scheme) => Err(Failed::because(format!("there is no {other} on {scheme}"))),
    }
}

fn runtime() -> Result<Runtime, Failed> {
    let threads = number_from(THREADS).unwrap_or(1);
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if let (false, Ok(threads)) = (threads == 1, usize::try_from(threads)) {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(Failed::because)
}

/// How long leases are.
fn lease() -> Duration {
    Duration::from_millis(number_from(LEASE).unwrap_or(30_000))
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
