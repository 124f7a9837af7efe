//! `tidelock ls`: every lock in use.

use crate::{
    args::Ls,
    exit::Exit,
    output::{self, Trouble},
    store::Store,
    view,
};

/// Prints a row per lock, in the order of their names.
pub(crate) async fn run(args: &Ls) -> Result<Exit, Trouble> {
    let mut views = Store::new(&args.store)?.connect().await?.look_all().await?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    views.retain(|view| view.name.as_str().starts_with(prefix));
    views.sort_by(|one, other| one.name.cmp(&other.name));
    if args.json {
        output::json(&views)?;
        return Ok(Exit::Done);
    }
    let rows = views.iter().map(|view| {
        let share = view.holders.first().map(|holder| holder.share.to_string()).unwrap_or_default();
        let waiting = view.waiters.len().to_string();
        [view.name.to_string(), view::holders(view), view::held_for(view), share, view::token(view), waiting]
    });
    let head = ["NAME", "HELD BY", "FOR", "AS", "TOKEN", "WAITING"];
    output::text(&output::table(head, &rows.collect::<Vec<_>>()))?;
    Ok(Exit::Done)
}
