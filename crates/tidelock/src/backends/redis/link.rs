//! One connection to one server: opened, checked, subscribed, and opened again when it is lost.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, PushInfo, PushKind, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    clock_watch::ClockWatch,
    codec::{self, Space},
    config::{Place, RedisConfig, Scripting},
    errors::classify_connecting,
    fitness::Fitness,
    pool::{Lent, Pool},
    scripts,
};
use crate::{
    backend::{ClientId, Failure, News},
    clock::{Clock, Moment, nanos},
};

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// After how long without any answer a connection is given up.
const SILENT: Duration = Duration::from_secs(6);

/// What is heard unasked.
#[derive(Debug)]
pub(super) enum Heard {
    News(News),
    /// Pushes may have been missed.
    Cut(Arc<str>),
}

/// What the links of a client have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) space: Space,
    pub(super) client: ClientId,
    pub(super) heard: UnboundedSender<Heard>,
    pub(super) eviction_allowed: bool,
    pub(super) scripting: Scripting,
    /// Whether clients have an inbox for each slot instead of one.
    pub(super) sharded: bool,
    pub(super) clock: Clock,
    /// The longest lease that this client has asked for, in nanoseconds.
    pub(super) longest_ttl: AtomicU64,
    /// Whether a server that is younger than that grants nothing, though nobody here saw it restart, unless
    /// it syncs whatever it writes.
    pub(super) wary: bool,
}

impl Common {
    pub(super) fn new(config: &RedisConfig, client: ClientId, heard: UnboundedSender<Heard>) -> Self {
        Self {
            space: Space::new(&config.prefix),
            client,
            heard,
            eviction_allowed: config.eviction_allowed,
            scripting: config.scripting,
            sharded: matches!(config.servers, Place::Cluster(_)),
            clock: Clock::machine(),
            longest_ttl: AtomicU64::default(),
            wary: false,
        }
    }
}

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    /// For people.
    address: Box<str>,
    client: Client,
    common: Arc<Common>,
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    /// Whether the server knows the library of functions.
    functions: AtomicBool,
    pool: Pool,
    /// Since when no question was answered, in nanoseconds; 0 if none waits for an answer too long.
    silent_since: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    /// How many connections were made.
    number: u64,
    /// What the server last said about itself.
    fitness: Option<Fitness>,
    /// Its clock against ours.
    clock: ClockWatch,
    /// It forgot who held what: until then it grants nothing.
    quiet_until: Option<Moment>,
}

#[derive(Debug)]
struct Live {
    connection: MultiplexedConnection,
    /// The shards whose inbox is subscribed.
    shards: HashSet<Box<str>>,
}

impl Link {
    pub(super) fn new(address: String, client: Client, common: &Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            address: address.into(),
            client,
            common: Arc::clone(common),
            opening: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            functions: AtomicBool::new(false),
            pool: Pool::default(),
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

    /// Sends a command and waits for its answer. The outer error: nothing was sent.
    pub(super) async fn ask(self: &Arc<Self>, command: &Cmd) -> Result<Result<Value, RedisError>, Failure> {
        let live = self.connection().await?;
        Ok(self.ask_live(live, command).await)
    }

    /// Sends a command to a server that is connected, and waits for its answer: [`ask`](Self::ask)
    /// without what is hardly ever needed.
    pub(super) async fn ask_live(
        &self,
        (mut connection, number): (MultiplexedConnection, u64),
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        let silence = Silence(self);
        let answer = connection.send_packed_command(command).await.and_then(Value::extract_error);
        silence.over(&answer);
        self.give_up_if_broken(number, &answer);
        answer
    }

    /// Sends several commands at once and waits for all answers.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        commands: &Pipeline,
    ) -> Result<Result<Vec<Value>, RedisError>, Failure> {
        let (mut connection, number) = self.connection().await?;
        let silence = Silence(self);
        let answers = connection.req_packed_commands(commands, 0, commands.len()).await;
        silence.over(&answers);
        self.give_up_if_broken(number, &answers);
        Ok(answers)
    }

    /// Lends a connection that nobody else uses, for a transaction.
    pub(super) async fn lend(self: &Arc<Self>) -> Result<Lent, Failure> {
        let turn = self.pool.turn().await?;
        // First the one on which pushes are heard: its server was found fit, and what a transaction
        // gives to this client must not be told to nobody.
        let (_, number) = self.connection().await?;
        if let Some(connection) = self.pool.spare(number) {
            return Ok(Lent { link: Arc::clone(self), connection, number, is_new: false, turn });
        }
        let silence = self.await_answer();
        let made = tokio::time::timeout(CONNECT, super::pool::connect(&self.client)).await;
        let connection = match made {
            Ok(made) => {
                silence.over(&made);
                made
            }
            Err(_) => Err(Failure::unreachable(format!("no answer within {CONNECT:?}"))),
        };
        let connection = connection.map_err(|failure| self.named(failure))?;
        Ok(Lent { link: Arc::clone(self), connection, number, is_new: true, turn })
    }

    /// Takes a connection back that has nothing under way.
    pub(super) fn take_back(&self, connection: MultiplexedConnection, number: u64) {
        self.pool.put(connection, number);
    }

    /// Marks the server as silent unless an answer comes.
    pub(super) fn await_answer(&self) -> Silence<'_> {
        Silence(self)
    }

    /// Subscribes the inbox of a shard, unless that was done. The outer error: nothing was sent.
    pub(super) async fn hear_shard(self: &Arc<Self>, shard: &str) -> Result<Result<(), RedisError>, Failure> {
        let (mut connection, number) = self.connection().await?;
        if self.state().live.as_ref().is_some_and(|live| live.shards.contains(shard)) {
            return Ok(Ok(()));
        }
        let inbox = self.common.space.inbox(self.common.client, shard);
        let answer = connection.req_packed_command(redis::cmd("SSUBSCRIBE").arg(inbox)).await;
        let answer = answer.and_then(Value::extract_error);
        self.give_up_if_broken(number, &answer);
        if let Err(error) = answer {
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
    pub(super) fn lost_functions(&self) {
        self.functions.store(false, Ordering::Relaxed);
    }

    /// How many connections were made: another number, another connection.
    pub(super) fn number(&self) -> u64 {
        self.state().number
    }

    /// Notes a time that the server told in answer to what was asked at `asked`; fails if its clock jumped.
    pub(super) fn note_time(&self, server_micros: u64, asked: Moment) -> Result<(), Failure> {
        let answered = self.common.clock.now();
        self.state().clock.note(server_micros, asked, answered)
    }

    /// Whether there is a connection and answers come.
    pub(super) fn is_well(&self) -> bool {
        self.state().live.is_some() && !self.is_silent()
    }

    /// Whether a question was given up before its answer came, and none came since.
    pub(super) fn is_silent(&self) -> bool {
        self.silent_since.load(Ordering::Relaxed) != 0
    }

    /// Refuses while the server may have forgotten who holds what.
    pub(super) fn may_grant(&self) -> Result<(), Failure> {
        let mut state = self.state();
        let Some(until) = state.quiet_until else { return Ok(()) };
        let now = self.common.clock.now();
        if now >= until {
            state.quiet_until = None;
            return Ok(());
        }
        let left = until.since(now);
        Err(Failure::unreachable(if self.common.wary {
            format!(
                "{}: it was started a short time ago, may have forgotten who holds what, and has no vote for another {} s; with appendonly yes and appendfsync always it would have",
                self.address,
                left.as_secs() + 1
            )
        } else {
            format!(
                "{} was restarted and has forgotten who holds what: it grants nothing for another {left:?}; set appendonly yes to keep locks over a restart",
                self.address
            )
        }))
    }

    /// What the server's clock says at a moment of ours, about, in microseconds; nothing if it never told.
    pub(super) fn server_micros(&self, at: Moment) -> Option<u64> {
        self.state().clock.estimate(at)
    }

    /// For people.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The connection, made if there is none, and its number.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), Failure> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let _alone = self.opening.lock().await;
        match self.live() {
            Some(live) => Ok(live),
            None => self.open().await,
        }
    }

    /// The connection, if there is one, and its number.
    pub(super) fn live(&self) -> Option<(MultiplexedConnection, u64)> {
        let since = self.silent_since.load(Ordering::Relaxed);
        if since != 0 && self.common.clock.now().since(Moment::from_nanos(since)) > SILENT {
            let number = self.state().number;
            self.cut(number, "no answer came for too long");
        }
        let state = self.state();
        state.live.as_ref().map(|live| (live.connection.clone(), state.number))
    }

    async fn open(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), Failure> {
        let number = {
            let mut state = self.state();
            state.number += 1;
            state.number
        };
        let (connection, fitness, asked) = tokio::time::timeout(CONNECT, self.make(number))
            .await
            .unwrap_or_else(|_| Err(Failure::unreachable(format!("no answer within {CONNECT:?}"))))
            .map_err(|failure| self.named(failure))?;
        self.silent_since.store(0, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(time) = fitness.time.filter(|_| !state.clock.is_known()) {
            // The first time has nothing to be compared with.
            let _ = state.clock.note(time, asked, self.common.clock.now());
        }
        self.note(&mut state, fitness);
        state.live = Some(Live { connection: connection.clone(), shards: HashSet::new() });
        Ok((connection, number))
    }

    /// Says which server it was.
    fn named(&self, failure: Failure) -> Failure {
        Failure { reason: format!("{}: {}", self.address, failure.reason).into(), ..failure }
    }

    /// A connection, what its server says about itself, and when it was asked.
    async fn make(
        self: &Arc<Self>,
        number: u64,
    ) -> Result<(MultiplexedConnection, Fitness, Moment), Failure> {
        let link = Arc::downgrade(self);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                hear(&link, number, &push);
                Ok::<(), ()>(())
            });
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.map_err(|error| classify_connecting(&error))?;
        if !self.common.sharded {
            let inbox = self.common.space.inbox(self.common.client, "");
            connection.subscribe(inbox).await.map_err(|error| classify_connecting(&error))?;
        }
        self.functions.store(self.load_functions(&mut connection).await, Ordering::Relaxed);
        let syncs = self.common.wary && syncs_all(&mut connection).await;
        let asked = self.common.clock.now();
        let info: Result<String, _> = redis::cmd("INFO").query_async(&mut connection).await;
        let fitness = match info {
            Ok(info) => Fitness::read(&info, syncs),
            // A user with few rights may not ask: then nothing can be said.
            Err(error) if error.code() == Some("NOPERM") => Fitness::silent(),
            Err(error) => return Err(classify_connecting(&error)),
        };
        if fitness.is_replica {
            return Err(Failure::unreachable(
                "it is a replica, which cannot grant locks: name its master in the URL, or use redis+sentinel://",
            ));
        }
        fitness.check(self.common.eviction_allowed)?;
        Ok((connection, fitness, asked))
    }

    /// Loads the library of functions, if that is wanted. Says whether the server has it.
    async fn load_functions(&self, connection: &mut MultiplexedConnection) -> bool {
        match self.common.scripting {
            Scripting::Functions => true,
            Scripting::Scripts | Scripting::Off => false,
            Scripting::Any => {
                let mut load = redis::cmd("FUNCTION");
                load.arg("LOAD").arg(scripts::library());
                let loaded: Result<Value, _> = load.query_async(connection).await;
                // An older server has no functions, and not everybody may load them.
                loaded.is_ok() || loaded.is_err_and(|error| error.to_string().contains("already exists"))
            }
        }
    }

    /// Notes what a server says about itself. One that came back without its data may have forgotten
    /// a lock that somebody still relies on.
    fn note(&self, state: &mut State, fitness: Fitness) {
        let known = state.fitness.as_ref().map_or("", |before| before.run.as_str());
        let restarted = !known.is_empty() && known != fitness.run;
        let longest = Duration::from_nanos(self.common.longest_ttl.load(Ordering::Relaxed));
        let may_forget = if self.common.wary {
            !fitness.keeps_data || !fitness.syncs
        } else {
            restarted && !fitness.keeps_data
        };
        if may_forget && fitness.uptime < longest {
            state.quiet_until = Some(self.common.clock.now() + (longest - fitness.uptime));
        }
        state.fitness = Some(fitness);
    }

    /// A connection that broke is not used again.
    pub(super) fn give_up_if_broken<T>(&self, number: u64, answer: &Result<T, RedisError>) {
        if let Err(error) = answer
            && (error.is_unrecoverable_error() || error.code() == Some("READONLY"))
        {
            self.cut(number, &error.to_string());
        }
    }

    /// The connection with this number is over.
    pub(super) fn cut(&self, number: u64, why: &str) {
        let mut state = self.state();
        if state.number != number || state.live.take().is_none() {
            return;
        }
        drop(state);
        // Nobody listens any more only when the client is gone.
        let _ = self.common.heard.send(Heard::Cut(format!("{}: {why}", self.address).into()));
    }

    /// Whatever connection there is, is over.
    pub(super) fn cut_now(&self, why: &str) {
        let number = self.state().number;
        self.cut(number, why);
    }
}

/// Whether a server confirms nothing before it is on the disk. One that does not tell counts as one that does not.
async fn syncs_all(connection: &mut MultiplexedConnection) -> bool {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("appendfsync");
    let told: Result<HashMap<String, String>, _> = ask.query_async(connection).await;
    told.is_ok_and(|told| told.values().any(|policy| policy == "always"))
}

/// A question that waits for its answer. Dropped before it came, it marks the connection as silent.
pub(super) struct Silence<'a>(&'a Link);

impl Silence<'_> {
    pub(super) fn over<T>(self, _: &T) {
        self.0.silent_since.store(0, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        let now = nanos(self.0.common.clock.now().since(Moment::default())).max(1);
        let _ = self.0.silent_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What a server says unasked.
fn hear(link: &Weak<Link>, number: u64, push: &PushInfo) {
    let Some(link) = link.upgrade() else { return };
    match push.kind {
        PushKind::Message | PushKind::SMessage => {
            let Some(Value::BulkString(message)) = push.data.get(1) else { return };
            if let Some(news) = codec::news(&link.common.space, message) {
                // Nobody listens any more only when the client is gone.
                let _ = link.common.heard.send(Heard::News(news));
            }
        }
        PushKind::Disconnection => link.cut(number, "the connection was lost"),
        // A slot went to another server: what was heard here is heard there from now on.
        PushKind::SUnsubscribe => link.cut(number, "a slot was moved to another server"),
        _ => {}
    }
}
