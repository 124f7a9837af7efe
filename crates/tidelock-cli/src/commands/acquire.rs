//! `tidelock acquire`: a lock that stays held when this process ends.

use tidelock::{Locks, Ticket};

use crate::{
    args,
    exit::Exit,
    output::{self, Trouble},
    plan::Acquire,
    signals::Signals,
    ticket::{self, Left},
    waiting::{self, Waited},
};

/// Waits, takes, prints the ticket. Either somebody has the ticket in the end, or nothing is held.
pub(crate) async fn run(args: args::Acquire) -> Result<Exit, Trouble> {
    let plan = Acquire::new(args)?;
    if !output::is_heard() {
        return Err(Trouble::Usage(
            "standard output is closed, so nobody would get the ticket: open it, or write >/dev/null to do without"
                .into(),
        ));
    }
    let mut signals = Signals::forwarded()?;
    let (locks, hold) = match waiting::acquire(&plan.store, &plan.ask, &mut signals).await? {
        Waited::Got(locks, hold) => (locks, hold),
        Waited::Ended(exit) => return Ok(exit),
    };
    let foreign_token = hold.foreign_token(&plan.ask.names[0]);
    let ticket = hold.leave_behind()?;
    let done = tokio::select! {
        biased;
        handed = hand_out(&ticket, foreign_token, &locks, plan.json) => handed.map(|()| Exit::Done),
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    if !matches!(done, Ok(Exit::Done)) {
        ticket::take_back(&ticket, &locks).await;
    }
    done
}

/// Prints the ticket, with all of its ttl ahead of it.
async fn hand_out(
    ticket: &Ticket,
    foreign_token: Option<u64>,
    locks: &Locks,
    json: bool,
) -> Result<(), Trouble> {
    // A lease is counted from its last renewal: that may have been while we waited, and from here on
    // nobody renews by itself.
    locks.renew(ticket).await?;
    let text = if json {
        output::to_json(&Left::new(ticket, locks).with_ticket(ticket, foreign_token))?
    } else {
        format!("{ticket}\n")
    };
    // In one write. A reader that is gone is a failure here: it has not seen enough.
    output::text_in_background(text).await.map_err(|error| {
        let name = ticket.name();
        Trouble::Usage(format!(
            "cannot print the ticket of lock {name:?}, so the lock is given back: {error}"
        ))
    })
}
