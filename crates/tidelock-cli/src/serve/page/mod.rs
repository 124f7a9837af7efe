//! The page: every lock in use, live, for people.
//!
//! What a browser may ask is here, apart from the calls of programs, which no web page may make. The files are in
//! `web/`, as they are sent: there is no build step, and nothing comes from elsewhere.
//!
//! | file | what is in it |
//! |---|---|
//! | [`feed`] | the stream of changes |
//! | [`frame`] | what is sent, as the page reads it |
//! | [`files`] | HTML, style and scripts |

mod feed;
mod files;
mod frame;

use std::sync::Arc;

use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{HOST, HeaderValue, LOCATION, SET_COOKIE},
};
use serde::Deserialize;
use serde_json::json;
use tidelock::{Name, backend::ClaimId};

use super::{
    Server,
    access::Access,
    answer::{self, Answer},
    asked::Asked,
    look,
    peer::Peer,
    problem::Problem,
};
use crate::{
    clock::Moment,
    commands::{doctor, stores::Row},
    output::{self, Trouble},
    who,
};

/// What a browser asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Page,
    File(&'static files::File),
    SignIn,
    Events,
    Focus,
    History,
    Store,
    Break,
}

/// Finds what a browser asks for. Everything else is for programs.
pub(super) fn find(method: &Method, path: &str) -> Option<Call> {
    Some(match (method.as_str(), path) {
        ("GET", "/") => Call::Page,
        ("POST", "/ui/session") => Call::SignIn,
        ("GET", "/ui/events") => Call::Events,
        ("POST", "/ui/focus") => Call::Focus,
        ("GET", "/ui/history") => Call::History,
        ("GET", "/ui/store") => Call::Store,
        ("POST", "/ui/break") => Call::Break,
        ("GET", path) => Call::File(files::find(path.strip_prefix("/ui/")?)?),
        _ => return None,
    })
}

/// Answers a browser.
pub(super) async fn answer(
    call: Call,
    request: Request<Incoming>,
    received: Moment,
    peer: Peer,
    server: &Arc<Server>,
) -> Result<Answer, Problem> {
    let cookie = Cookie::of(&request, &peer);
    match call {
        Call::Page | Call::File(_) | Call::SignIn => server.access.check_browser(&request, &peer)?,
        _ => server.access.check_session(&request, &peer, &cookie.name)?,
    }
    let asked = Asked::read(request, received, peer, Vec::new()).await?;
    let mut answer = match call {
        Call::Page => match asked.query("key")? {
            Some(key) => enter(&key, &cookie, server)?,
            None => files::INDEX.answer(),
        },
        Call::File(file) => file.answer(),
        Call::SignIn => sign_in(&asked, &cookie, server)?,
        Call::Events => feed::open(&asked, server)?,
        Call::Focus => focus(&asked, server)?,
        Call::History => history(&asked, server)?,
        Call::Store => store(server),
        Call::Break => break_claim(&asked, server).await?,
    };
    files::protect(&mut answer);
    Ok(answer)
}

/// Where a browser keeps its session.
struct Cookie {
    name: String,
    /// Whether it may only be sent over TLS.
    is_secure: bool,
}

impl Cookie {
    /// Browsers send a cookie to all ports of a machine, so its name has the port.
    fn of<T>(request: &Request<T>, peer: &Peer) -> Self {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let port: String = host.chars().rev().take_while(char::is_ascii_digit).collect();
        let name = format!("tidelock-{}", port.chars().rev().collect::<String>());
        Self { name, is_secure: peer.is_tls() }
    }

    fn set(&self, answer: &mut Answer, session: &str) -> Result<(), Problem> {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let text = format!("{}={session}; HttpOnly; SameSite=Strict; Path=/{secure}", self.name);
        answer.headers_mut().insert(SET_COOKIE, text.parse().map_err(|_| Problem::internal())?);
        Ok(())
    }
}

/// Exchanges a key for a cookie, and leads to the page without the key.
fn enter(key: &str, cookie: &Cookie, server: &Server) -> Result<Answer, Problem> {
    let mut answer = answer::json(StatusCode::SEE_OTHER, &json!({}));
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    // A key that was used before leads there, too: who has the cookie sees the page, and who has not can sign in.
    if let Some(session) = server.access.begin_session(key) {
        cookie.set(&mut answer, &session)?;
    }
    Ok(answer)
}

fn sign_in(asked: &Asked, cookie: &Cookie, server: &Server) -> Result<Answer, Problem> {
    #[derive(Deserialize)]
    struct Body {
        key: String,
    }
    let Body { key } = asked.json()?;
    let session = server.access.begin_session(key.trim());
    let session = session.ok_or_else(|| Problem::unauthorized("this is not the token of this server"))?;
    let mut answer = answer::ok(&json!({"signed_in": true}));
    cookie.set(&mut answer, &session)?;
    Ok(answer)
}

/// `POST /ui/focus`: the names that are on the screen of a viewer.
fn focus(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    #[derive(Deserialize)]
    struct Body {
        viewer: u64,
        names: Vec<Name>,
    }
    let Body { viewer, names } = asked.json()?;
    server.observer.focus(viewer, names);
    Ok(answer::ok(&json!({})))
}

/// `GET /ui/history?name=`: what happened to a lock, as far as it was seen.
fn history(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let name = asked.query("name")?;
    let found = server.observer.history(|history| {
        let events = history.find(|event| name.as_ref().is_none_or(|name| event.name.as_str() == name));
        frame::history(&events, history)
    });
    Ok(answer::ok(&found))
}

/// `GET /ui/store`: what does not change while the server runs.
fn store(server: &Server) -> Answer {
    let (locks, abilities) = (&server.locks, server.locks.abilities());
    let problems = [doctor::problems(abilities), locks.concerns()].concat();
    let notes = [locks.notes(), doctor::notes(abilities, None)].concat();
    answer::ok(&json!({
        "url": &server.place,
        "abilities": Row::new(&server.place, abilities),
        "problems": problems,
        "notes": notes,
        "version": env!("CARGO_PKG_VERSION"),
        "may_break": server.allow_break,
    }))
}

/// `POST /ui/break`: takes a claim away, for a reason.
async fn break_claim(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    #[derive(Deserialize)]
    struct Body {
        name: Name,
        claim: ClaimId,
        reason: String,
    }
    if !server.allow_break {
        return Err(Problem::forbidden("this server only shows locks: start it with --allow-break"));
    }
    let Body { name, claim, reason } = asked.json()?;
    if reason.trim().is_empty() {
        return Err(Problem::bad_request("say why: the holder is told"));
    }
    let reason = who::signed(reason.trim(), &asked.peer.label);
    match look::take_away(&name, claim, &reason, server).await? {
        true => Ok(answer::ok(&json!({"evicted": true}))),
        false => Err(Problem::not_found("this claim has ended already")),
    }
}

/// Prints the link to the page, and opens it if that is wanted.
pub(super) fn invite(origin: &str, access: &Access, open: bool) -> Result<(), Trouble> {
    let link = format!("{origin}/?key={}", access.new_key()?);
    output::text(&format!("{link}\nThe link works once. Ctrl-C ends the page.\n"))?;
    if open {
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let opened = std::process::Command::new(opener).arg(&link).spawn();
        if let Err(error) = opened {
            output::complain(&format!("the browser cannot be opened with {opener}: {error}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_page_needs_is_for_browsers() {
        for (method, path, call) in [
            (Method::GET, "/", Some(Call::Page)),
            (Method::GET, "/ui/events", Some(Call::Events)),
            (Method::POST, "/ui/break", Some(Call::Break)),
            (Method::GET, "/ui/break", None),
            (Method::GET, "/ui/../Cargo.toml", None),
            (Method::POST, "/v1/locks/a", None),
            (Method::GET, "/v1/locks", None),
        ] {
            assert_eq!(find(&method, path), call, "{method} {path}");
        }
        assert!(matches!(find(&Method::GET, "/ui/style.css"), Some(Call::File(_))));
    }
}
