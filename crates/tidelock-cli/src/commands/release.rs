//! `tidelock release`: a lock that was left held is given back.

use crate::{
    args,
    exit::Exit,
    output::{self, Trouble},
    ticket::{self, Left},
};

/// Lets the next one in.
pub(crate) async fn run(args: &args::Ticket) -> Result<Exit, Trouble> {
    let (ticket, locks) = ticket::open(args).await?;
    locks.release(&ticket).await.map_err(|error| ticket::explain(error, &ticket, &locks))?;
    if args.json {
        output::json(&Left::new(&ticket, &locks))?;
    } else {
        let (name, store) = (ticket.name(), locks.abilities().store);
        output::text(&format!("gave back lock {name:?} on {store}\n"))?;
    }
    Ok(Exit::Done)
}
