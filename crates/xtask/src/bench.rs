//! `cargo xtask bench`: what a lock costs, as a ratio to what everybody knows.
//!
//! Contestants take turns in rounds on the same machine in the same minute, and what is shown is
//! the median of the rounds' ratios: a machine that is slow today is slow for both.

pub(crate) mod child;
pub(crate) mod contend;
mod contest;
mod crowd;
mod duel;
mod etcd;
mod files;
mod mysql;
mod peers;
mod postgres;
mod redis;
mod redlock;
mod report;
mod stock;
mod zookeeper;

use std::{fs, thread, time::Duration};

use tokio::runtime::{Builder, Runtime};

use self::report::Row;
use crate::progress::Progress;

/// The stores that are measured against tokio's mutex, and where to connect. The store in files
/// ("file") is measured against a bare flock.
const STORES: &[(&str, &str)] = &[("memory", "memory:")];

/// Measure locks against tokio's mutex and against their bars
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fewer and shorter rounds: a first impression, not a result
    #[arg(long)]
    quick: bool,
    /// Only this store: memory, file, redis, redlock, etcd, mysql, postgres, zookeeper
    #[arg(long = "backend", value_name = "STORE")]
    store: Option<String>,
    /// Only this scenario of a server's store: pair, distinct, crowd, processes, held, grants; of redis also flash-sale
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Other lock libraries on the same servers as well; each needs its own tools
    #[arg(long)]
    peers: bool,
    /// Print a JSON array with one object per row
    #[arg(long)]
    json: bool,
}

/// What of a server's store is measured.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    scenario: Option<&'a str>,
    /// Against other libraries, too.
    peers: bool,
}

impl Wanted<'_> {
    fn scenario(self, name: &str) -> bool {
        self.scenario.is_none_or(|wanted| wanted == name)
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How often each contestant has its turn. Many short ones: on a machine that does something
    /// else at times, the median is of rounds that nobody disturbed.
    rounds: usize,
    /// How long a turn takes at least.
    turn: Duration,
    /// How often a long line is compared with a short one.
    lines: usize,
    /// Fresh processes that hold many locks.
    children: usize,
}

const FULL: Effort = Effort { rounds: 101, turn: Duration::from_millis(20), lines: 31, children: 3 };
const QUICK: Effort = Effort { rounds: 31, turn: Duration::from_millis(5), lines: 11, children: 1 };

/// The runtimes that users have.
#[derive(Clone, Copy, Debug)]
enum Threads {
    One,
    Two,
}

impl Threads {
    const ALL: [Self; 2] = [Self::One, Self::Two];

    fn runtime(self) -> Result<Runtime, String> {
        let mut builder = match self {
            Self::One => Builder::new_current_thread(),
            Self::Two => Builder::new_multi_thread(),
        };
        if let Self::Two = self {
            builder.worker_threads(2);
        }
        builder.enable_all().build().map_err(|error| format!("no runtime: {error}"))
    }

    fn name(self) -> &'static str {
        match self {
            Self::One => "1 thread",
            Self::Two => "2 threads",
        }
    }
}

/// Measures and prints everything. Says whether every bar was met.
pub(crate) fn run(args: &Args) -> Result<bool, String> {
    let effort = if args.quick { QUICK } else { FULL };
    let progress = Progress::new();
    let mut rows: Vec<Row> = Vec::new();
    let wanted = |store: &str| args.store.as_deref().is_none_or(|wanted| wanted == store);
    for (store, url) in STORES.iter().filter(|(store, _)| wanted(store)) {
        for threads in Threads::ALL {
            rows.extend(contest::rows(store, url, threads, effort, &progress)?);
        }
        rows.extend(child::rows(store, url, effort, &progress)?);
        for threads in Threads::ALL {
            rows.push(crowd::tasks(store, url, threads, effort, &progress)?);
        }
    }
    if wanted("memory") {
        rows.push(crowd::clients(effort, &progress)?);
    }
    if wanted("file") {
        rows.extend(files::rows(effort, &progress)?);
    }
    let of = Wanted { scenario: args.scenario.as_deref(), peers: args.peers };
    if wanted("redis") {
        rows.extend(redis::rows(effort, &progress, of)?);
        if of.scenario("flash-sale") {
            rows.extend(stock::rows(effort, &progress)?);
        }
    }
    if wanted("mysql") {
        rows.extend(mysql::rows(effort, &progress, of)?);
    }
    if wanted("redlock") {
        rows.extend(redlock::rows(effort, &progress, of)?);
    }
    if wanted("etcd") {
        rows.extend(etcd::rows(effort, &progress, of)?);
    }
    if wanted("postgres") {
        rows.extend(postgres::rows(effort, &progress, of)?);
    }
    if wanted("zookeeper") {
        rows.extend(zookeeper::rows(effort, &progress, of)?);
    }
    if rows.is_empty() {
        return Err(
            "no such store: there are memory, file, redis, redlock, etcd, mysql, postgres and zookeeper"
                .to_owned(),
        );
    }
    drop(progress);
    if args.json {
        println!("{}", report::json(&rows)?);
    } else {
        print!("{}", report::table(&rows));
    }
    if let Some(note) = busy() {
        eprintln!("{note}");
    }
    Ok(rows.iter().all(|row| row.met))
}

/// A warning when the machine did more than to measure.
fn busy() -> Option<String> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = load.split(' ').next()?.parse().ok()?;
    let processors = thread::available_parallelism().ok()?;
    (load > processors.get() as f64 + 1.0).then(|| {
        format!("note: the machine was busy (load {load:.1} on {processors} processors): take no number from this run")
    })
}
