//! Standing in line, and telling people about it.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::termios::tcgetwinsize;
use tidelock::{
    Locks, Result,
    backend::{ClaimView, LockView},
    clock::Clock,
};

use crate::{
    hold::Hold,
    output::{self, Trouble},
    plan::Run,
    values::Span,
};

/// How soon a person at a terminal is told that there is a line, and how often how it moves.
const FIRST: Duration = Duration::from_millis(200);
const REFRESH: Duration = Duration::from_millis(500);
/// When a log is told, once: a wait shorter than this is not worth a line.
const LOGGED: Duration = Duration::from_secs(2);

/// Waits for the lock as the plan says, and says how it goes.
pub(crate) async fn acquire(locks: &Locks, plan: &Run) -> Result<Hold, Trouble> {
    let got = tokio::select! {
        biased;
        got = Hold::acquire(locks, plan) => got?,
        () = tell(locks, plan) => unreachable!("telling has no end"),
    };
    match got {
        Some(hold) => Ok(hold),
        None => Err(Trouble::Busy(busy(locks, plan).await)),
    }
}

async fn tell(locks: &Locks, plan: &Run) {
    if plan.quiet {
        return std::future::pending().await;
    }
    let (clock, start) = (Clock::machine(), Clock::machine().now());
    if !io::stderr().is_terminal() {
        tokio::time::sleep(LOGGED).await;
        let waited = clock.now().since(start);
        output::complain(&line(&look(locks, plan).await, plan, waited));
        return std::future::pending().await;
    }
    // Erased when this future is dropped, whoever won.
    let shown = Shown;
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        let views = look(locks, plan).await;
        shown.update(&line(&views, plan, clock.now().since(start)));
        pause = REFRESH;
    }
}

async fn look(locks: &Locks, plan: &Run) -> Vec<LockView> {
    let names: Vec<_> = plan.names.iter().map(|name| name.as_str()).collect();
    // The wait goes on whether or not there is something to tell about it.
    locks.look(&names).await.unwrap_or_default()
}

/// How the wait goes, in one line.
fn line(views: &[LockView], plan: &Run, waited: Duration) -> String {
    // Of several names, the one in whose line we stand.
    let place = views.iter().find_map(|view| Some((view, place(view, &plan.label, waited)?)));
    let name = place.map_or(plan.names[0].as_str(), |(view, _)| view.name.as_str());
    let mut text = format!("waiting for lock {name:?} for {}", Span(waited));
    if let Some((view, place)) = place {
        text.push_str(&format!(": place {place} of {} in line", view.waiters.len()));
        if let Some(holder) = held_by(view) {
            text.push_str(&format!(", held by {holder}"));
        }
    }
    text
}

/// Our place in line, from 1. Others may have the same label: then ours is the one that has waited
/// as long as we have.
fn place(view: &LockView, label: &str, waited: Duration) -> Option<usize> {
    let ours = view.waiters.iter().enumerate().filter(|(_, waiter)| &*waiter.label == label);
    ours.min_by_key(|(_, waiter)| waiter.age.abs_diff(waited)).map(|(index, _)| index + 1)
}

/// Who holds a lock and for how long: the first of them, and how many more.
fn held_by(view: &LockView) -> Option<String> {
    let longest = view.holders.iter().max_by_key(|holder| holder.age)?;
    let ClaimView { label, age, .. } = longest;
    Some(match view.holders.len() {
        1 => format!("{label} for {}", Span(*age)),
        n => format!("{label} for {} and {} more", Span(*age), n - 1),
    })
}

async fn busy(locks: &Locks, plan: &Run) -> String {
    let views = look(locks, plan).await;
    let store = locks.abilities().store;
    match views.iter().find_map(|view| Some((&view.name, held_by(view)?))) {
        Some((name, holder)) => format!("lock {name:?} on {store} is taken; held by {holder}"),
        None => format!("lock {:?} on {store} is taken", plan.names[0]),
    }
}

/// A line on the terminal that is written again and again.
struct Shown;

impl Shown {
    fn update(&self, text: &str) {
        let width = tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        // A line that wraps could not be erased; one column stays free for the cursor.
        let width = if width == 0 { 79 } else { width - 1 };
        let text: String = format!("tidelock: {}", output::clean(text)).chars().take(width).collect();
        let _ = io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes());
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}
