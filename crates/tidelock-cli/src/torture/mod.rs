//! `tidelock torture`: breaks a deployment, and checks from histories whether locks kept their promises.
//!
//! | file | what is in it |
//! |---|---|
//! | `run.rs` | a run from its begin to its end |
//! | `herd.rs`, `nemesis.rs`, `hook.rs`, `proxy.rs`, `address.rs` | the processes of clients and the fence; the faults; the operator's command; the network between clients and servers |
//! | `client.rs`, `player.rs`, `asks.rs`, `moves.rs`, `tickets.rs`, `work.rs` | a client process: this program again |
//! | `guests.rs`, `viewers.rs` | tasks with clients and runtimes of their own; those who look at locks and knock |
//! | `record.rs`, `history.rs`, `reader.rs` | what clients write down, and all of it read back |
//! | `check/` | the rules |
//! | `report.rs`, `story.rs`, `timeline.rs` | what is told in the end |

mod address;
mod asks;
mod check;
mod client;
mod guests;
mod herd;
mod history;
mod hook;
mod moves;
mod nemesis;
mod player;
mod proxy;
mod reader;
mod record;
mod report;
mod rng;
mod run;
mod story;
mod tickets;
mod timeline;
mod viewers;
mod work;

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

pub(crate) use self::client::run_if_asked;
use self::{
    check::Rule,
    history::History,
    hook::Hook,
    nemesis::Rates,
    report::Report,
    run::{Done, Setup},
};
use crate::{
    args::Torture,
    clock::Moment,
    exit::Exit,
    output::{self, Trouble},
    store::Store,
};

/// Runs, or checks histories of an earlier run.
pub(crate) async fn run(args: Torture) -> Result<Exit, Trouble> {
    if let Some(folder) = &args.check {
        return verdict(folder, Done::default(), args.json);
    }
    let store = Store::named(&args.store)?
        .ok_or_else(|| Trouble::Usage("name the store to torture: use --url or --url-file".to_owned()))?;
    if !args.yes_this_is_a_test_server {
        return Err(Trouble::Usage(format!(
            "{store} gets load and faults that locks in use would feel: say --yes-this-is-a-test-server"
        )));
    }
    if store.url().starts_with("memory:") {
        return Err(Trouble::Usage(
            "clients are processes of their own and do not share memory: use another store".to_owned(),
        ));
    }
    let seed = args.seed.map_or_else(random, Ok)?;
    let folder = folder(args.report.as_deref(), seed)?;
    let setup = Setup {
        url: store.url().to_owned(),
        time: args.time,
        clients: args.clients,
        tasks: args.tasks,
        names: args.names,
        seed,
        ttl: args.ttl,
        long_ttl: args.long_ttl.unwrap_or(4 * args.ttl),
        breaks: !args.no_breaks,
        rates: Rates {
            kill: Some(args.kill).filter(|every| !every.is_zero()),
            stop: Some(args.stop).filter(|every| !every.is_zero()),
            cut: Some(args.cut).filter(|every| !every.is_zero()),
            doubles: args.double,
            corrupts: address::is_encrypted(store.url()),
            hook: args.hook.map(|command| Hook { command, faults: args.hook_faults, every: args.hook_every }),
        },
        overlaps_allowed: args.allow_overlaps,
        count: args.count,
    };
    let done = run::run(&setup, &folder).await?;
    verdict(&folder, done, args.json)
}

/// Checks histories and says what was found.
fn verdict(folder: &Path, done: Done, json: bool) -> Result<Exit, Trouble> {
    let history = History::read(folder)?;
    let mut findings = check::check(&history);
    for leftover in &done.leftovers {
        findings.add(Rule::Leftover, history.last, &[], || leftover.clone());
    }
    let report = Report::write(&history, &findings, done.skipped, folder)?;
    if json {
        output::json(&report)?;
    } else {
        output::text(&report.to_text())?;
    }
    Ok(if findings.is_clean() { Exit::Done } else { Exit::No })
}

/// A new folder for histories and the report.
fn folder(wanted: Option<&Path>, seed: u64) -> Result<PathBuf, Trouble> {
    let default = || {
        let unique = Moment::now().as_nanos();
        std::env::temp_dir().join(format!("tidelock-torture-{seed:x}-{unique:x}"))
    };
    let folder = wanted.map_or_else(default, Path::to_owned);
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
    if fs::read_dir(&folder)?.next().is_some() {
        return Err(Trouble::Usage(format!(
            "the directory {} is not empty: histories of two runs must not mix",
            folder.display()
        )));
    }
    Ok(folder)
}

fn random() -> Result<u64, Trouble> {
    // Short enough to be typed.
    Ok(u64::from(getrandom::u32().map_err(std::io::Error::from)?))
}
