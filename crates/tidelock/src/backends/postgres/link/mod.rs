//! The connection to the server that grants: opened, checked, and opened again when it is lost.
//!
//! One connection carries all: statements follow each other without waiting for answers, and notifications come between
//! them. A second one only to listen would be one more process of the server for each client, and one more thing to
//! be lost alone.
//!
//! | file | what |
//! |---|---|
//! | `mod` | the connection of one client: who asks over it, and when it is given up |
//! | `open` | opening it: the server is checked, the schema installed |
//! | `session` | a session of the server, and the statements in it |
//! | `stream` | bytes to and from a server, encrypted or not |

mod open;
mod session;
mod stream;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use self::{
    open::{CONNECT, INSTALL},
    session::Session,
};
use super::{
    errors::{classify, conclude, ends_connection, was_undone},
    fitness::Fitness,
    settings::PostgresSettings,
};
use crate::{
    backend::{ClientId, Failure, FailureKind, News},
    backends::shared::{
        failures::{at, no_answer_within},
        following::{self, Heard},
        mutex::lock,
        news::Tell,
        once::Once,
        silence::Silence,
        unanswered::Asking,
    },
};

/// After how long without any answer a connection is given up.
const SILENT: Duration = Duration::from_secs(6);
/// How often a statement is asked that the server undid because of another one.
const TRIES: u32 = 5;
/// How many news may wait to be read. More are dropped: each only saves a question.
const UNTOLD: usize = 65_536;

/// A statement of ours: its text, and the types of its arguments.
#[derive(Debug)]
pub(super) struct Verb {
    pub(super) text: &'static str,
    pub(super) types: &'static [Type],
}

/// The rows of an answer, and the number of the session that they came from.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    pub(super) session: u64,
}

/// The connection of one client.
#[derive(Debug)]
pub(super) struct Link {
    config: PostgresSettings,
    client: ClientId,
    verbs: &'static [Verb],
    tell: Tell,
    /// Where followers hear what the server says.
    heard: following::Tell,
    opening: Once,
    state: Mutex<State>,
    silence: Silence,
    /// How many news were handed on and not read yet.
    untold: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Arc<Session>>,
    /// How many connections were made.
    number: u64,
    /// What the server last said about itself.
    fitness: Option<Fitness>,
}

impl Link {
    pub(super) fn new(
        config: PostgresSettings,
        client: ClientId,
        verbs: &'static [Verb],
        tell: Tell,
        heard: following::Tell,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            client,
            verbs,
            tell,
            heard,
            opening: Once::default(),
            state: Mutex::default(),
            silence: Silence::default(),
            untold: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What the server last said about itself, if it was ever connected.
    pub(super) fn fitness(&self) -> Option<Fitness> {
        self.state().fitness.clone()
    }

    pub(super) fn client(&self) -> ClientId {
        self.client
    }

    /// What all names begin with in the database.
    pub(super) fn prefix(&self) -> &str {
        &self.config.prefix
    }

    /// Hands news on.
    fn tell(&self, news: News) {
        if self.untold.fetch_add(1, Ordering::Relaxed) >= UNTOLD {
            self.untold.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        // Nobody reads it any more only when the client is gone.
        let _ = self.tell.send(Ok(news));
    }

    /// The holders of a name that is followed have changed.
    fn tell_followers(&self, key: &str) {
        // Nobody listens only when the client is gone, or behind a pooler.
        let _ = self.heard.send(Heard::Changed(key.to_owned()));
    }

    /// Says that news may have been missed.
    fn tell_cut(&self, why: &str) {
        let _ = self.tell.send(Err(Failure::unreachable(why)));
        let _ = self.heard.send(Heard::Cut);
    }

    /// News that were handed on are read.
    pub(super) fn told(&self) {
        self.untold.fetch_sub(1, Ordering::Relaxed);
    }

    /// Runs one of the statements and waits for its rows.
    pub(super) async fn ask(
        self: &Arc<Self>,
        verb: usize,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Answer, Failure> {
        self.ask_for(verb, values, None).await
    }

    /// The same, for a claim for which the statement may be under way for longer than anybody waits.
    pub(super) async fn ask_for(
        self: &Arc<Self>,
        verb: usize,
        values: &[&(dyn ToSql + Sync)],
        mut asking: Option<&mut Asking<'_>>,
    ) -> Result<Answer, Failure> {
        for tries in 1.. {
            let session = self.connection().await?;
            let alone = session.alone(self).await;
            let asked = self.silence.asked();
            let statement = session.ask(verb, &self.verbs[verb], values);
            let answer = match &mut asking {
                Some(asking) => asking.send(statement, conclude).await,
                None => statement.await,
            };
            asked.answered(&answer);
            if let Some(alone) = alone {
                alone.answered();
            }
            match answer {
                Ok(rows) => return Ok(Answer { rows, session: session.number() }),
                Err(error) if was_undone(&error) && tries < TRIES => {}
                Err(error) => {
                    if ends_connection(&error) {
                        self.cut(session.number(), &conclude(&error).reason);
                    }
                    return Err(classify(error));
                }
            }
        }
        unreachable!("the last try returns")
    }

    /// The connection, made if there is none.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Session>, Failure> {
        match self.live() {
            Some(session) => Ok(session),
            // In a box, so that a statement over a connection that is open has a small future.
            None => Box::pin(self.opening.get(|| self.live(), self.open())).await,
        }
    }

    /// The connection, if there is one.
    fn live(&self) -> Option<Arc<Session>> {
        if self.silence.is_longer_than(SILENT) {
            let number = self.state().number;
            self.cut(number, "no answer came for too long");
        }
        self.state().live.clone().filter(|session| !session.is_closed())
    }

    /// Connects to the first server that can grant.
    async fn open(self: &Arc<Self>) -> Result<Arc<Session>, Failure> {
        let number = {
            let mut state = self.state();
            state.number += 1;
            state.number
        };
        let mut failures: Vec<Failure> = Vec::new();
        for address in &self.config.addresses {
            let made = tokio::time::timeout(CONNECT + INSTALL, self.make(address, number)).await;
            match made.unwrap_or_else(|_| Err(no_answer_within(INSTALL))) {
                Ok((session, fitness)) => {
                    let session = Arc::new(session);
                    self.silence.end();
                    let before = {
                        let mut state = self.state();
                        state.fitness = Some(fitness);
                        state.live.replace(Arc::clone(&session))
                    };
                    // One that ended, and nobody had noticed yet: what it would have told is missed all the same.
                    if before.is_some() {
                        self.tell_cut("the connection was lost");
                    }
                    return Ok(session);
                }
                Err(failure) => failures.push(at(address, failure)),
            }
        }
        Err(together(failures))
    }

    /// The connection with this number is over.
    fn cut(&self, number: u64, why: &str) {
        let live = {
            let mut state = self.state();
            if state.live.as_ref().is_none_or(|live| live.number() != number) {
                return;
            }
            state.live.take()
        };
        // Statements that are under way end now, instead of when nobody waits for them any more.
        if let Some(live) = live {
            live.end();
        }
        self.tell_cut(why);
    }
}

/// Of several servers none could be used: what all of them said, and for good only if all did.
fn together(mut failures: Vec<Failure>) -> Failure {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let denied = failures.iter().all(|failure| failure.kind == FailureKind::Denied);
    let reasons: Vec<&str> = failures.iter().map(|failure| &*failure.reason).collect();
    let reason = reasons.join("; ");
    let cause = failures.iter().find_map(|failure| failure.cause.clone());
    let failure = if denied { Failure::denied(reason) } else { Failure::unreachable(reason) };
    Failure { cause, ..failure }
}
