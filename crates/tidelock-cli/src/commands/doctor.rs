//! `tidelock doctor`: whether a store is fit for locks.

use std::{fmt::Write, path::PathBuf, time::Duration};

use serde::Serialize;
use tidelock::{
    Locks,
    backend::{Abilities, LockView, TokenGrade},
};

use crate::{
    args::Doctor,
    clock::Moment,
    commands::stores,
    exit::Exit,
    output::{self, Trouble},
    store::Store,
    values::Span,
};

/// How often the probe lock is taken: enough for a median, few enough for a slow store.
const ROUNDS: usize = 21;
/// Past this a hand-over is slow enough for people to notice.
const SLOW: Duration = Duration::from_millis(100);

/// What was found, as programs read it.
#[derive(Debug, Serialize)]
struct Findings {
    url: String,
    directory: Option<PathBuf>,
    abilities: stores::Row,
    locks_in_use: usize,
    /// Acquire and release of a free lock; nothing if none could be acquired.
    median_us: Option<u64>,
    slowest_us: Option<u64>,
    /// Of the lock that was named, if it is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<LockView>,
    /// Whether there are no problems.
    fit: bool,
    /// Problems that make locks unsafe here.
    problems: Vec<String>,
    /// What is good to know.
    notes: Vec<String>,
}

/// Connects, tries, and tells.
pub(crate) async fn run(args: &Doctor) -> Result<Exit, Trouble> {
    let store = Store::new(&args.store)?;
    let locks = store.connect().await?;
    let probed = match probe(&locks).await {
        // What is known to be wrong with the store may be the reason: it is said as well.
        Err(Trouble::Lock(error)) if !locks.concerns().is_empty() => Err(error),
        probed => Ok(probed?),
    };
    let abilities = locks.abilities();
    let mut problems = problems(abilities);
    problems.extend(locks.concerns());
    if let Err(error) = &probed {
        problems.push(format!("no lock can be acquired: {error}"));
    }
    let probed = probed.ok();
    if probed.is_some_and(|(_, _, grows)| !grows) {
        problems.push("tokens did not grow from one holder to the next: do not rely on them here".to_owned());
    }
    let lock = match &args.name {
        Some(name) => locks.look([name.as_str()]).await?.pop(),
        None => None,
    };
    let mut known = [locks.notes(), notes(abilities, probed.map(|(median, ..)| median))].concat();
    if let Some(name) = &args.name {
        known.push(about(name, lock.as_ref()));
    }
    let url = store.to_string();
    let findings = Findings {
        abilities: stores::Row::new(&url, abilities),
        url,
        directory: store.directory(),
        locks_in_use: locks.look_all().await?.len(),
        median_us: probed.map(|(median, ..)| micros(median)),
        slowest_us: probed.map(|(_, slowest, _)| micros(slowest)),
        fit: problems.is_empty(),
        problems,
        notes: known,
        lock,
    };
    if args.json {
        output::json(&findings)?;
    } else {
        output::text(&text(&findings, probed.map(|(median, slowest, _)| (median, slowest))))?;
    }
    Ok(if findings.fit { Exit::Done } else { Exit::No })
}

/// Takes and gives back a lock of its own: median and longest time, and whether tokens grew.
async fn probe(locks: &Locks) -> Result<(Duration, Duration, bool), Trouble> {
    let name = format!("tidelock/doctor/{}", std::process::id());
    let mutex = locks.mutex(name).ttl(Duration::from_secs(10)).wait(Duration::from_secs(10));
    let (mut times, mut tokens) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Moment::now();
        let guard = mutex.lock().await?;
        tokens.push(guard.token());
        guard.release().await?;
        times.push(Moment::now().since(start));
    }
    times.sort();
    let grows = tokens.windows(2).all(|pair| pair[0] < pair[1]);
    Ok((times[ROUNDS / 2], times[ROUNDS - 1], grows))
}

pub(crate) fn problems(abilities: &Abilities) -> Vec<String> {
    match abilities.token {
        TokenGrade::Process => {
            vec![
                "only this process sees these locks: use another store for locks between processes"
                    .to_owned(),
            ]
        }
        _ => Vec::new(),
    }
}

pub(crate) fn notes(abilities: &Abilities, median: Option<Duration>) -> Vec<String> {
    let mut notes = Vec::new();
    if abilities.token == TokenGrade::TimeAssisted {
        notes.push(
            "tokens grow with the store's data or its clock: if data is lost and the clock is set back, they may repeat"
                .to_owned(),
        );
    }
    if !abilities.push {
        notes.push("the store cannot wake a waiter: waiters ask again and again".to_owned());
    }
    if !abilities.fair {
        notes.push("waiters get the lock in any order: somebody may wait long".to_owned());
    }
    if let Err(why) = abilities.permits {
        notes.push(format!("the store does not count permits, so --permits does not work here: {why}"));
    }
    if let Some(median) = median.filter(|median| *median > SLOW) {
        notes.push(format!("a free lock takes {}: the store is far away or busy", Span(median)));
    }
    notes
}

/// Who holds a lock, and who is kept out.
fn about(name: &str, view: Option<&LockView>) -> String {
    let Some(view) = view else { return format!("lock {name:?} is free") };
    let holders: Vec<_> = view.holders.iter().map(|holder| output::clean(&holder.label)).collect();
    let holders = if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") };
    let (foreign, waiting) = (view.holders.iter().any(|holder| holder.foreign.is_some()), view.waiters.len());
    let forever = view.holders.iter().filter_map(|holder| holder.foreign.as_ref());
    let forever = forever.filter(|foreign| !foreign.expires).count();
    let mut text = format!("lock {name:?} is held by {holders}, and {waiting} of ours wait");
    if foreign {
        text.push_str("; a holder of another make is not told if you break it");
    }
    if forever > 0 {
        text.push_str("; it never expires, so nobody gets the lock before it is released or broken");
    }
    text
}

fn text(findings: &Findings, times: Option<(Duration, Duration)>) -> String {
    let Findings { url, directory, abilities, locks_in_use, fit, problems, notes, .. } = findings;
    let mut text = abilities.describe();
    // Writing to a string does not fail.
    let _ = writeln!(text, "url         {url}");
    if let Some(directory) = directory {
        let _ = writeln!(text, "directory   {}", directory.display());
    }
    let _ = writeln!(text, "in use      {locks_in_use}");
    if let Some((median, slowest)) = times {
        let _ = writeln!(text, "round trip  {median:.1?} median, {slowest:.1?} slowest of {ROUNDS}");
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    for problem in problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    text.push_str(if *fit { "fit for locks\n" } else { "not fit for locks\n" });
    text
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
