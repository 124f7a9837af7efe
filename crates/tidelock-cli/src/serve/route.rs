//! Which call is which function.

use std::{sync::Arc, time::Duration};

use hyper::{Method, StatusCode};
use serde_json::json;

use super::{
    Server,
    answer::{self, Answer},
    asked::{Asked, decode},
    elections, hold, holds, look, once, openapi,
    problem::Problem,
    stock, terraform, tickets,
    wanted::Body,
};
use crate::commands::stores::Row;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Lock,
    LockAll,
    LookAll,
    Look,
    Evict,
    Confirm,
    Release,
    Done,
    Failed,
    Ticket,
    RenewTicket,
    ReleaseTicket,
    Campaign,
    Leader,
    WatchLeader,
    Once,
    OpenStock,
    Take,
    Reserve,
    ConfirmOrder,
    GiveBack,
    Tally,
    Abilities,
    OpenApi,
    Health,
    Metrics,
    TerraformLock,
    TerraformUnlock,
}

/// A method and a pattern of paths. In a pattern, `{name}` and `{item}` stand for one or more segments, other names in
/// braces for one.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) call: Call,
}

/// All calls. Patterns that also fit a name are before it, and routes of one pattern are next to each other.
pub(super) static ROUTES: [Route; 26] = [
    Route { method: Method::POST, path: "/v1/locks", call: Call::LockAll },
    Route { method: Method::GET, path: "/v1/locks", call: Call::LookAll },
    Route { method: Method::DELETE, path: "/v1/locks/{name}/claims/{claim}", call: Call::Evict },
    Route { method: Method::POST, path: "/v1/locks/{name}", call: Call::Lock },
    Route { method: Method::GET, path: "/v1/locks/{name}", call: Call::Look },
    Route { method: Method::POST, path: "/v1/holds/{hold}/done", call: Call::Done },
    Route { method: Method::POST, path: "/v1/holds/{hold}/failed", call: Call::Failed },
    Route { method: Method::POST, path: "/v1/holds/{hold}", call: Call::Confirm },
    Route { method: Method::DELETE, path: "/v1/holds/{hold}", call: Call::Release },
    Route { method: Method::POST, path: "/v1/tickets/renew", call: Call::RenewTicket },
    Route { method: Method::POST, path: "/v1/tickets/release", call: Call::ReleaseTicket },
    Route { method: Method::POST, path: "/v1/tickets/{name}", call: Call::Ticket },
    Route { method: Method::GET, path: "/v1/elections/{name}/watch", call: Call::WatchLeader },
    Route { method: Method::POST, path: "/v1/elections/{name}", call: Call::Campaign },
    Route { method: Method::GET, path: "/v1/elections/{name}", call: Call::Leader },
    Route { method: Method::POST, path: "/v1/once/{name}", call: Call::Once },
    Route { method: Method::POST, path: "/v1/stock/{item}/open", call: Call::OpenStock },
    Route { method: Method::POST, path: "/v1/stock/{item}/take", call: Call::Take },
    Route { method: Method::POST, path: "/v1/stock/{item}/reserve", call: Call::Reserve },
    Route { method: Method::POST, path: "/v1/stock/{item}/confirm", call: Call::ConfirmOrder },
    Route { method: Method::POST, path: "/v1/stock/{item}/give_back", call: Call::GiveBack },
    Route { method: Method::GET, path: "/v1/stock/{item}", call: Call::Tally },
    Route { method: Method::GET, path: "/v1/abilities", call: Call::Abilities },
    Route { method: Method::GET, path: "/v1/openapi.json", call: Call::OpenApi },
    Route { method: Method::GET, path: "/healthz", call: Call::Health },
    Route { method: Method::GET, path: "/metrics", call: Call::Metrics },
];

/// Calls with methods that OpenAPI has no word for.
const UNDESCRIBED: [(&str, &str, Call); 2] = [
    ("LOCK", "/v1/terraform/{name}", Call::TerraformLock),
    ("UNLOCK", "/v1/terraform/{name}", Call::TerraformUnlock),
];

/// The call that a request makes, and what stands in its path for the names of the pattern.
pub(super) fn find(method: &Method, path: &str) -> Result<(Call, Vec<String>), Problem> {
    let all = ROUTES.iter().map(|route| (route.method.as_str(), route.path, route.call)).chain(UNDESCRIBED);
    let segments: Vec<_> = path.split('/').collect();
    // Of several patterns that fit, the first is meant, with all its methods.
    let mut meant = None;
    let mut allowed = Vec::new();
    for (of, pattern, call) in all {
        if meant.is_none_or(|meant| meant == pattern)
            && let Some(parts) = parts(pattern, &segments)
        {
            if of == method.as_str() {
                let parts = parts.iter().map(|part| decode(part)).collect::<Result<_, _>>()?;
                return Ok((call, parts));
            }
            meant = Some(pattern);
            allowed.push(of);
        }
    }
    if allowed.is_empty() {
        return Err(Problem::not_found(format!("there is no {path}: GET /v1/openapi.json lists all calls")));
    }
    let allowed = allowed.join(", ");
    let text = format!("{path} is not for {method}, but for {allowed}");
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "bad_request", text).with("allow", allowed))
}

/// What stands in a path for the names of a pattern, if it fits.
fn parts(pattern: &str, path: &[&str]) -> Option<Vec<String>> {
    // How many segments a lock's name has, slashes and all.
    let long = (path.len() + 1).checked_sub(pattern.split('/').count()).filter(|long| *long > 0)?;
    let mut rest = path;
    let mut parts = Vec::new();
    for segment in pattern.split('/') {
        let many = if matches!(segment, "{name}" | "{item}") { long } else { 1 };
        let (here, after) = rest.split_at_checked(many)?;
        rest = after;
        if segment.starts_with('{') {
            parts.push(here.join("/"));
        } else if here != [segment] {
            return None;
        }
    }
    rest.is_empty().then_some(parts)
}

/// How long a store has for a call that does not wait for a lock.
const STORE_TIME: Duration = Duration::from_secs(10);

/// The answer to a call of the store, or that there was none.
async fn bounded(call: impl Future<Output = Result<Answer, Problem>> + Send) -> Result<Answer, Problem> {
    tokio::time::timeout(STORE_TIME, call).await.unwrap_or_else(|_| {
        let text = "the store did not answer in time: what was asked may have been done, or may be done yet";
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", text).retryable())
    })
}

/// Answers a call.
pub(super) async fn answer(call: Call, mut asked: Asked, server: &Arc<Server>) -> Result<Answer, Problem> {
    match call {
        Call::Lock => {
            let body: Body = asked.json()?;
            if body.names.is_some() {
                return Err(Problem::bad_request("the name is in the path: post names to /v1/locks"));
            }
            let names = std::mem::take(&mut asked.parts);
            let (wanted, terms) = body.want(names, &asked, server)?;
            hold::open(asked, wanted, terms, server).await
        }
        Call::LockAll => {
            let mut body: Body = asked.json()?;
            let names = body.names.take().unwrap_or_default();
            let (wanted, terms) = body.want(names, &asked, server)?;
            hold::open(asked, wanted, terms, server).await
        }
        Call::LookAll => bounded(look::all(&asked, server)).await,
        Call::Look => bounded(look::one(&asked, server)).await,
        Call::Evict => bounded(look::evict(&asked, server)).await,
        Call::Confirm => holds::confirm(&asked, server),
        Call::Release => holds::release(&asked, server).await,
        Call::Done => holds::done(&asked, server).await,
        Call::Failed => holds::failed(&asked, server).await,
        Call::Ticket => tickets::acquire(asked, server).await,
        Call::RenewTicket => bounded(tickets::renew(&asked, server)).await,
        Call::ReleaseTicket => bounded(tickets::release(&asked, server)).await,
        Call::Campaign => elections::campaign(asked, server).await,
        Call::Leader => bounded(elections::leader(&asked, server)).await,
        Call::WatchLeader => elections::watch(asked, server).await,
        Call::Once => once::start(asked, server).await,
        Call::OpenStock => bounded(stock::open(&asked, server)).await,
        Call::Take => bounded(stock::take(&asked, server)).await,
        Call::Reserve => bounded(stock::reserve(&asked, server)).await,
        Call::ConfirmOrder => bounded(stock::confirm(&asked, server)).await,
        Call::GiveBack => bounded(stock::give_back(&asked, server)).await,
        Call::Tally => bounded(stock::tally(&asked, server)).await,
        Call::Abilities => Ok(answer::ok(&Row::new(&server.place, server.locks.abilities()))),
        Call::Metrics => {
            Ok(answer::text("text/plain; version=0.0.4; charset=utf-8", server.figures.render(server)))
        }
        Call::OpenApi => {
            let (min_ttl, must_confirm) = (server.locks.abilities().min_ttl, asked.peer.is_tcp());
            Ok(answer::ok(&openapi::describe(openapi::Setting { min_ttl, must_confirm })))
        }
        Call::TerraformLock => bounded(terraform::lock(asked, server)).await,
        Call::TerraformUnlock => bounded(terraform::unlock(&asked, server)).await,
        Call::Health => {
            let status = if server.closing.borrow().is_ending() { "closing" } else { "serving" };
            let store = server.locks.abilities().store;
            Ok(answer::ok(&json!({"status": status, "store": store, "version": env!("CARGO_PKG_VERSION")})))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_slashes_and_any_other_byte() {
        let call = |method, path| find(&method, path).unwrap();
        assert_eq!(call(Method::POST, "/v1/locks/a"), (Call::Lock, vec!["a".to_owned()]));
        assert_eq!(call(Method::POST, "/v1/locks/a/b%2Fc%20"), (Call::Lock, vec!["a/b/c ".to_owned()]));
        assert_eq!(call(Method::POST, "/v1/locks"), (Call::LockAll, vec![]));
        let evicted = call(Method::DELETE, "/v1/locks/a/claims/b/claims/7");
        assert_eq!(evicted, (Call::Evict, vec!["a/claims/b".to_owned(), "7".to_owned()]));
        assert_eq!(call(Method::POST, "/v1/locks/a%2Fclaims/7").0, Call::Lock);
        let terraform = find(&"LOCK".parse().unwrap(), "/v1/terraform/prod/network").unwrap();
        assert_eq!(terraform, (Call::TerraformLock, vec!["prod/network".to_owned()]));
    }

    #[test]
    fn what_is_no_call_says_what_is() {
        for path in ["/", "", "/v1", "/v1/lock/a", "/v1/holds/a/b", "/healthz/x", "//v1/locks"] {
            assert_eq!(find(&Method::GET, path).unwrap_err().status(), StatusCode::NOT_FOUND, "{path}");
        }
        let wrong = find(&Method::PUT, "/v1/locks/a").unwrap_err();
        assert_eq!(wrong.status(), StatusCode::METHOD_NOT_ALLOWED);
        // The first pattern that fits says which methods are allowed.
        for path in ["/v1/stock/a/open", "/v1/elections/a/watch", "/v1/locks/a/claims/7"] {
            let wrong = find(&Method::PATCH, path).unwrap_err();
            let wrong = serde_json::to_value(&wrong).unwrap();
            assert!(wrong["allow"].as_str().is_some_and(|allow| !allow.contains(',')), "{path}: {wrong}");
        }
    }
}
