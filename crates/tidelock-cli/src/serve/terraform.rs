//! State locks of Terraform and OpenTofu: the calls `LOCK` and `UNLOCK` of their HTTP backend.
//!
//! Between the two calls there is no connection, so the lock is a ticket with a lease that nobody renews. All that an
//! unlock needs is in the label of the claim: the server keeps nothing, and another one can answer it.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::{Name, backend::ClaimView};

use super::{
    Server,
    answer::{self, Answer},
    asked::Asked,
    problem::Problem,
    tickets,
    wanted::Body,
};
use crate::values;

/// How long a lock is held that is not unlocked.
const LEASE: Duration = Duration::from_secs(2 * 3_600);
/// The longest label, in bytes.
const LABEL: usize = 128;

/// What Terraform says of a lock. It says more, which nobody needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
struct Info {
    #[serde(rename = "ID")]
    id: String,
    operation: String,
    who: String,
}

impl Info {
    /// As others see it: `alice@laptop OperationTypeApply 6f1f…`. The id is what an unlock is recognised by.
    fn label(&self) -> Result<String, Problem> {
        let is_word =
            |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        if !is_word(&self.id) || self.id.len() > LABEL / 2 {
            return Err(Problem::bad_request("the lock info needs an ID, such as Terraform sends it"));
        }
        let operation = if is_word(&self.operation) { &self.operation } else { "unknown" };
        let end = format!(" {operation} {}", self.id);
        let mut who: String = self.who.chars().filter(|c| !c.is_control()).collect();
        let room =
            LABEL.checked_sub(end.len()).ok_or_else(|| Problem::bad_request("the operation is too long"))?;
        // As much as fits, in whole characters.
        while who.len() > room {
            who.pop();
        }
        Ok(who + &end)
    }

    /// What is known of a holder. One that is no Terraform has the id of its claim, and its label.
    fn of(holder: &ClaimView) -> Self {
        let mut parts = holder.label.rsplitn(3, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(id), Some(operation), Some(who))
                if operation.starts_with("OperationType") || operation == "unknown" =>
            {
                Self { id: id.to_owned(), operation: operation.to_owned(), who: who.to_owned() }
            }
            _ => Self { id: holder.id.to_string(), operation: String::new(), who: holder.label.to_string() },
        }
    }
}

/// `LOCK /v1/terraform/{name}`: 200, or 423 with the info of the lock that is in the way.
pub(super) async fn lock(mut asked: Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    let info: Info = asked.json()?;
    let ttl = asked.query("ttl")?.map(|text| values::duration(&text)).transpose();
    let ttl = ttl.map_err(Problem::bad_request)?.unwrap_or(LEASE);
    let names = std::mem::take(&mut asked.parts);
    let name = Name::new(&names[0])?;
    let wanted =
        Body { wait: Some(Duration::ZERO), ttl: Some(ttl), label: Some(info.label()?), ..Body::default() };
    match tickets::take(wanted, names, &asked, server).await {
        Ok(_) => Ok(answer::ok(&info)),
        Err(problem) if problem.kind == "busy" => match holder(&name, server).await? {
            // A call that is repeated because its answer was lost.
            Some(held) if Info::of(&held).id == info.id => Ok(answer::ok(&info)),
            Some(held) => Ok(answer::json(StatusCode::LOCKED, &Info::of(&held))),
            None => Err(problem),
        },
        Err(problem) => Err(problem),
    }
}

/// `UNLOCK /v1/terraform/{name}`: unlocks what has the same id. Without an id, it is unlocked by force.
pub(super) async fn unlock(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let info: Info = asked.json()?;
    let name = Name::new(&asked.parts[0])?;
    let gone =
        || Problem::lost(format!("nobody holds lock {name:?}: it was unlocked, or its lease has ended"));
    let held = holder(&name, server).await?.ok_or_else(gone)?;
    let found = Info::of(&held);
    if !info.id.is_empty() && info.id != found.id {
        return Ok(answer::json(StatusCode::CONFLICT, &found));
    }
    let reason =
        if info.id.is_empty() { "unlocked by force, with Terraform" } else { "unlocked by Terraform" };
    // A claim is evicted once, and no other holder has its id.
    match server.locks.evict(name.as_str(), held.id, reason).await? {
        true => Ok(answer::ok(&json!({"unlocked": true}))),
        false => Err(gone()),
    }
}

async fn holder(name: &Name, server: &Server) -> Result<Option<ClaimView>, Problem> {
    let views = server.locks.look([name.as_str()]).await?;
    Ok(views.into_iter().find_map(|view| view.holders.into_iter().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_the_whole_id() {
        let info =
            Info { id: "6f1f".into(), operation: "OperationTypeApply".into(), who: "alice@laptop".into() };
        assert_eq!(info.label().unwrap(), "alice@laptop OperationTypeApply 6f1f");
        let long = Info { who: "ä".repeat(200), ..info.clone() };
        assert!(
            long.label().unwrap().ends_with(" OperationTypeApply 6f1f")
                && long.label().unwrap().len() <= LABEL
        );
        for id in ["", "a b", "a\n", &"x".repeat(65)] {
            assert!(Info { id: id.into(), ..info.clone() }.label().is_err(), "{id:?}");
        }
    }
}
