//! Tickets as they are typed, and what becomes of them.

use std::{
    io::{self, BufRead, BufReader, Read},
    time::Duration,
};

use serde::Serialize;
use tidelock::{Locks, Ticket};

use crate::{
    args,
    output::{self, Trouble},
    store::Store,
};

/// More than any ticket has. What is longer is not read to its end.
const MAX_BYTES: u64 = 16 * 1024;

/// How long a store has to confirm that a lock is given back.
const RELEASE: Duration = Duration::from_secs(5);

/// A hold by ticket, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Left<'a> {
    /// Only for the one that acquired it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    name: &'a str,
    /// As text: many programs read a number of this size as a rounded one.
    token: String,
    /// That of other programs, if they have one. Only for the one that acquired it.
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign_token: Option<String>,
    ttl_ms: u64,
    store: &'static str,
}

impl<'a> Left<'a> {
    pub(crate) fn new(ticket: &'a Ticket, locks: &Locks) -> Self {
        Self {
            ticket: None,
            name: ticket.name().as_str(),
            token: ticket.token().to_string(),
            foreign_token: None,
            ttl_ms: u64::try_from(ticket.ttl().as_millis()).unwrap_or(u64::MAX),
            store: locks.abilities().store,
        }
    }

    pub(crate) fn with_ticket(self, ticket: &Ticket, foreign_token: Option<u64>) -> Self {
        let foreign_token = foreign_token.map(|token| token.to_string());
        Self { ticket: Some(ticket.to_string()), foreign_token, ..self }
    }
}

/// The ticket that was typed, and the store that it should be of.
pub(crate) async fn open(args: &args::Ticket) -> Result<(Ticket, Locks), Trouble> {
    let ticket = if args.ticket == "-" { from_input()? } else { args.ticket.parse()? };
    Ok((ticket, Store::new(&args.store)?.connect_beyond_process().await?))
}

fn from_input() -> Result<Ticket, Trouble> {
    let mut line = Vec::new();
    // One line and not all: the writer may keep the pipe open.
    let read = BufReader::new(io::stdin().take(MAX_BYTES)).read_until(b'\n', &mut line);
    read.map_err(|error| Trouble::Usage(format!("cannot read a ticket from standard input: {error}")))?;
    if line.trim_ascii().is_empty() {
        return Err(Trouble::Usage("there is no ticket on standard input".into()));
    }
    Ok(String::from_utf8_lossy(&line).parse()?)
}

/// What it means that the store does not know a ticket's hold.
pub(crate) fn explain(error: tidelock::Error, ticket: &Ticket, locks: &Locks) -> Trouble {
    if !error.is_lost() {
        return error.into();
    }
    let (name, store) = (ticket.name(), locks.abilities().store);
    Trouble::Gone(format!(
        "this ticket does not hold lock {name:?} on {store}: it lapsed, was broken or given back, or is of another store; \
         stop work that needs it"
    ))
}

/// Gives back what nobody got the ticket of.
pub(crate) async fn take_back(ticket: &Ticket, locks: &Locks) {
    let released = tokio::time::timeout(RELEASE, locks.release(ticket)).await;
    let is_free = released.is_ok_and(|released| released.is_ok() || released.is_err_and(|why| why.is_lost()));
    if !is_free {
        let name = ticket.name();
        output::complain(&format!(
            "the store did not confirm that lock {name:?} is given back: it lapses after its ttl"
        ));
    }
}
