//! The contest: who takes part, in what, and what comes out.

mod bars;
mod chart;
mod held;
mod killed;
pub(crate) mod machine;
mod making;
mod page;
mod peers;
mod program;
mod progress;
mod rates;
mod report;
mod results;
mod scenario;
mod spread;
mod stores;
mod verdicts;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use self::{
    machine::busy,
    progress::{Progress, Step},
    results::{Outcome, Row},
    scenario::{SCENARIOS, Scenario},
    stores::{STORES, Store},
};

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this store: memory, memory-2-threads, file, redis, redlock, etcd, zookeeper, postgres, mysql
    #[arg(long = "backend", value_name = "STORE")]
    store: Option<String>,
    /// Only this scenario: pair, work, tasks, processes, election, distinct, try, read, held, killed, flash-sale, waiters, locks
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Other lock libraries on the same servers as well; each needs its own tools
    #[arg(long)]
    peers: bool,
    /// Fewer and shorter rounds: a first impression, not a result
    #[arg(long)]
    quick: bool,
    /// Print JSON: for each store its versions and its rows
    #[arg(long)]
    json: bool,
    /// Write RESULTS.md, charts and the numbers there; what was measured before and is not measured now stays
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    /// A turn of those who do not wait for each other.
    turn: Duration,
    /// A turn of those who do.
    contended: Duration,
    /// The lease of what is held for a moment.
    lease: Duration,
    /// How many locks are held.
    held: u64,
    /// The lease of what is held, and how long that is watched: a library that renews does so every third of a lease.
    held_lease: Duration,
    held_time: Duration,
    /// The lease where only memory counts: renewals of very many locks would be all that servers do.
    many_lease: Duration,
    /// The lease of holders that are killed, and how often that is done.
    killed_lease: Duration,
    killed: usize,
    /// The longest lines, and the most locks of one process.
    waiters: &'static [u64],
    locks: &'static [u64],
}

const FULL: Effort = Effort {
    rounds: 9,
    turn: Duration::from_millis(150),
    contended: Duration::from_millis(300),
    lease: Duration::from_secs(10),
    held: 10_000,
    held_lease: Duration::from_secs(9),
    held_time: Duration::from_secs(9),
    many_lease: Duration::from_secs(60),
    killed_lease: Duration::from_secs(3),
    killed: 3,
    waiters: &[1, 10, 100, 1_000, 10_000],
    locks: &[1, 1_000, 100_000],
};

const QUICK: Effort = Effort {
    rounds: 2,
    turn: Duration::from_millis(40),
    contended: Duration::from_millis(60),
    lease: Duration::from_secs(10),
    held: 1_000,
    held_lease: Duration::from_secs(3),
    held_time: Duration::from_secs(1),
    many_lease: Duration::from_secs(3),
    killed_lease: Duration::from_secs(1),
    killed: 1,
    waiters: &[100],
    locks: &[],
};

impl Effort {
    fn longest_lease(self) -> Duration {
        self.lease.max(self.held_lease).max(self.many_lease).max(self.killed_lease)
    }
}

/// Measures and prints. Says whether every bar was met.
pub(crate) fn run(args: &Args) -> Result<bool, String> {
    let stores: Vec<&Store> = STORES
        .iter()
        .filter(|store| args.store.as_deref().is_none_or(|wanted| wanted == store.name))
        .collect();
    let scenarios: Vec<&Scenario> = SCENARIOS
        .iter()
        .filter(|scenario| args.scenario.as_deref().is_none_or(|wanted| wanted == scenario.name))
        .collect();
    if stores.is_empty() {
        return Err(format!("no such store: there are {}", names(STORES.iter().map(|store| store.name))));
    }
    if scenarios.is_empty() {
        let all = names(SCENARIOS.iter().map(|scenario| scenario.name));
        return Err(format!("no such scenario: there are {all}"));
    }
    if let Some(note) = busy() {
        eprintln!("{note}");
    }
    let effort = if args.quick { QUICK } else { FULL };
    let steps = stores.iter().flat_map(|store| {
        let measured = scenarios.iter().filter(|scenario| store.has(scenario));
        measured.map(|scenario| step(store, scenario, args))
    });
    let mut progress = Progress::new(steps.collect(), root().join("target/bench-times.json"));
    let mut outcomes = Vec::new();
    for store in stores {
        let outcome = measure(store, &scenarios, args.peers, effort, &mut progress)?;
        if let Some(folder) = &args.write {
            // After each, so that a long run that is stopped keeps what was measured.
            let all = results::keep(&folder.join("results"), outcome.clone())?;
            page::write(folder, &all)?;
        }
        outcomes.push(outcome);
    }
    drop(progress);
    let met = outcomes.iter().flat_map(|outcome| &outcome.rows).all(Row::is_met);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcomes).map_err(|error| error.to_string())?);
    } else {
        print!("{}", report::tables(&outcomes));
    }
    Ok(met)
}

/// A scenario of a store, for those who watch.
fn step(store: &Store, scenario: &Scenario, args: &Args) -> Step {
    let with = if args.peers { "with peers" } else { "alone" };
    let how = if args.quick { "quick" } else { "full" };
    let typical = match (args.quick, args.peers) {
        (true, false) => 2.0,
        (true, true) => 8.0,
        (false, false) => 15.0,
        (false, true) => 45.0,
    };
    Step { key: format!("{} {} {with} {how}", store.name, scenario.name), typical }
}

/// Writes RESULTS.md and the charts again, from the numbers that are there.
pub(crate) fn write_again(folder: &Path) -> Result<bool, String> {
    page::write(folder, &results::all(&folder.join("results"))?)?;
    Ok(true)
}

fn measure(
    store: &Store,
    scenarios: &[&Scenario],
    peers: bool,
    effort: Effort,
    progress: &mut Progress,
) -> Result<Outcome, String> {
    progress.say(&format!("{}: its servers start", store.name));
    progress.show(&format!("{}: its servers start", store.name));
    let stand = (store.start)(effort)?;
    let contestants = store.contestants(&stand, peers, progress);
    let mut rows = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| store.has(scenario)) {
        progress.step(&format!("{}: {}", store.name, scenario.title));
        rows.extend(scenario.run(&stand, &contestants, effort, progress)?);
    }
    bars::judge(store.name, &mut rows);
    Ok(Outcome { store: store.name.to_owned(), about: machine::about(store), rows })
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
