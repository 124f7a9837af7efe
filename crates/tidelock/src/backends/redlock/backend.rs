//! Connecting, and what the store can do.

use super::{RedlockConfig, settings::RedlockSettings, store::RedlockStore};
use crate::{
    backend::{Abilities, ClientId, Failure, TokenGrade},
    backends::{
        redis,
        shared::served::{Client, Served},
    },
};

/// A client of several Redis servers that vote.
#[derive(Debug)]
pub struct RedlockBackend(Client<RedlockStore>);

impl RedlockBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when fewer than a majority of the servers
    /// answer; [`Denied`](crate::backend::FailureKind::Denied) when a server refuses the login or is not fit
    /// for locks.
    pub async fn connect(config: RedlockConfig, client: ClientId) -> Result<Self, Failure> {
        Self::open(config.settings()?, client).await
    }

    pub(super) async fn open(config: RedlockSettings, client: ClientId) -> Result<Self, Failure> {
        let shares = config.servers.iter().any(redis::RedisSettings::has_mode);
        let (store, wake) = RedlockStore::connect(config, client).await?;
        let abilities = Abilities::new("redlock")
            .token(TokenGrade::TimeAssisted)
            .permits(Err(
                "majorities of different servers add up to more permits than there are, so none of them would notice",
            ))
            .follow(Ok(()))
            .min_ttl(redis::MIN_TTL)
            // An owner that came in from elsewhere would have no entry among those of other programs.
            .reentry(!shares)
            .renew_batch(128);
        Ok(Self(Client::new(store, wake, client, abilities)))
    }
}

impl Served for RedlockBackend {
    type Store = RedlockStore;

    fn client(&self) -> &Client<RedlockStore> {
        &self.0
    }
}
