//! `cargo xtask model`: runs the searches and says what they have shown.

use std::{
    collections::BTreeSet,
    process::ExitCode,
    thread::{self, available_parallelism},
};

use clap::Parser;
use serde_json::{Value, json};
use tidelock_model::{
    check::{POSSIBLE, Report},
    line,
    naive::NAIVE,
    rules::Promise,
    runs::{OURS, Run, Size},
};

/// Search the model of Redlock: ours must keep its promises, each naive variant must break one
#[derive(Debug, Parser)]
#[command(name = "cargo xtask model", bin_name = "cargo xtask model")]
struct Args {
    /// Only the searches that take seconds
    #[arg(long, conflicts_with = "large")]
    quick: bool,
    /// Also the searches that take long, with up to 2 GB of memory
    #[arg(long)]
    large: bool,
    /// Only this search
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let size = match (args.quick, args.large) {
        (true, _) => Size::Quick,
        (_, true) => Size::Large,
        _ => Size::Normal,
    };
    let all = NAIVE.iter().chain(OURS);
    let runs: Vec<_> = match &args.only {
        Some(name) => all.filter(|run| run.name == name).collect(),
        None => all.filter(|run| run.size <= size).collect(),
    };
    if runs.is_empty() {
        let names: Vec<_> = NAIVE.iter().chain(OURS).map(|run| run.name).collect();
        eprintln!("there is no such search; known are: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for (run, report) in search(&runs) {
        if !run.is_as_it_should(&report) {
            wrong.push(run.name);
        }
        if !args.json {
            print!("{}", text(run, &report));
        }
        if run.breaks.is_none() {
            seen.extend(report.seen.iter().copied());
        }
        rows.push((run, report));
    }
    // A search that never sees a holder promises nothing about holders.
    let unseen: Vec<_> = match args.only {
        Some(_) => Vec::new(),
        None => POSSIBLE.iter().chain(&line::POSSIBLE).filter(|what| !seen.contains(*what)).collect(),
    };
    let fine = wrong.is_empty() && unseen.is_empty();
    let states: usize = rows.iter().map(|(_, report)| report.unique).sum();
    if args.json {
        let searches: Vec<_> = rows.iter().map(|(run, report)| row(run, report)).collect();
        println!("{}", json!({ "ok": fine, "states": states, "unseen": unseen, "searches": searches }));
    } else {
        for what in unseen {
            println!("NEVER SEEN: {what}");
        }
        for name in &wrong {
            println!("NOT AS IT SHOULD BE: {name}");
        }
        println!("{} searches, {} not as they should be, {states} states", rows.len(), wrong.len());
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs searches in order. Those for one story use one thread each, so that it is a shortest one: they run side by side.
fn search<'a>(runs: &[&'a Run]) -> impl Iterator<Item = (&'a Run, Report)> {
    let (stories, complete): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.breaks.is_some());
    let jobs = available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(usize, Report)> = thread::scope(|scope| {
        let share = |job| stories.iter().enumerate().skip(job).step_by(jobs);
        let workers: Vec<_> = (0..jobs)
            .map(|job| {
                scope.spawn(move || share(job).map(|(at, run)| (at, run.search())).collect::<Vec<_>>())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a search that ends")).collect()
    });
    found.sort_by_key(|(at, _)| *at);
    let found: Vec<_> = found.into_iter().map(|(at, report)| (stories[at], report)).collect();
    found.into_iter().chain(complete.into_iter().map(|run| (run, run.search())))
}

/// What a search has shown, for people.
fn text(run: &Run, report: &Report) -> String {
    let found = match (&report.broken, run.breaks) {
        (None, None) => "keeps its promises".to_owned(),
        (None, Some(promise)) => format!("SHOULD BREAK {:?}, and nothing was found", promise.name()),
        (Some((promise, _)), None) => format!("BREAKS {:?}", promise.name()),
        (Some((promise, _)), Some(_)) => format!("breaks {:?}, as it must", promise.name()),
    };
    let mut text = format!("{}: {found}\n  {}\n", run.name, run.what);
    for (number, step) in report.broken.iter().flat_map(|(_, story)| story).enumerate() {
        text += &format!("  {:>3}  {step}\n", number + 1);
    }
    text + &format!(
        "  {} servers, {} clients; {} states, {} steps, depth {}, {:.1} s\n\n",
        report.servers,
        report.clients,
        report.unique,
        report.total,
        report.depth,
        report.took.as_secs_f64()
    )
}

/// What a search has shown, for programs.
fn row(run: &Run, report: &Report) -> Value {
    let bounds = &report.bounds;
    json!({
        "name": run.name,
        "what": run.what,
        "ok": run.is_as_it_should(report),
        "must_break": run.breaks.map(Promise::name),
        "breaks": report.broken.as_ref().map(|(promise, _)| promise.name()),
        "trace": report.broken.as_ref().map(|(_, story)| story),
        "servers": report.servers,
        "clients": report.clients,
        "bounds": {
            "ttl": bounds.ttl, "drift": bounds.drift, "skew": bounds.skew, "renewals": bounds.renewals,
            "forgets": bounds.forgets, "restarts": bounds.restarts, "doubles": bounds.doubles,
            "jumps": bounds.jumps, "puts": bounds.puts,
        },
        "states": report.unique,
        "steps": report.total,
        "depth": report.depth,
        "seconds": report.took.as_secs_f64(),
        "seen": report.seen,
    })
}
