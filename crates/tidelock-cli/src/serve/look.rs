//! Who holds what, and taking it away.

use serde_json::json;
use tidelock::{
    Done, Name,
    backend::{ClaimId, LockView},
};

use super::{
    Server,
    answer::{self, Answer},
    asked::Asked,
    problem::Problem,
};
use crate::{observe::Ending, who};

/// `GET /v1/locks`: all locks that are held or waited for, as `tidelock ls --json` prints them.
pub(super) async fn all(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let prefix = asked.query("prefix")?.unwrap_or_default();
    let mut views = server.locks.look_all().await?;
    views.retain(|view| view.name.as_str().starts_with(&prefix) && Done::of(view).is_none());
    views.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(answer::ok(&views))
}

/// `GET /v1/locks/{name}`: one lock, as `tidelock show --json` prints it. One that is free has no holders.
pub(super) async fn one(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let name = Name::new(&asked.parts[0])?;
    let view = server.locks.look([name.as_str()]).await?.into_iter().next();
    Ok(answer::ok(&view.unwrap_or_else(|| LockView::new(name, None, 0))))
}

/// `DELETE /v1/locks/{name}/claims/{id}`: takes a claim away from its holder, or from the queue.
pub(super) async fn evict(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let [name, id] = &asked.parts[..] else { return Err(Problem::internal()) };
    let name = Name::new(name)?;
    let views = server.locks.look([name.as_str()]).await?;
    let claims = views.iter().flat_map(|view| view.holders.iter().chain(&view.waiters));
    let found: Option<ClaimId> = claims.map(|claim| claim.id).find(|claim| claim.to_string() == *id);
    let gone = || Problem::not_found(format!("lock {name:?} has no claim {id:?}"));
    let reason = asked.query("reason")?.unwrap_or_default();
    let reason = who::signed(&reason, &asked.peer.label);
    match take_away(&name, found.ok_or_else(gone)?, &reason, server).await? {
        true => Ok(answer::ok(&json!({"evicted": true}))),
        false => Err(gone()),
    }
}

/// Evicts a claim, and tells those who watch why. Says whether it was still in line.
pub(super) async fn take_away(
    name: &Name,
    claim: ClaimId,
    reason: &str,
    server: &Server,
) -> Result<bool, Problem> {
    // Before: a look may see that it is gone sooner than the answer is here.
    server.observer.tell(name, claim, Ending::Evicted { reason: reason.into() });
    let evicted = server.locks.evict(name.as_str(), claim, reason).await;
    if !matches!(evicted, Ok(true)) {
        server.observer.untell(claim);
    }
    Ok(evicted?)
}
