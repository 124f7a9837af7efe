//! `tidelock show`: one lock, who holds it and who waits.

use tidelock::{
    Name,
    backend::{ClaimView, LockView},
};

use crate::{
    args::Show,
    exit::Exit,
    output::{self, Trouble},
    store::Store,
    values::Span,
};

/// Prints the line of one lock.
pub(crate) async fn run(args: &Show) -> Result<Exit, Trouble> {
    let locks = Store::new(&args.store)?.connect().await?;
    let name = args.which.name();
    let views = locks.look([name]).await?;
    let view = views.first();
    if args.json {
        match view {
            Some(view) => output::json(view)?,
            None => output::json(&LockView::new(Name::new(name)?, None, 0))?,
        }
    } else {
        let store = locks.abilities().store;
        let text = match view {
            None => format!("lock {name:?} on {store} is free\n"),
            Some(view) => text(view, store),
        };
        output::text(&text)?;
    }
    let is_held = view.is_some_and(|view| !view.holders.is_empty());
    Ok(if is_held { Exit::Done } else { Exit::No })
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
    let table = output::table(["STATE", "WHO", "FOR", "AS", "OWNER", "TOKEN", "EXPIRES IN"], &rows);
    let advertised: String = view
        .holders
        .iter()
        .filter_map(|holder| {
            Some(
                output::clean(&format!("{} advertises {}", holder.label, holder.advertised.as_ref()?)) + "\n",
            )
        })
        .collect();
    format!("lock {:?} on {store}: {holders}, {waiters} waiting\n{table}{advertised}", view.name)
}

fn row(state: String, claim: &ClaimView) -> [String; 7] {
    [
        state,
        claim.label.to_string(),
        Span(claim.age).to_string(),
        claim.share.to_string(),
        claim.owner.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        claim.token().map_or_else(|| "-".to_owned(), |token| token.to_string()),
        Span(claim.lapse_in).to_string(),
    ]
}
