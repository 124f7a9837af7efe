//! `tidelock show`: one lock, who holds it and who waits.

use tidelock::backend::{ClaimView, LockView};

use crate::{
    args::Show,
    exit::Exit,
    output::{self, Trouble},
    plan::Store,
    values::Span,
    view::Lock,
};

/// Prints the line of one lock.
pub(crate) async fn run(args: &Show) -> Result<Exit, Trouble> {
    let locks = Store::new(&args.store)?.connect().await?;
    let views = locks.look(&[&args.name]).await?;
    let view = views.first();
    if args.json {
        output::json(&view.map_or_else(|| Lock::idle(&args.name), Lock::from))?;
    } else {
        let store = locks.abilities().store;
        let text = match view {
            None => format!("lock {:?} on {store} is free\n", args.name),
            Some(view) => text(view, store),
        };
        output::text(&text)?;
    }
    Ok(Exit::Done)
}

fn text(view: &LockView, store: &str) -> String {
    let (holders, waiters) = (view.holders.len(), view.waiters.len());
    let holders = if holders == 1 { "1 holder".to_owned() } else { format!("{holders} holders") };
    let mut rows = Vec::new();
    for holder in &view.holders {
        rows.push(row("holds".to_owned(), holder));
    }
    for (ahead, waiter) in view.waiters.iter().enumerate() {
        rows.push(row(format!("waits, place {}", ahead + 1), waiter));
    }
    let table = output::table(["STATE", "WHO", "FOR", "AS", "OWNER", "EPOCH", "LAPSES IN"], &rows);
    format!("lock {:?} on {store}: {holders}, {waiters} waiting\n{table}", view.name)
}

fn row(state: String, claim: &ClaimView) -> [String; 7] {
    [
        state,
        claim.label.to_string(),
        Span(claim.age).to_string(),
        claim.share.to_string(),
        claim.owner.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        claim.epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string()),
        Span(claim.lapse_in).to_string(),
    ]
}
