//! Elections: a lead is a hold, and everybody can see who leads.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tidelock::{DEFAULT_TTL, Name};

use super::{
    Server, Stage,
    answer::{self, Answer},
    asked::{Asked, time},
    hold::{self, error_line},
    lines,
    problem::Problem,
    wanted::{Terms, Wanted},
};
use crate::commands::leader::Shown;

/// Lines that may wait for an observer that reads slowly.
const LINES: usize = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    advertise: Option<String>,
    label: Option<String>,
    #[serde(default, deserialize_with = "time")]
    ttl: Option<Duration>,
    progress: Option<bool>,
    confirm: Option<bool>,
}

/// `POST /v1/elections/{name}`: a candidate, which leads when it is granted.
pub(super) async fn campaign(asked: Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    let body: Body = asked.json()?;
    let name = Name::new(&asked.parts[0])?;
    let label = body.label.unwrap_or_else(|| asked.peer.label.to_string());
    let ttl = body.ttl.unwrap_or(DEFAULT_TTL);
    let mut election = server.locks.election(name.as_str()).label(&label).ttl(ttl);
    if let Some(text) = &body.advertise {
        election = election.advertise(text);
    }
    let terms = Terms {
        names: vec![name],
        label,
        ttl,
        progress: body.progress.unwrap_or(true),
        confirm: body.confirm.unwrap_or(false),
        // The library lets a leader lead for as long as it wants.
        max_hold: server.max_hold,
    };
    hold::open(asked, Wanted::Lead(election), terms, server).await
}

/// `GET /v1/elections/{name}`: who leads.
pub(super) async fn leader(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let name = Name::new(&asked.parts[0])?;
    match server.locks.election(name.as_str()).leader().await? {
        Some(leader) => Ok(answer::ok(&json!({"name": name, "leader": Shown::new(&leader)}))),
        None => {
            let text = format!("nobody leads {name:?}");
            Err(Problem::new(StatusCode::NOT_FOUND, "no_leader", text).retryable())
        }
    }
}

/// `GET /v1/elections/{name}/watch`: a line for the leader of now, and for each change.
pub(super) async fn watch(asked: Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    let name = Name::new(&asked.parts[0])?;
    let permit = server.limits.stream(asked.peer.client)?;
    let (lines, of_client) = lines::channel(LINES);
    let mut watch = server.locks.election(name.as_str()).watch();
    let mut closing = server.closing.clone();
    server.running.spawn(async move {
        let _permit = permit;
        loop {
            let seen = tokio::select! {
                biased;
                () = lines.closed() => return,
                _ = closing.wait_for(Stage::is_ending) => Some(Err(Problem::closing())),
                seen = watch.next() => seen.map(|seen| seen.map_err(Problem::from)),
            };
            let line = match seen {
                Some(Ok(leader)) => json!({"event": "leader", "leader": leader.as_ref().map(Shown::new)}),
                Some(Err(problem)) => error_line(&problem),
                None => return,
            };
            let is_end = line["event"] == "error";
            if lines.send(answer::line(&line)).await.is_err() || is_end {
                return;
            }
        }
    });
    Ok(answer::lines(of_client))
}
