//! Names that are followed: the server that has a line tells of its next change by `CLIENT TRACKING`.
//!
//! It is heard on connections of their own, one for each server, which are made when the first name is followed and
//! closed when nobody follows any. Scripts and transactions need not know of it. A server tells of whatever is written
//! in a line, renewals as well.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{
    Cmd, PushInfo, PushKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Mutex;

use super::{codec::text, errors::classify_connecting, link::Server, store::RedisStore, wake::Wake};
use crate::{
    backend::{Failure, Follows, News},
    backends::shared::following::{Arms, Following, Heard, Tell},
    clock::{Clock, Moment},
    model::name::Name,
};

/// After how long it is tried again to listen to a server.
const DEAF: Duration = Duration::from_secs(1);

/// What is kept between two calls of `wait`.
#[derive(Debug)]
pub(crate) struct Listening {
    wake: Wake,
    following: Following,
}

impl Listening {
    pub(super) fn new(wake: Wake, following: Following) -> Self {
        Self { wake, following }
    }

    /// The next news of a claim. Meanwhile names are followed.
    pub(super) async fn next(&mut self, store: &Arc<RedisStore>) -> Result<News, Failure> {
        tokio::select! {
            biased;
            news = self.wake.next() => news,
            never = self.following.run(store) => match never {},
        }
    }
}

/// The connections on which servers tell of changes, by their addresses.
#[derive(Debug)]
pub(crate) struct Tracking {
    pub(crate) follows: Follows,
    heard: Tell,
    lines: Mutex<Lines>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Lines {
    open: HashMap<Box<str>, Line>,
    /// Servers that do not tell, and until when nobody tries again: it may not be allowed, and each name would connect.
    deaf: HashMap<Box<str>, Moment>,
}

#[derive(Clone, Debug)]
struct Line {
    connection: MultiplexedConnection,
    is_cut: Arc<AtomicBool>,
}

impl Tracking {
    pub(crate) fn new() -> (Self, Following) {
        let follows = Follows::new();
        let (heard, following) = Following::new(follows.clone());
        (Self { follows, heard, lines: Mutex::default(), clock: Clock::machine() }, following)
    }

    /// From now on a server tells of the next change of a key, also if that is not there.
    pub(crate) async fn arm(&self, server: &Server, key: &str) -> Result<(), Failure> {
        self.line(server).await?.ask(redis::cmd("EXISTS").arg(key)).await
    }

    /// A server forgets a key with its next change, and all of them with the connection.
    pub(crate) fn disarm(&self) {
        // While a name is being armed that nobody follows any more, this is called once more when it is.
        if self.follows.is_empty()
            && let Ok(mut lines) = self.lines.try_lock()
        {
            lines.open.clear();
        }
    }

    /// The connection to a server. One at a time is made.
    async fn line(&self, server: &Server) -> Result<Line, Failure> {
        let mut lines = self.lines.lock().await;
        let at = server.address();
        if let Some(line) = lines.open.get(at).filter(|line| !line.is_cut.load(Ordering::Acquire)) {
            return Ok(line.clone());
        }
        lines.open.remove(at);
        if lines.deaf.get(at).is_some_and(|until| self.clock.now() < *until) {
            return Err(Failure::unreachable(format!("{at} does not tell of changes")));
        }
        let line = self.connect(server).await;
        match &line {
            Ok(line) => drop(lines.open.insert(at.into(), line.clone())),
            Err(_) => drop(lines.deaf.insert(at.into(), self.clock.now() + DEAF)),
        }
        line
    }

    async fn connect(&self, server: &Server) -> Result<Line, Failure> {
        let is_cut = Arc::new(AtomicBool::new(false));
        let (cut, heard) = (Arc::clone(&is_cut), self.heard.clone());
        let hear = move |push: PushInfo| match (push.kind, push.data.first()) {
            (PushKind::Invalidate, Some(Value::Array(keys))) => {
                for key in keys.iter().filter_map(text) {
                    // Nobody listens only when the client is gone.
                    let _ = heard.send(Heard::Changed(key.to_owned()));
                }
            }
            // All keys were deleted.
            (PushKind::Invalidate, _) => drop(heard.send(Heard::Cut)),
            (PushKind::Disconnection, _) => {
                cut.store(true, Ordering::Release);
                let _ = heard.send(Heard::Cut);
            }
            _ => {}
        };
        let connection = server.another_connection(hear).await?;
        let line = Line { connection, is_cut };
        line.ask(redis::cmd("CLIENT").arg("TRACKING").arg("ON")).await?;
        Ok(line)
    }
}

impl Line {
    async fn ask(&self, command: &Cmd) -> Result<(), Failure> {
        let answer = self.connection.clone().req_packed_command(command).await;
        let answer = answer.and_then(Value::extract_error).map(drop);
        answer.map_err(|error| {
            if error.is_connection_dropped() || error.is_timeout() {
                self.is_cut.store(true, Ordering::Release);
            }
            classify_connecting(&error)
        })
    }
}

impl Arms for RedisStore {
    fn key_of(&self, name: &Name) -> String {
        self.common.space.key(name)
    }

    async fn arm(self: Arc<Self>, key: String) -> Result<(), Failure> {
        let Some(tracking) = &self.tracking else { return Err(Failure::unreachable("no name is followed")) };
        tracking.arm(&*self.link.server(&key).await?, &key).await
    }

    fn disarm(&self, _key: &str) {
        if let Some(tracking) = &self.tracking {
            tracking.disarm();
        }
    }
}
