//! One server: its connection, and what is known of it.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    Client, Cmd, ErrorKind, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

use super::{
    super::{
        clock_watch::{ClockWatch, Reading},
        errors::{classify, is_missing},
        fitness::Fitness,
        library::Loaded,
        quiet::{Quiet, QuietTime},
    },
    Answer, Common, Form,
    pool::Pool,
};
use crate::{
    backend::Failure,
    backends::shared::{failures, mutex::lock, once::Once, silence::Silence},
    clock::Moment,
    events,
};

/// After how long without any answer a connection is given up.
const SILENT: Duration = Duration::from_secs(6);

/// A connection that is open, and how many were made up to it.
pub(crate) type Live = (MultiplexedConnection, u64);

/// As metrics name the store. Servers that vote are such servers, too.
const STORE: &str = "redis";

/// The clock of a server jumped.
pub(super) fn count_jump(jump: &Failure) {
    events::clock_jumped(STORE, jump);
}

/// One server, and the connection to it.
#[derive(Debug)]
pub(crate) struct Server {
    /// For people.
    address: Box<str>,
    pub(super) client: Client,
    pub(super) common: Arc<Common>,
    pub(super) opening: Once,
    state: Mutex<State>,
    /// Whether the server knows the library of functions.
    pub(super) functions: AtomicBool,
    pub(super) pool: Pool,
    pub(super) silence: Silence,
    /// The number of the last connection on which answers went astray: see [`Link::checked`].
    astray: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) live: Option<Subscribed>,
    /// How many connections were made.
    pub(super) number: u64,
    /// What the server last said about itself.
    pub(super) fitness: Option<Fitness>,
    /// Its clock against ours.
    pub(super) clock: ClockWatch,
    /// Until when it grants nothing.
    pub(super) quiet: QuietTime,
    /// What is known of the library of functions.
    pub(super) loaded: Option<Loaded>,
}

#[derive(Debug)]
pub(super) struct Subscribed {
    pub(super) connection: MultiplexedConnection,
    /// The shards whose inbox is subscribed.
    pub(super) shards: HashSet<Box<str>>,
}

impl Server {
    pub(super) fn new(address: String, client: Client, common: &Arc<Common>) -> Arc<Self> {
        events::watch_clocks(STORE);
        Arc::new(Self {
            address: address.into(),
            client,
            common: Arc::clone(common),
            opening: Once::default(),
            state: Mutex::default(),
            functions: AtomicBool::new(false),
            pool: Pool::default(),
            silence: Silence::new(common.clock.clone()),
            astray: AtomicU64::new(0),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// What the server last said about itself, if it was ever connected.
    pub(crate) fn fitness(&self) -> Option<Fitness> {
        self.state().fitness.clone()
    }

    /// Sends a command and waits for its answer. The outer error: nothing was sent.
    pub(crate) async fn ask(self: &Arc<Self>, command: &Cmd) -> Answer {
        let live = self.connection().await?;
        Ok(self.ask_live(live, command).await)
    }

    /// Sends a command to a server that is connected, and waits for its answer: [`ask`](Self::ask)
    /// without what is hardly ever needed.
    pub(crate) async fn ask_live(
        &self,
        (mut connection, number): Live,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        let asked = self.silence.asked();
        let answer = connection.send_packed_command(command).await.and_then(Value::extract_error);
        asked.answered(&answer);
        self.checked(number, answer)
    }

    /// Calls a script on a server that is connected. Nothing: the server does not have the script, and did nothing.
    pub(crate) async fn call(
        &self,
        live: Live,
        make: impl FnOnce(Form<'_>) -> Cmd,
    ) -> Option<Result<Value, Failure>> {
        let command = make(Form::plain(self));
        match self.ask_live(live, &command).await {
            Err(error) if is_missing(&error) => None,
            answer => Some(answer.map_err(|error| classify(&error))),
        }
    }

    /// Sends several commands at once and waits for all answers.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        commands: &Pipeline,
    ) -> Result<Result<Vec<Value>, RedisError>, Failure> {
        let live = self.connection().await?;
        Ok(self.ask_live_all(live, commands).await)
    }

    /// Sends several commands to a server that is connected, and waits for all answers: any of them may be an error.
    pub(crate) async fn ask_live_all(
        &self,
        (mut connection, number): Live,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, RedisError> {
        let asked = self.silence.asked();
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        asked.answered(&answers);
        self.checked(number, answers)
    }

    /// Subscribes the inbox of a shard, unless that was done. The outer error: nothing was sent.
    pub(crate) async fn hear_shard(self: &Arc<Self>, shard: &str) -> Result<Result<(), RedisError>, Failure> {
        // Stock hears nothing, so nothing has to be cut when a slot moves.
        if self.common.tell.is_closed() {
            return Ok(Ok(()));
        }
        let (mut connection, number) = self.connection().await?;
        if self.state().live.as_ref().is_some_and(|live| live.shards.contains(shard)) {
            return Ok(Ok(()));
        }
        let inbox = self.common.space.inbox(self.common.client, shard);
        let answer = connection.req_packed_command(redis::cmd("SSUBSCRIBE").arg(inbox)).await;
        if let Err(error) = self.checked(number, answer.and_then(Value::extract_error)) {
            return Ok(Err(error));
        }
        let mut state = self.state();
        if state.number == number
            && let Some(live) = &mut state.live
        {
            live.shards.insert(shard.into());
        }
        Ok(Ok(()))
    }

    /// Whether the server that is connected knows the library of functions.
    pub(super) fn has_functions(&self) -> bool {
        self.functions.load(Ordering::Relaxed)
    }

    /// The server does not know a function any more: scripts do until it is connected again.
    pub(crate) fn lost_functions(&self) {
        self.functions.store(false, Ordering::Relaxed);
    }

    /// How many connections were made: another number, another connection.
    pub(crate) fn number(&self) -> u64 {
        self.state().number
    }

    /// Notes a time that the server told in answer to what was asked at `asked`; fails if its clock jumped.
    pub(crate) fn note_time(&self, server_micros: u64, asked: Moment) -> Result<(), Failure> {
        let answered = self.common.clock.now();
        let noted = self.state().clock.note(server_micros, asked, answered);
        noted.inspect_err(count_jump)
    }

    /// Whether there is a connection and answers come.
    pub(super) fn is_well(&self) -> bool {
        self.state().live.is_some() && !self.is_silent()
    }

    /// Whether a question was given up before its answer came, and none came since.
    pub(super) fn is_silent(&self) -> bool {
        self.silence.is_silent()
    }

    /// Refuses while the server may have forgotten who holds what.
    pub(crate) fn may_grant(&self) -> Result<(), Failure> {
        let now = self.common.clock.now();
        self.state().quiet.check(now, &self.address, self.common.wary)
    }

    /// Lets the server grant nothing for a while, from now on.
    pub(crate) fn keep_quiet(&self, how_long: Duration, why: Quiet) {
        self.state().quiet.begin(self.common.clock.now() + how_long, why);
    }

    /// Somebody knows for how long the server on this connection has to be kept from granting, if at all.
    pub(crate) fn vouch(&self, number: u64, left: Duration, why: Quiet) {
        let mut state = self.state();
        if state.number == number {
            state.quiet.vouch(number, self.common.clock.now(), left, why);
        }
    }

    /// Whether somebody vouched for the server since it was connected.
    pub(crate) fn is_vouched_for(&self) -> bool {
        let state = self.state();
        state.quiet.is_over_for(state.number)
    }

    /// Problems found in the server.
    pub(super) fn concerns(&self) -> Vec<String> {
        let state = self.state();
        let mut concerns = state.fitness.as_ref().map(Fitness::concerns).unwrap_or_default();
        concerns.extend(state.loaded.and_then(|loaded| loaded.concern(self.common.library)));
        concerns
    }

    /// What the server's clock last said against ours.
    pub(crate) fn reading(&self) -> Option<Reading> {
        self.state().clock.reading()
    }

    /// What the server's clock says at a moment of ours, about, in microseconds; nothing if it never told.
    pub(crate) fn server_micros(&self, at: Moment) -> Option<u64> {
        self.state().clock.estimate(at)
    }

    /// For people.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Whether there is a connection.
    pub(crate) fn is_live(&self) -> bool {
        self.cut_if_silent();
        self.state().live.is_some()
    }

    fn cut_if_silent(&self) {
        if self.silence.is_longer_than(SILENT) {
            let number = self.state().number;
            self.cut(number, "no answer came for too long");
        }
    }

    /// The connection, if there is one, and its number.
    pub(crate) fn live(&self) -> Option<Live> {
        self.cut_if_silent();
        let state = self.state();
        state.live.as_ref().map(|live| (live.connection.clone(), state.number))
    }

    /// The connection, if there is one and the server grants.
    pub(crate) fn at_hand(&self) -> Option<Live> {
        let live = self.live()?;
        // After the connection was taken: one that is made later may be to a server that was restarted.
        self.may_grant().ok().map(|()| live)
    }

    /// Whether there is such a connection. It may be lost before it is used.
    pub(crate) fn is_at_hand(&self) -> bool {
        self.is_live() && self.may_grant().is_ok()
    }

    /// Says which server it was.
    pub(crate) fn named(&self, failure: Failure) -> Failure {
        failures::at(&self.address, failure)
    }

    /// An answer, if it is the answer to what was asked.
    ///
    /// A server that gives a slot away ends the subscriptions in it with a push. The driver takes that push for the
    /// answer to the oldest command under way, so each later answer reaches the command behind it: one lock's
    /// grant would be read as another's. The push is heard before the first of them is delivered, so no
    /// answer of that connection counts from then on; what was asked has an unknown outcome.
    fn checked<T>(&self, number: u64, answer: Result<T, RedisError>) -> Result<T, RedisError> {
        let answer = if self.astray.load(Ordering::Acquire) >= number {
            Err(RedisError::from((
                ErrorKind::Io,
                "a slot was moved to another server before the answer came",
            )))
        } else {
            answer
        };
        self.give_up_if_broken(number, &answer);
        answer
    }

    /// No answer of this connection counts any more.
    pub(crate) fn goes_astray(&self, number: u64, why: &str) {
        self.astray.fetch_max(number, Ordering::Release);
        self.cut(number, why);
    }

    /// A connection that broke is not used again.
    pub(crate) fn give_up_if_broken<T>(&self, number: u64, answer: &Result<T, RedisError>) {
        if let Err(error) = answer
            && (error.is_unrecoverable_error() || error.code() == Some("READONLY"))
        {
            self.cut(number, &error.to_string());
        }
    }

    /// The connection with this number is over.
    pub(crate) fn cut(&self, number: u64, why: &str) {
        let mut state = self.state();
        if state.number != number || state.live.take().is_none() {
            return;
        }
        drop(state);
        // Nobody reads it any more only when the client is gone.
        let _ = self.common.tell.send(Err(Failure::unreachable(format!("{}: {why}", self.address))));
    }

    /// Whatever connection there is, is over.
    pub(super) fn cut_now(&self, why: &str) {
        let number = self.state().number;
        self.cut(number, why);
    }
}
