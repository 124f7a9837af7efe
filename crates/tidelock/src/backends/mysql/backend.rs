//! Connecting, and what the store can do.

use std::sync::Arc;

use super::{
    MysqlConfig,
    link::Link,
    settings::MysqlSettings,
    store::{MIN_TTL, MysqlStore, RENEW_BATCH},
    wake::Wake,
};
use crate::{
    backend::{Abilities, ClientId, Failure, TokenGrade},
    backends::shared::{
        served::{Client, Served},
        unanswered::Unanswered,
    },
};

/// A client of MySQL or MariaDB.
#[derive(Debug)]
pub struct MysqlBackend(Client<MysqlStore>);

impl MysqlBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when the server does not answer;
    /// [`Denied`](crate::backend::FailureKind::Denied) when it refuses the login or is not fit for locks.
    pub async fn connect(config: MysqlConfig, client: ClientId) -> Result<Self, Failure> {
        Self::open(config.settings()?, client).await
    }

    pub(super) async fn open(config: MysqlSettings, client: ClientId) -> Result<Self, Failure> {
        let store =
            Arc::new(MysqlStore { link: Link::new(config), client, unanswered: Unanswered::default() });
        // A mistake in the URL is said now, not when the first lock is wanted.
        store.link.call("CALL tidelock_version()", Vec::new()).await?;
        let abilities =
            Abilities::new("mysql").token(TokenGrade::TimeAssisted).min_ttl(MIN_TTL).renew_batch(RENEW_BATCH);
        Ok(Self(Client::new(store, Wake::new(), client, abilities)))
    }
}

impl Served for MysqlBackend {
    type Store = MysqlStore;

    fn client(&self) -> &Client<MysqlStore> {
        &self.0
    }
}
