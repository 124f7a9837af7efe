//! `tidelock renew`: a lock that was left held is kept.

use crate::{
    args,
    exit::Exit,
    output::{self, Trouble},
    ticket::{self, Left},
    values::Span,
};

/// Begins the ttl again.
pub(crate) async fn run(args: &args::Ticket) -> Result<Exit, Trouble> {
    let (ticket, locks) = ticket::open(args).await?;
    locks.renew(&ticket).await.map_err(|error| ticket::explain(error, &ticket, &locks))?;
    if args.json {
        output::json(&Left::new(&ticket, &locks))?;
    } else {
        let (name, store, ttl) = (ticket.name(), locks.abilities().store, Span(ticket.ttl()));
        output::text(&format!("renewed lock {name:?} on {store} for {ttl}\n"))?;
    }
    Ok(Exit::Done)
}
