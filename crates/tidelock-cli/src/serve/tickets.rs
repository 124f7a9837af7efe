//! Tickets: locks that are left held, without a stream.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::json;
use tidelock::Ticket;
use tokio::sync::oneshot;

use super::{
    Server, Stage,
    answer::{self, Answer},
    asked::Asked,
    holds::micros,
    problem::Problem,
    wanted::{Body, Wanted},
};
use crate::{clock::Moment, output::Trouble, store::Store, ticket};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    ticket: String,
}

/// A ticket, and when the question was asked that its lease counts from.
pub(super) type Left = (Ticket, Moment);

/// `POST /v1/tickets/{name}`: acquires a lock and leaves it held.
pub(super) async fn acquire(mut asked: Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    let body: Body = asked.json()?;
    if body.names.is_some() || body.progress.is_some() || body.confirm.is_some() {
        return Err(Problem::bad_request("a ticket has no stream: leave out names, progress and confirm"));
    }
    let names = std::mem::take(&mut asked.parts);
    let (ticket, since) = take(body, names, &asked, server).await?;
    Ok(answer::ok(&json!({
        "ticket": ticket.to_string(),
        "name": ticket.name(),
        "token": ticket.token(),
        "ttl_ms": u64::try_from(ticket.ttl().as_millis()).unwrap_or(u64::MAX),
        "until_us": until_us(&ticket, since, &asked),
    })))
}

/// Acquires a lock for a client that has no stream. If the client goes away meanwhile, the lock is given back.
pub(super) async fn take(
    body: Body,
    names: Vec<String>,
    asked: &Asked,
    server: &Arc<Server>,
) -> Result<Left, Problem> {
    Store::check_beyond_process(&server.locks).map_err(problem)?;
    let mut ask = body.ask(names, asked, server)?;
    if server.max_hold.is_some_and(|most| ask.ttl > most) {
        return Err(Problem::bad_request("the ttl is longer than this server lets a lock be held"));
    }
    (ask.detached, ask.max_hold) = (true, None);
    let permit = server.limits.stream(asked.peer.client)?;
    let (give, ticket) = oneshot::channel();
    let of_task = Arc::clone(server);
    // In a task of its own, which outlives the client.
    server.running.spawn(async move {
        let _permit = permit;
        leave(&Wanted::Locks(ask), give, &of_task).await;
    });
    ticket.await.unwrap_or_else(|_| Err(Problem::internal()))
}

async fn leave(wanted: &Wanted, mut give: oneshot::Sender<Result<Left, Problem>>, server: &Server) {
    let mut closing = server.closing.clone();
    let hold = tokio::select! {
        biased;
        hold = wanted.acquire(server) => hold,
        () = give.closed() => return,
        _ = closing.wait_for(Stage::is_ending) => Err(Problem::closing()),
    };
    let ticket = match hold.and_then(|hold| hold.leave_behind().map_err(problem)) {
        Ok(ticket) => ticket,
        Err(problem) => return drop(give.send(Err(problem))),
    };
    // From here on nobody renews it: all of its ttl should be ahead.
    let asked = Moment::now();
    let renewed = server.locks.renew(&ticket).await.map_err(Problem::from);
    let is_renewed = renewed.is_ok();
    let given = give.send(renewed.map(|()| (ticket.clone(), asked)));
    if given.is_err() || !is_renewed {
        ticket::take_back(&ticket, &server.locks).await;
    }
}

/// `POST /v1/tickets/renew`: the ttl starts again.
pub(super) async fn renew(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let ticket = shown(asked)?;
    let since = Moment::now();
    server.locks.renew(&ticket).await?;
    Ok(answer::ok(&json!({"token": ticket.token(), "until_us": until_us(&ticket, since, asked)})))
}

/// `POST /v1/tickets/release`.
pub(super) async fn release(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    server.locks.release(&shown(asked)?).await?;
    Ok(answer::ok(&json!({"released": true})))
}

fn shown(asked: &Asked) -> Result<Ticket, Problem> {
    let body: Shown = asked.json()?;
    body.ticket.parse::<Ticket>().map_err(|error| Problem::not_found(error.to_string()))
}

/// Until when the lock can be relied on: as the library counts, without what clocks may differ by.
fn until_us(ticket: &Ticket, since: Moment, asked: &Asked) -> u64 {
    let usable = ticket.ttl().saturating_sub(ticket.ttl() / 100 + Duration::from_millis(2));
    micros(since.plus(usable).since(asked.received))
}

fn problem(trouble: Trouble) -> Problem {
    match trouble {
        Trouble::Lock(error) => error.into(),
        other => Problem::new(hyper::StatusCode::BAD_REQUEST, "config", other.to_string()),
    }
}
