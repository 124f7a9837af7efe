//! What a hold is made of: locks, a lead, a slot; and how it is asked for.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use tidelock::{DEFAULT_TTL, Election, Name, Once};

use super::{
    Server,
    asked::{Asked, time, whole},
    once,
    problem::Problem,
};
use crate::{
    hold::Hold,
    plan::{Ask, Share},
    values::Permits,
};

/// The body of a request for a lock.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    /// Several locks, all or none.
    pub(super) names: Option<Vec<String>>,
    #[serde(default, deserialize_with = "time")]
    pub(super) wait: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(super) ttl: Option<Duration>,
    #[serde(default, deserialize_with = "share")]
    pub(super) share: Option<Share>,
    pub(super) owner: Option<String>,
    pub(super) label: Option<String>,
    #[serde(default, deserialize_with = "time")]
    pub(super) max_hold: Option<Duration>,
    pub(super) progress: Option<bool>,
    pub(super) confirm: Option<bool>,
}

/// How a hold is served, whatever it is made of.
#[derive(Debug)]
pub(super) struct Terms {
    /// The names in whose queues it waits.
    pub(super) names: Vec<Name>,
    pub(super) label: String,
    pub(super) ttl: Duration,
    /// Whether the client is told how the wait goes.
    pub(super) progress: bool,
    /// Whether the client has to confirm that it lives.
    pub(super) confirm: bool,
    /// After how long the server takes it away.
    pub(super) max_hold: Option<Duration>,
}

/// What is to be held.
pub(super) enum Wanted {
    Locks(Ask),
    Lead(Election),
    Slot(Once),
}

impl Body {
    /// What is asked for under these names, and how.
    pub(super) fn want(
        self,
        names: Vec<String>,
        asked: &Asked,
        server: &Server,
    ) -> Result<(Wanted, Terms), Problem> {
        let ask = self.ask(names, asked, server)?;
        let terms = Terms {
            names: ask.names.clone(),
            label: ask.label.clone(),
            ttl: ask.ttl,
            // A try says at once what came of it.
            progress: self.progress.unwrap_or(true) && ask.wait != Some(Duration::ZERO),
            confirm: self.confirm.unwrap_or(false),
            max_hold: ask.max_hold,
        };
        Ok((Wanted::Locks(ask), terms))
    }

    /// The claim that is asked for.
    pub(super) fn ask(&self, names: Vec<String>, asked: &Asked, server: &Server) -> Result<Ask, Problem> {
        let mut distinct: Vec<Name> = Vec::new();
        for name in &names {
            let name = Name::new(name)?;
            if !distinct.contains(&name) {
                distinct.push(name);
            }
        }
        let share = self.share.unwrap_or(Share::Exclusive);
        if distinct.is_empty() {
            return Err(Problem::bad_request("there are no names: give one or more"));
        }
        if distinct.len() > 1 && share != Share::Exclusive {
            return Err(Problem::bad_request("several locks are exclusive together: leave out share"));
        }
        Ok(Ask {
            names: distinct,
            share,
            wait: self.wait,
            ttl: self.ttl.unwrap_or(DEFAULT_TTL),
            label: self.label.clone().unwrap_or_else(|| asked.peer.label.to_string()),
            owner: self.owner.clone(),
            max_hold: [self.max_hold, server.max_hold].into_iter().flatten().min(),
            at_least: Duration::ZERO,
            // A client outlives a server that is killed, and relies on its lock until the end that it was told. The
            // store must not give it to others before. The library has no such claims with an owner.
            detached: server.locks.abilities().ends_with_process && self.owner.is_none(),
            quiet: true,
            busy_code: 0,
            fail_fast: false,
        })
    }
}

impl Wanted {
    /// Waits for it.
    pub(super) async fn acquire(&self, server: &Server) -> Result<Hold, Problem> {
        match self {
            Self::Locks(ask) => match Hold::acquire(&server.locks, ask, ask.wait).await? {
                Some(hold) => Ok(hold),
                None => Err(server.queues.busy(&ask.names).await),
            },
            Self::Lead(election) => Ok(Hold::One(election.campaign().await?)),
            Self::Slot(job) => once::turn(job.start().await?).map(|turn| Hold::Turn(Box::new(turn))),
        }
    }
}

/// Reads `"exclusive"`, `"write"`, `"shared"` or `{"permits":2,"of":5}`.
fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Share>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        #[serde(deserialize_with = "whole")]
        permits: Option<u32>,
        #[serde(deserialize_with = "whole")]
        of: Option<u32>,
    }
    let value = Value::deserialize(deserializer)?;
    Ok(match value.as_str() {
        None if value.is_null() => None,
        None => {
            let Part { permits, of } = serde_json::from_value(value).map_err(de::Error::custom)?;
            // Zero is refused with a sentence of its own.
            Some(Share::Permits(Permits { n: permits.unwrap_or(0), of: of.unwrap_or(0) }))
        }
        Some("exclusive") => Some(Share::Exclusive),
        Some("write") => Some(Share::Write),
        Some("shared") => Some(Share::Shared),
        Some(_) => {
            return Err(de::Error::custom(
                r#"share is "exclusive", "write", "shared" or such as {"permits":2,"of":5}"#,
            ));
        }
    })
}
