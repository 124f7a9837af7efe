//! Opening the connection to a server: the server is checked, and asked to tell what happens.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, aio::MultiplexedConnection};

use super::{
    super::{
        errors::classify_connecting,
        fitness::{Fitness, skips_scripts, syncs_all, time_of},
        library,
        quiet::Quiet,
        wake::hear,
    },
    Live, Server,
    lazy::Lazy,
    server::{State, Subscribed, count_jump},
};
use crate::{
    backend::Failure,
    backends::shared::{attend::attend, failures::no_answer_within},
    clock::Moment,
};

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(3);

impl Server {
    /// The connection, made if there is none, and its number.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Live, Failure> {
        match self.live() {
            Some(live) => Ok(live),
            // In a box: every call would have to carry it.
            None => Box::pin(self.opening.get(|| self.live(), self.open())).await,
        }
    }

    async fn open(self: &Arc<Self>) -> Result<Live, Failure> {
        let number = {
            let mut state = self.state();
            state.number += 1;
            state.number
        };
        let (connection, fitness, asked) = tokio::time::timeout(CONNECT, self.make(number))
            .await
            .unwrap_or_else(|_| Err(no_answer_within(CONNECT)))
            .map_err(|failure| self.named(failure))?;
        self.silence.end();
        let mut state = self.state();
        let answered = self.common.clock.now();
        let jumped = fitness.time.is_some_and(|time| state.clock.shows_jump(time, asked, answered));
        if let Some(time) = fitness.time.filter(|_| self.common.wary || !state.clock.is_known()) {
            // The first time has nothing to be compared with; among servers that vote it is compared with theirs.
            let _ = state.clock.note(time, asked, answered).inspect_err(count_jump);
        }
        self.note(&mut state, fitness, jumped);
        state.live = Some(Subscribed { connection: connection.clone(), shards: HashSet::new() });
        Ok((connection, number))
    }

    /// A connection, what its server says about itself, and when it was asked.
    async fn make(
        self: &Arc<Self>,
        number: u64,
    ) -> Result<(MultiplexedConnection, Fitness, Moment), Failure> {
        let server = Arc::downgrade(self);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                hear(&server, number, &push);
                Ok::<(), ()>(())
            });
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.map_err(|error| classify_connecting(&error))?;
        if !self.common.sharded {
            let inbox = self.common.space.inbox(self.common.client, "");
            connection.subscribe(inbox).await.map_err(|error| classify_connecting(&error))?;
        }
        let scripting = self.common.scripting;
        let loaded = library::prepare(self.common.library, scripting, &mut connection).await?;
        self.functions.store(loaded.may_be_called(scripting), Ordering::Relaxed);
        self.state().loaded = Some(loaded);
        let syncs = self.common.wary && syncs_all(&mut connection).await;
        let asked = self.common.clock.now();
        let info: Result<String, _> = redis::cmd("INFO").query_async(&mut connection).await;
        let mut fitness = match info {
            Ok(info) => Fitness::read(&info, syncs),
            // A user with few rights may not ask: then nothing can be said.
            Err(error) if error.code() == Some("NOPERM") => Fitness::silent(),
            Err(error) => return Err(classify_connecting(&error)),
        };
        if fitness.time.is_none() {
            // INFO does not tell it on older servers, or is not allowed. TIME is, if scripts are.
            fitness.time =
                redis::cmd("TIME").query_async(&mut connection).await.ok().and_then(|told| time_of(&told));
        }
        fitness.skips_scripts = fitness.keeps_data && skips_scripts(&mut connection).await;
        if fitness.is_replica {
            return Err(Failure::unreachable(
                "it is a replica, which cannot grant locks: name its master in the URL, or use redis+sentinel://",
            ));
        }
        fitness.check(self.common.eviction_allowed)?;
        Ok((connection, fitness, asked))
    }

    /// A connection of its own, on which something else is heard at once.
    pub(crate) async fn another_connection(
        &self,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Failure> {
        self.heard_by(hear, false).await
    }

    /// The same for news that are many, and can wait.
    pub(crate) async fn lazy_connection(
        &self,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Failure> {
        self.heard_by(hear, true).await
    }

    async fn heard_by(
        &self,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
        can_wait: bool,
    ) -> Result<MultiplexedConnection, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(CONNECT))
            .set_push_sender(move |push: PushInfo| {
                hear(push);
                Ok::<(), ()>(())
            });
        let info = self.client.get_connection_info();
        let connecting = async {
            let stream = if can_wait { Lazy::connect(info.addr()).await? } else { None };
            let Some(stream) = stream else {
                return self.client.get_multiplexed_async_connection_with_config(&config).await;
            };
            let settings = info.redis_settings();
            let (connection, driver) =
                MultiplexedConnection::new_with_config(settings, stream, config).await?;
            // It ends with the connection.
            attend(driver);
            Ok(connection)
        };
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(connected) => connected.map_err(|error| classify_connecting(&error)),
            Err(_) => Err(no_answer_within(CONNECT)),
        }
    }

    /// Notes what a server says about itself. One that came back without its data may have forgotten
    /// a lock that somebody still relies on.
    fn note(&self, state: &mut State, fitness: Fitness, clock_jumped: bool) {
        let known = state.fitness.as_ref().map_or("", |before| before.run.as_str());
        let restarted = !known.is_empty() && known != fitness.run;
        let longest = Duration::from_nanos(self.common.longest_ttl.load(Ordering::Relaxed));
        let now = self.common.clock.now();
        if self.common.wary {
            // Nothing that the server says about its age can be relied on: its uptime follows its wall clock.
            state.quiet.begin_unknown(now, longest);
        } else if restarted && !fitness.keeps_data {
            // If its clock jumped as well, so did its uptime.
            let uptime = if clock_jumped { Duration::ZERO } else { fitness.uptime };
            if uptime < longest {
                state.quiet.begin(now + (longest - uptime), Quiet::Forgot);
            }
        }
        state.fitness = Some(fitness);
    }
}
