//! Once per period: a slot is a hold, which ends with what came of it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hyper::StatusCode;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use tidelock::{DEFAULT_TTL, Done, Name, Outcome, Period, Running, Turn};

use super::{
    Server,
    answer::Answer,
    asked::{Asked, time},
    hold,
    problem::Problem,
    wanted::{Terms, Wanted},
};
use crate::values;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(deserialize_with = "period")]
    every: Period,
    slot: Option<String>,
    retry_failed: Option<bool>,
    label: Option<String>,
    #[serde(default, deserialize_with = "time")]
    ttl: Option<Duration>,
    confirm: Option<bool>,
}

/// `POST /v1/once/{name}`: the right to run a slot, if nobody ran it.
pub(super) async fn start(asked: Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    let body: Body = asked.json()?;
    let name = Name::new(&asked.parts[0])?;
    let label = body.label.unwrap_or_else(|| asked.peer.label.to_string());
    let ttl = body.ttl.unwrap_or(DEFAULT_TTL);
    let mut job = server.locks.once(name.as_str(), body.every).label(&label).ttl(ttl);
    job = job.retry_failed(body.retry_failed.unwrap_or(false));
    if let Some(slot) = &body.slot {
        job = job.slot(slot);
    }
    let terms = Terms {
        names: vec![name],
        label,
        ttl,
        // Nobody waits for a slot.
        progress: false,
        confirm: body.confirm.unwrap_or(false),
        max_hold: server.max_hold,
    };
    hold::open(asked, Wanted::Slot(job), terms, server).await
}

/// The turn, or why there is none.
pub(super) fn turn(outcome: Outcome<Turn>) -> Result<Turn, Problem> {
    match outcome {
        Outcome::Ran(turn) => Ok(turn),
        Outcome::Done(done) => {
            let text = format!("this slot was done by {done}");
            let Done { by, began, ended, failed, .. } = &done;
            let problem = Problem::new(StatusCode::CONFLICT, "done_already", text);
            let problem = problem.with("by", &**by).with("failed", *failed);
            Err(problem.with("began_unix_ms", unix_ms(*began)).with("ended_unix_ms", unix_ms(*ended)))
        }
        Outcome::Running(running) => {
            let text = format!("it is run by {running}");
            let Running { by, since, .. } = &running;
            let problem = Problem::new(StatusCode::CONFLICT, "running_now", text).retryable();
            Err(problem.with("by", &**by).with("since_unix_ms", unix_ms(*since)))
        }
        _ => Err(Problem::internal()),
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a period: text such as `15m`, `week` or `month`, or a number of seconds.
fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Period, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Number(number) => format!("{number}s"),
        _ => {
            return Err(de::Error::custom(
                "every is text such as \"15m\", \"week\" or \"month\", or seconds",
            ));
        }
    };
    values::period(&text).map_err(de::Error::custom)
}
