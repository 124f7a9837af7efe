//! `tidelock ls`: every lock in use.

use tidelock::{Done, backend::LockView};

use crate::{
    args::Ls,
    exit::Exit,
    output::{self, Trouble},
    store::Store,
    values::Span,
    view,
};

/// Prints a row per lock, in the order of their names.
pub(crate) async fn run(args: &Ls) -> Result<Exit, Trouble> {
    let mut views = Store::new(&args.store)?.connect().await?.look_all().await?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    views.retain(|view| view.name.as_str().starts_with(prefix) && Done::of(view).is_some() == args.done);
    views.sort_by(|one, other| one.name.cmp(&other.name));
    if args.json {
        output::json(&views)?;
        return Ok(Exit::Done);
    }
    if args.done {
        return print_done(&views);
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

/// Prints a row per slot that is done.
fn print_done(views: &[LockView]) -> Result<Exit, Trouble> {
    let rows = views.iter().filter_map(|view| {
        let done = Done::of(view)?;
        let (job, slot) = view.name.as_str().rsplit_once('@')?;
        let took = done.ended.duration_since(done.began).unwrap_or_default();
        let result = if done.failed { "failed" } else { "ok" };
        let ago = done.ended.elapsed().unwrap_or_default();
        let row = [job, slot, &done.by, result, &Span(took).to_string(), &Span(ago).to_string()];
        Some(row.map(ToOwned::to_owned))
    });
    let head = ["NAME", "SLOT", "BY", "RESULT", "TOOK", "ENDED AGO"];
    output::text(&output::table(head, &rows.collect::<Vec<_>>()))?;
    Ok(Exit::Done)
}
