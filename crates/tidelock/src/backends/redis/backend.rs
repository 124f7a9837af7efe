//! Connecting, and what the store can do.

use std::sync::Arc;

use super::{
    RedisConfig,
    follow::{Listening, Tracking},
    link::{CONNECTIONS, Common},
    scripts::{FLEET, LOCKS},
    settings::RedisSettings,
    settings::Scripting,
    store::{MIN_TTL, RedisStore},
    wake::Wake,
};
use crate::{
    backend::{Abilities, ClientId, Failure, FailureKind, TokenGrade},
    backends::shared::served::{Client, Served},
};

/// A client of Redis.
#[derive(Debug)]
pub struct RedisBackend(Client<RedisStore>);

impl RedisBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) when a server refuses the login or is not fit for
    /// locks.
    pub async fn connect(config: RedisConfig, client: ClientId) -> Result<Self, Failure> {
        Self::open(config.settings()?, client).await
    }

    pub(super) async fn open(config: RedisSettings, client: ClientId) -> Result<Self, Failure> {
        let abilities = Abilities::new("redis")
            .token(TokenGrade::TimeAssisted)
            .min_ttl(MIN_TTL)
            // By scripts each takes a few microseconds, in which the server does nothing else; by
            // transactions it takes two round trips on one of a few connections.
            .renew_batch(if config.scripting == Scripting::Off { 4 * CONNECTIONS } else { 128 });
        let abilities = match &config.mode {
            None => abilities.follow(Ok(())),
            Some(_) => abilities
                .follow(Err(
                    "with mode=redisson and mode=setnx a part of each lock is kept by other programs",
                ))
                .reentry(false)
                .permits(Err(
                    "with mode=redisson and mode=setnx other programs take the lock, and none of them counts",
                )),
        };
        let (tell, wake) = Wake::new();
        let library = if config.mode.is_some() { &FLEET } else { &LOCKS };
        let common = Common::new(&config, library, client, tell);
        let is_shared = config.mode.is_some();
        let mut store = RedisStore::new(config, common)?;
        let (tracking, following) = Tracking::new();
        store.tracking = (!is_shared).then_some(tracking);
        let store = Arc::new(store);
        // A mistake in the URL is said now, not when the first lock is wanted. Of several servers one has
        // to answer: the others may be about to be replaced.
        let servers = store.link.all().await?;
        let connected =
            futures_util::future::join_all(servers.iter().map(|server| server.connection())).await;
        let is_denied = |failure: &Failure| failure.kind == FailureKind::Denied;
        if !connected.iter().any(Result::is_ok)
            || connected.iter().any(|server| server.as_ref().is_err_and(is_denied))
        {
            connected.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        Ok(Self(Client::new(store, Listening::new(wake, following), client, abilities)))
    }
}

impl Served for RedisBackend {
    type Store = RedisStore;

    fn client(&self) -> &Client<RedisStore> {
        &self.0
    }
}
