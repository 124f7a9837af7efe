//! Connecting, and what the store can do.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use super::{
    MysqlConfig,
    codec::column,
    link::Link,
    settings::MysqlSettings,
    store::{MIN_TTL, MysqlStore, RENEW_BATCH},
    together::together,
    wake::Wake,
};
use crate::{
    backend::{Abilities, ClientId, Failure, Follows, TokenGrade},
    backends::shared::{
        following::Following,
        kept::Kept,
        renewals::Renewals,
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
        let link = Arc::new(Link::new(config));
        let together = together(&link, client);
        let renewals = Renewals::default();
        // A mistake in the URL is said now, not when the first lock is wanted.
        link.call("CALL tidelock_version()", Vec::new()).await?;
        let kept = kept(&link).await;
        let follows = Follows::new();
        let (heard, following) = Following::new(follows.clone());
        let unanswered = Unanswered::default();
        let followed = AtomicU64::new(0);
        let store =
            Arc::new(MysqlStore { link, kept, client, unanswered, together, renewals, follows, followed });
        let abilities = Abilities::new("mysql")
            .token(TokenGrade::TimeAssisted)
            .follow(Ok(()))
            .min_ttl(MIN_TTL)
            .renew_batch(RENEW_BATCH);
        Ok(Self(Client::new(store, Wake::new(heard, following), client, abilities)))
    }
}

/// What the database keeps of names. Nothing else depends on it.
async fn kept(link: &Link) -> Option<Kept> {
    let rows = link.call("CALL tidelock_kept()", Vec::new()).await.ok()?;
    let number = |index| column::<u64>(rows.first()?, index).ok();
    let days = |index| Some(Duration::from_secs(86_400) * u32::try_from(number(index)?).ok()?);
    let remembered = days(2)? + Duration::from_secs(86_400);
    Some(Kept { bytes: number(0)?, names: number(1), remembered, oldest: days(3) })
}

impl Served for MysqlBackend {
    type Store = MysqlStore;

    fn client(&self) -> &Client<MysqlStore> {
        &self.0
    }
}
