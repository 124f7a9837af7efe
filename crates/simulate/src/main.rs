//! `cargo xtask simulate`: the engine on a store that loses, delays and forgets, seed by seed.

mod progress;
mod table;

use std::{
    num::NonZero,
    panic::catch_unwind,
    process::ExitCode,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use clap::Parser;
use tidelock::testing::{
    defect::{Defect, Defects},
    simulation::{self, Outcome},
};

use self::progress::Progress;

/// Run the engine on a faulty store in simulated time; every run is replayable by its seed
#[derive(Debug, Parser)]
#[command(name = "cargo xtask simulate", bin_name = "cargo xtask simulate")]
struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N", required_unless_present = "seed")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Run this seed only
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Make a mistake on purpose, which must be found: its name, or all of them one after the other
    #[arg(long, value_name = "NAME|all")]
    defect: Option<String>,
    /// How many seeds to run at the same time [default: one for each processor]
    #[arg(long, value_name = "J")]
    jobs: Option<NonZero<usize>>,
}

/// Which seeds to run, on how many threads.
#[derive(Clone, Copy, Debug)]
struct Seeds {
    from: u64,
    count: u64,
    jobs: usize,
}

/// A seed with which something happened that must not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    seed: u64,
    /// In one line.
    what: String,
    /// With all that is known.
    story: String,
}

/// What running seeds has shown.
#[derive(Debug, Default)]
struct Sweep {
    ran: u64,
    outcome: Outcome,
    found: Option<Found>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        // The output says what was found.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("simulate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds. Returns whether it went as it should: nothing found, or each mistake found.
fn run(args: &Args) -> Result<bool, String> {
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let (from, count) = args.seed.map_or((args.from, args.seeds.unwrap_or(1)), |seed| (seed, 1));
    if from.checked_add(count).is_none() {
        return Err(format!("there are no {count} seeds from {from} on: start earlier"));
    }
    let seeds = Seeds { from, count, jobs };
    match args.defect.as_deref() {
        None => Ok(expect_nothing(seeds)),
        Some("all") => Ok(expect_all(seeds)),
        Some(name) => Ok(expect(find_defect(name)?, seeds)),
    }
}

/// Without a mistake nothing may be found.
fn expect_nothing(seeds: Seeds) -> bool {
    let sweep = sweep("no defect", seeds, &|seed| one(seed, Defects::NONE));
    println!("{} seeds: {}", sweep.ran, sweep.outcome);
    let Some(found) = sweep.found else {
        println!("no violation");
        return true;
    };
    println!("VIOLATION\n{}\nreplay: cargo xtask simulate --seed {}", found.story, found.seed);
    false
}

/// A mistake must be found, or the simulation is blind to it.
fn expect(defect: Defect, seeds: Seeds) -> bool {
    let (name, Seeds { from, count, .. }) = (name_of(defect), seeds);
    match sweep(&name, seeds, &|seed| one(seed, Defects::only(defect))).found {
        Some(found) => {
            println!("{name}: found after {} seeds", found.seed - from + 1);
            println!("{}\nreplay: cargo xtask simulate --defect {name} --seed {}", found.story, found.seed);
            true
        }
        None => {
            println!("{name}: NOT FOUND in {count} seeds from {from} on: the simulation is blind to it");
            false
        }
    }
}

fn expect_all(seeds: Seeds) -> bool {
    let mut rows = Vec::new();
    let mut blind = 0;
    for defect in Defect::ALL {
        let name = name_of(defect);
        let found = sweep(&name, seeds, &|seed| one(seed, Defects::only(defect))).found;
        blind += usize::from(found.is_none());
        let (seed, what) = found
            .map_or(("NOT FOUND".to_owned(), String::new()), |found| (found.seed.to_string(), found.what));
        rows.push([name, seed, what]);
    }
    print!("{}", table::render(["defect", "found at seed", "what was seen"], &rows));
    println!("{} of {} defects found", rows.len() - blind, rows.len());
    blind == 0
}

/// Runs one seed. A panic is a finding too, and without its seed it would be lost.
fn one(seed: u64, defects: Defects) -> Result<Outcome, Found> {
    match catch_unwind(|| simulation::run(seed, defects)) {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(violation)) => Err(Found { seed, what: short(&violation.what), story: violation.to_string() }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            let what = format!("panicked: {text}");
            Err(Found { seed, what: short(&what), story: format!("seed {seed} {what}") })
        }
    }
}

/// Runs seeds on several threads until one finds something.
fn sweep(label: &str, seeds: Seeds, one: &(impl Fn(u64) -> Result<Outcome, Found> + Sync)) -> Sweep {
    let end = seeds.from + seeds.count;
    let next = AtomicU64::new(seeds.from);
    let work = || {
        let mut sweep = Sweep::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return sweep;
            }
            sweep.ran += 1;
            match one(seed) {
                Ok(outcome) => sweep.outcome.merge(&outcome),
                Err(found) => {
                    // Nobody takes another seed, but those under way, which are smaller, come to
                    // their end: so the smallest is found, however many threads there are.
                    next.fetch_max(end, Ordering::Relaxed);
                    sweep.found = Some(found);
                    return sweep;
                }
            }
        }
    };
    thread::scope(|scope| {
        let (alive, ended) = mpsc::channel::<()>();
        let workers: Vec<_> = (0..seeds.jobs)
            .map(|_| {
                let (alive, work) = (alive.clone(), &work);
                scope.spawn(move || {
                    let sweep = work();
                    drop(alive);
                    sweep
                })
            })
            .collect();
        drop(alive);
        let progress = Progress::new();
        while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            let taken = next.load(Ordering::Relaxed).min(end) - seeds.from;
            progress.show(&format!("{label}: {taken} of {} seeds", seeds.count));
        }
        drop(progress);
        workers.into_iter().fold(Sweep::default(), |all, worker| match worker.join() {
            Ok(sweep) => all.and(sweep),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

impl Sweep {
    fn and(mut self, other: Self) -> Self {
        self.ran += other.ran;
        self.outcome.merge(&other.outcome);
        self.found = [self.found, other.found].into_iter().flatten().min_by_key(|found| found.seed);
        self
    }
}

/// The name to type: `lease-from-reply`.
fn name_of(defect: Defect) -> String {
    let mut name = String::new();
    for c in format!("{defect:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}

fn find_defect(name: &str) -> Result<Defect, String> {
    Defect::ALL.into_iter().find(|defect| name_of(*defect) == name).ok_or_else(|| {
        let known = Defect::ALL.map(name_of).join(", ");
        format!("there is no defect {name:?}; known are: all, {known}")
    })
}

/// The beginning of a text, for a table.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(110).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(seed: u64) -> Found {
        Found { seed, what: "two holders".to_owned(), story: String::new() }
    }

    #[test]
    fn every_defect_is_found_by_the_name_it_is_shown_with() {
        for defect in Defect::ALL {
            assert_eq!(find_defect(&name_of(defect)), Ok(defect));
        }
        assert_eq!(name_of(Defect::LeaseFromReply), "lease-from-reply");
        assert!(find_defect("luck").unwrap_err().contains("lease-from-reply"));
    }

    #[test]
    fn a_sweep_without_findings_runs_every_seed() {
        for jobs in [1, 4] {
            let sweep = sweep("test", Seeds { from: 10, count: 100, jobs }, &|_| Ok(Outcome::default()));
            assert_eq!((sweep.ran, sweep.found), (100, None));
        }
    }

    #[test]
    fn the_smallest_seed_that_finds_something_is_said() {
        for jobs in [1, 4] {
            let sweep = sweep("test", Seeds { from: 0, count: 1_000_000, jobs }, &|seed| {
                if seed % 50 == 49 { Err(bad(seed)) } else { Ok(Outcome::default()) }
            });
            assert_eq!(sweep.found, Some(bad(49)));
            assert!(sweep.ran < 1_000_000);
        }
    }

    #[test]
    fn a_long_story_is_one_short_line_in_a_table() {
        assert_eq!(short("two holders\nand more"), "two holders");
        assert_eq!(short(&"ä".repeat(200)).chars().count(), 111);
    }
}
