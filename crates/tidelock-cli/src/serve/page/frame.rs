//! What is sent, as the page reads it. Moments are milliseconds since 1970 by the server's clock.

use std::sync::Arc;

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tidelock::{
    Owner, Token,
    backend::{Capacity, ClaimId},
};

use crate::{
    clock::{Moment, unix_ms},
    observe::{Claim, Event, Health, History, Lock, News},
};

/// Of a long line, this many are sent. Their number is sent in any case.
const CLAIMS: usize = 50;

/// A lock, as the page reads it.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    capacity: Option<Capacity>,
    token: Option<Token>,
    holders: Vec<Person<'a>>,
    waiters: Vec<Person<'a>>,
    holding: usize,
    waiting: usize,
}

/// A claim, as the page reads it.
#[derive(Serialize)]
struct Person<'a> {
    claim: ClaimId,
    label: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a Owner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advertised: Option<&'a str>,
    share: String,
    token: Option<Token>,
    since: u64,
    until: u64,
    lease: u64,
    /// The kind of a holder of another make, which nobody can tell that it was taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    forever: bool,
}

impl<'a> Person<'a> {
    fn new(claim: &'a Claim) -> Self {
        let view = &claim.view;
        Self {
            claim: view.id,
            label: &view.label,
            owner: view.owner.as_ref(),
            advertised: view.advertised.as_deref(),
            share: view.share.to_string(),
            token: view.token(),
            since: unix_ms(claim.since),
            until: unix_ms(claim.until),
            lease: u64::try_from(claim.lease.as_millis()).unwrap_or(u64::MAX),
            foreign: view.foreign.as_ref().map(|foreign| &*foreign.kind),
            forever: view.foreign.as_ref().is_some_and(|foreign| !foreign.expires),
        }
    }
}

/// A lock as text, which is written once.
fn row(lock: &Lock) -> &str {
    lock.text.get_or_init(|| {
        let row = Row {
            name: lock.name.as_str(),
            capacity: lock.capacity,
            token: lock.token,
            holders: lock.holders.iter().take(CLAIMS).map(Person::new).collect(),
            waiters: lock.waiters.iter().take(CLAIMS).map(Person::new).collect(),
            holding: lock.holders.len(),
            waiting: lock.waiters.len(),
        };
        // It has text as its keys and nothing that fails.
        serde_json::to_string(&row).unwrap_or_default().into()
    })
}

/// An event of a stream: its kind, and what it says.
pub(super) fn event(kind: &str, value: &Value) -> Bytes {
    format!("event: {kind}\ndata: {value}\n\n").into()
}

/// All that is new, written once for all pages that are told the same.
pub(super) fn news(news: &News) -> Bytes {
    news.text.get_or_init(|| write_news(news)).clone()
}

fn write_news(news: &News) -> Bytes {
    let rest = json!({
        "now": unix_ms(news.now),
        "all": news.locks.is_all,
        "gone": news.locks.gone,
        "events": plain(&news.events),
        "missed": news.has_missed,
        "since": news.since.map(unix_ms),
        "health": health(&news.health),
    });
    // The rows are text already, shared by all pages.
    let size: usize = news.locks.changed.iter().map(|lock| row(lock).len() + 1).sum();
    let mut text = String::with_capacity(size + 4_096);
    text.push_str("event: news\ndata: {\"rows\":[");
    for (number, lock) in news.locks.changed.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(row(lock));
    }
    text.push_str("],");
    text.push_str(rest.to_string().strip_prefix('{').unwrap_or_default());
    text.push_str("\n\n");
    text.into()
}

/// A sign of life, with the server's time.
pub(super) fn beat(now: Moment, known: &Health) -> Bytes {
    event("beat", &json!({"now": unix_ms(now), "health": health(known)}))
}

fn health(health: &Health) -> Value {
    let round_trip = health.round_trip();
    json!({
        "error": health.error.as_deref(),
        "since": health.since.map(unix_ms),
        "errors": health.errors,
        "tells": health.tells,
        "jumps": health.jumps,
        "jumped": health.jumped.map(unix_ms),
        "look": health.all.map(|all| json!({
            "at": unix_ms(all.at),
            "took_us": all.took.as_micros() as u64,
            "every_ms": (all.took + all.pause).as_millis() as u64,
        })),
        "round_trip_us": round_trip.map(|(median, _)| median.as_micros() as u64),
        "slowest_us": round_trip.map(|(_, slowest)| slowest.as_micros() as u64),
    })
}

/// What happened, and when nobody looked.
pub(super) fn history(events: &[Arc<Event>], history: &History) -> Value {
    let gaps: Vec<Value> = history
        .gaps()
        .map(|gap| json!({"from": unix_ms(gap.from), "to": gap.to.map(unix_ms), "why": &*gap.why}))
        .collect();
    json!({"events": plain(events), "gaps": gaps, "since": history.since().map(unix_ms)})
}

fn plain(events: &[Arc<Event>]) -> Vec<&Event> {
    events.iter().map(|event| &**event).collect()
}
