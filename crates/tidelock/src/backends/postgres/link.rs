//! The connection to the server that grants: opened, checked, and opened again when it is lost.
//!
//! One connection carries all: statements follow each other without waiting for answers, and notifications come between
//! them. A second one only to listen would be one more process of the server for each client, and one more thing to
//! be lost by itself.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::mpsc::UnboundedSender, task::AbortHandle};
use tokio_postgres::{
    Client, Error, NoTls, Row, Statement,
    types::{ToSql, Type},
};

use super::{
    codec::channel,
    config::{Place, PostgresConfig},
    errors::{classify, classify_connecting, ends_connection, was_undone},
    fitness::{Fitness, QUESTION},
    schema::{INSTALLING, VERSION, schema},
    stream,
    wake::{Heard, drive},
};
use crate::{
    backend::{ClientId, Failure, FailureKind},
    backends::{self, unanswered::Asking},
    clock::{Clock, Moment, nanos},
};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How long the schema may take to be installed by whoever comes first.
const INSTALL: Duration = Duration::from_secs(20);
/// After how long without any answer a connection is given up.
const SILENT: Duration = Duration::from_secs(6);
/// How often a statement is asked that the server undid because of another one.
const TRIES: u32 = 5;

/// An argument and its type.
pub(super) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

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
    config: PostgresConfig,
    client: ClientId,
    verbs: &'static [Verb],
    heard: UnboundedSender<Heard>,
    clock: Clock,
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Since when no question was answered, in nanoseconds; 0 if none waits for an answer too long.
    silent_since: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Arc<Live>>,
    /// How many connections were made.
    number: u64,
    /// What the server last said about itself.
    fitness: Option<Fitness>,
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct Live {
    client: Client,
    number: u64,
    /// Nothing where statements may go to another session than those before them.
    prepared: Vec<Statement>,
    /// Behind a pooler: whose turn it is.
    turn: Option<tokio::sync::Mutex<()>>,
    driver: AbortHandle,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    pub(super) fn new(
        config: PostgresConfig,
        client: ClientId,
        verbs: &'static [Verb],
        heard: UnboundedSender<Heard>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            client,
            verbs,
            heard,
            clock: Clock::machine(),
            opening: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            silent_since: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server last said about itself, if it was ever connected.
    pub(super) fn fitness(&self) -> Option<Fitness> {
        self.state().fitness.clone()
    }

    /// What all names begin with in the database.
    pub(super) fn prefix(&self) -> &str {
        &self.config.prefix
    }

    /// Nobody listens any more only when the client is gone.
    pub(super) fn tell(&self, heard: Heard) {
        let _ = self.heard.send(heard);
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
            let live = self.connection().await?;
            let alone = live.alone(self).await;
            let silence = Silence(self);
            if let Some(asking) = &mut asking {
                asking.sent();
            }
            let answer = live.ask(verb, &self.verbs[verb], values).await;
            if let Some(asking) = &mut asking {
                asking.ended(answer.as_ref().err().map(|error| classify(error).kind));
            }
            silence.over(&answer);
            if let Some(alone) = alone {
                alone.answered();
            }
            match answer {
                Ok(rows) => return Ok(Answer { rows, session: live.number }),
                Err(error) if was_undone(&error) && tries < TRIES => {}
                Err(error) => {
                    if ends_connection(&error) {
                        self.cut(live.number, &classify(&error).reason);
                    }
                    return Err(classify(&error));
                }
            }
        }
        unreachable!("the last try returns")
    }

    /// The connection, made if there is none.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Live>, Failure> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let _alone = self.opening.lock().await;
        match self.live() {
            Some(live) => Ok(live),
            None => self.open().await,
        }
    }

    /// The connection, if there is one.
    fn live(&self) -> Option<Arc<Live>> {
        let since = self.silent_since.load(Ordering::Relaxed);
        if since != 0 && self.clock.now().since(Moment::from_nanos(since)) > SILENT {
            let number = self.state().number;
            self.cut(number, "no answer came for too long");
        }
        self.state().live.clone().filter(|live| !live.client.is_closed())
    }

    /// Connects to the first server that can grant.
    async fn open(self: &Arc<Self>) -> Result<Arc<Live>, Failure> {
        let number = {
            let mut state = self.state();
            state.number += 1;
            state.number
        };
        let mut failures: Vec<Failure> = Vec::new();
        for place in &self.config.places {
            let made = tokio::time::timeout(CONNECT + INSTALL, self.make(place, number)).await;
            match made.unwrap_or_else(|_| Err(too_slow(INSTALL))) {
                Ok((live, fitness)) => {
                    let live = Arc::new(live);
                    self.silent_since.store(0, Ordering::Relaxed);
                    let before = {
                        let mut state = self.state();
                        state.fitness = Some(fitness);
                        state.live.replace(Arc::clone(&live))
                    };
                    // One that ended, and nobody had noticed yet: what it would have told is missed all the same.
                    if before.is_some() {
                        self.tell(Heard::Cut("the connection was lost".into()));
                    }
                    return Ok(live);
                }
                Err(failure) => {
                    let reason = format!("{place}: {}", failure.reason).into();
                    failures.push(Failure { reason, ..failure });
                }
            }
        }
        Err(together(failures))
    }

    async fn make(self: &Arc<Self>, place: &Place, number: u64) -> Result<(Live, Fitness), Failure> {
        let (client, process, driver) = tokio::time::timeout(CONNECT, self.log_in(place, number))
            .await
            .unwrap_or_else(|_| Err(too_slow(CONNECT)))?;
        let mut live = Live { client, number, prepared: Vec::new(), turn: None, driver };
        let first = |error: Error| classify_connecting(&error);
        let row = live.client.query_typed_one(QUESTION, &[]).await.map_err(first)?;
        let mut fitness = Fitness::read(&row, process).map_err(first)?;
        fitness.check(self.config.advisory)?;
        live.turn = fitness.is_pooled.then(Default::default);
        // Without limits on waiting for locks: whoever comes first installs for all.
        live.install().await?;
        if !fitness.is_pooled {
            live.client.batch_execute(&settings(&fitness, self.client)).await.map_err(first)?;
        }
        let hello = live.client.query_typed_one("SELECT quiet_left FROM tidelock.hello()", &[]).await;
        let quiet: i64 = hello.and_then(|row| row.try_get(0)).map_err(first)?;
        fitness.quiet_left = Duration::from_micros(u64::try_from(quiet).unwrap_or(0));
        if !fitness.is_pooled {
            for verb in self.verbs {
                let statement = live.client.prepare_typed(verb.text, verb.types).await.map_err(first)?;
                live.prepared.push(statement);
            }
        }
        Ok((live, fitness))
    }

    async fn log_in(
        self: &Arc<Self>,
        place: &Place,
        number: u64,
    ) -> Result<(Client, i32, AbortHandle), Failure> {
        let (stream, process) = stream::open(&self.config, place).await?;
        let logged_in = self.config.login.connect_raw(stream, NoTls).await;
        let (client, connection) = logged_in.map_err(|error| classify_connecting(&error))?;
        let driver = backends::attend(drive(connection, Arc::downgrade(self), number));
        Ok((client, process.load(Ordering::Relaxed), driver))
    }

    /// The connection with this number is over.
    pub(super) fn cut(&self, number: u64, why: &str) {
        let live = {
            let mut state = self.state();
            if state.live.as_ref().is_none_or(|live| live.number != number) {
                return;
            }
            state.live.take()
        };
        // Statements that are under way end now, instead of when nobody waits for them any more.
        if let Some(live) = live {
            live.driver.abort();
        }
        self.tell(Heard::Cut(why.into()));
    }
}

impl Live {
    /// Another number, another session.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Behind a pooler waits until no other statement is under way.
    ///
    /// A statement is several messages. When the answer to one comes while half of the next has been passed on, PgBouncer takes
    /// the session for free, and passes the other half on to another one, where it meets a statement of somebody else.
    async fn alone<'a>(&'a self, link: &'a Link) -> Option<Alone<'a>> {
        let turn = self.turn.as_ref()?.lock().await;
        Some(Alone { link, number: self.number, _turn: turn })
    }

    async fn ask(
        &self,
        number: usize,
        verb: &Verb,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        match self.prepared.get(number) {
            Some(statement) => self.client.query(statement, values).await,
            None => {
                let typed: Vec<Argument<'_>> =
                    values.iter().copied().zip(verb.types.iter().cloned()).collect();
                self.client.query_typed(verb.text, &typed).await
            }
        }
    }

    /// Makes the schema if it is not there, or is older than this client.
    async fn install(&self) -> Result<(), Failure> {
        if self.is_installed().await? {
            return Ok(());
        }
        // One at a time, and only the first: what it makes must not be changed under the hands of those who use it already.
        let first = |error: Error| classify_connecting(&error);
        let begin =
            format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({INSTALLING})");
        self.client.batch_execute(&begin).await.map_err(first)?;
        if !self.is_installed().await? {
            self.client.batch_execute(&schema()).await.map_err(|error| {
                let failure = classify_connecting(&error);
                let mend = "have an administrator run what `tidelock schema --print postgres` prints";
                match failure.kind {
                    FailureKind::Denied => Failure::denied(format!(
                        "the schema tidelock is missing or old and cannot be installed ({}): {mend}",
                        failure.reason
                    )),
                    _ => failure,
                }
            })?;
        }
        self.client.batch_execute("COMMIT").await.map_err(first)
    }

    /// Whether the schema is there, and of this version. A newer one is an error.
    async fn is_installed(&self) -> Result<bool, Failure> {
        let first = |error: Error| classify_connecting(&error);
        // Read from the tables themselves: what a session remembers of them may be older than a lock that it has just got.
        let is_there = "SELECT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'tidelock' AND p.proname = 'version')";
        let row = self.client.query_typed_one(is_there, &[]).await.map_err(first)?;
        if !row.try_get(0).map_err(first)? {
            return Ok(false);
        }
        let row = self.client.query_typed_one("SELECT tidelock.version()", &[]).await.map_err(first)?;
        let found: i32 = row.try_get(0).map_err(first)?;
        if found > VERSION {
            return Err(Failure::denied(format!(
                "the schema tidelock of the database is of version {found}, and this client knows {VERSION}: update the client"
            )));
        }
        Ok(found == VERSION)
    }
}

/// What holds for all statements of a session that is ours alone.
fn settings(fitness: &Fitness, client: ClientId) -> String {
    // A row that somebody keeps locked must not keep all other locks waiting, and a server that is busy must not
    // end a session that only listens.
    let idle = if fitness.version >= 140_000 { "SET idle_session_timeout = 0;" } else { "" };
    format!(
        "SET default_transaction_isolation = 'read committed'; SET lock_timeout = '2s'; SET jit = off; SET tidelock.client = '{:016x}'; {idle} LISTEN {}",
        client.get(),
        channel(client)
    )
}

fn too_slow(limit: Duration) -> Failure {
    Failure::unreachable(format!("no answer within {limit:?}"))
}

/// Of several servers none could be used: what all of them said, and for good only if all did.
fn together(mut failures: Vec<Failure>) -> Failure {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let denied = failures.iter().all(|failure| failure.kind == FailureKind::Denied);
    let reasons: Vec<&str> = failures.iter().map(|failure| &*failure.reason).collect();
    let reason = reasons.join("; ");
    if denied { Failure::denied(reason) } else { Failure::unreachable(reason) }
}

/// The only statement under way. Dropped before its answer came it takes the connection along: nobody knows how far it is.
struct Alone<'a> {
    link: &'a Link,
    number: u64,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Alone<'_> {
    fn answered(mut self) {
        // There is no connection with this number.
        self.number = 0;
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.link.cut(self.number, "a question was given up before its answer came");
    }
}

/// A question that waits for its answer. Dropped before it came, it marks the connection as silent.
struct Silence<'a>(&'a Link);

impl Silence<'_> {
    fn over<T>(self, _: &T) {
        self.0.silent_since.store(0, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        let now = nanos(self.0.clock.now().since(Moment::default())).max(1);
        let _ = self.0.silent_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}
