//! `tidelock break`: a lock is taken away from its holders.

use std::fmt::Write;

use serde::Serialize;
use tidelock::MAX_OWNER_BYTES;

use crate::{
    args::Break,
    exit::Exit,
    output::{self, Trouble},
    plan::Store,
    values::Span,
    view::Claim,
};

/// What was done, as programs read it.
#[derive(Debug, Serialize)]
struct Broken<'a> {
    name: &'a str,
    store: &'static str,
    reason: &'a str,
    evicted: Vec<Claim>,
}

/// Puts out whoever holds the lock now; whoever waits stays in line.
pub(crate) async fn run(args: &Break) -> Result<Exit, Trouble> {
    // Without a reason nobody can tell later whether it was right.
    if args.reason.trim().is_empty() {
        return Err(Trouble::Usage("the reason is empty: say why the lock is broken".into()));
    }
    // Here and not where it is told to the holders: a mistake is one whether or not there are any.
    if args.reason.len() > MAX_OWNER_BYTES {
        return Err(Trouble::Usage(format!(
            "the reason has {} bytes, at most {MAX_OWNER_BYTES} are allowed: shorten it",
            args.reason.len()
        )));
    }
    if args.reason.contains(char::is_control) {
        return Err(Trouble::Usage("the reason has a control character: write it in one line".into()));
    }
    let locks = Store::new(&args.store)?.connect().await?;
    let store = locks.abilities().store;
    let views = locks.look(&[&args.name]).await?;
    let holders = views.first().map(|view| view.holders.as_slice()).unwrap_or_default();
    let mut text = String::new();
    for holder in holders {
        // This very claim and not the lock: if it was given back meanwhile, whoever holds it now is
        // not the one that was meant.
        if let Err(error) = locks.evict(&args.name, holder.id, &args.reason).await {
            // What is done is done, and has to be told.
            output::text(&text)?;
            return Err(error.into());
        }
        let (label, age) = (&holder.label, Span(holder.age));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "evicted {} from lock {:?} on {store} after {age}: {}",
            output::clean(label),
            args.name,
            output::clean(&args.reason)
        );
    }
    if args.json {
        let evicted = holders.iter().map(Claim::from).collect();
        output::json(&Broken { name: &args.name, store, reason: &args.reason, evicted })?;
    } else {
        output::text(&text)?;
    }
    if holders.is_empty() {
        output::complain(&format!("nobody holds lock {:?} on {store}: there is nothing to break", args.name));
        return Ok(Exit::No);
    }
    Ok(Exit::Done)
}
