//! Connecting, and what the store can do.

use std::sync::Arc;

use super::{
    PostgresConfig,
    claims::Claims,
    link::Link,
    settings::PostgresSettings,
    store::{ADVISORY, MIN_TTL, PostgresStore, RENEW_BATCH, ROWS},
    together::together,
    wake::Wake,
};
use crate::{
    backend::{Abilities, ClientId, Failure, Follows, TokenGrade},
    backends::shared::{
        following::Following,
        news,
        renewals::Renewals,
        served::{Client, Served},
        unanswered::Unanswered,
    },
};

/// A client of PostgreSQL.
#[derive(Debug)]
pub struct PostgresBackend(Client<PostgresStore>);

impl PostgresBackend {
    /// Connects a client, and creates the schema if it does not exist.
    ///
    /// Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server that can grant answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) when a server refuses the login or is not fit for
    /// locks.
    pub async fn connect(config: PostgresConfig, client: ClientId) -> Result<Self, Failure> {
        Self::open(config.settings()?, client).await
    }

    pub(super) async fn open(config: PostgresSettings, client: ClientId) -> Result<Self, Failure> {
        let (tell, told) = news::channel();
        let follows = Follows::new();
        let (heard, following) = Following::new(follows.clone());
        let advisory = config.advisory;
        let link = Link::new(config, client, if advisory { &ADVISORY } else { &ROWS }, tell, heard);
        // A mistake in the URL is said now, not when the first lock is wanted.
        link.connection().await?;
        let is_pooled = link.fitness().is_some_and(|fitness| fitness.is_pooled);
        let abilities = Abilities::new("postgres")
            .token(TokenGrade::TimeAssisted)
            .push(!is_pooled)
            // Another process has another session.
            .reentry(!advisory)
            .follow(if is_pooled { Err("nothing is told through a pooler") } else { Ok(()) })
            .permits(if advisory { Err("advisory locks have no permits") } else { Ok(()) })
            .min_ttl(MIN_TTL)
            .renew_batch(RENEW_BATCH);
        let claims = Claims::new(is_pooled, advisory);
        // An advisory lock belongs to a session, and so does what a claim that has one is answered.
        let together = (!advisory).then(|| together(&link));
        let renewals = Renewals::default();
        let (follows, following) = if is_pooled { (None, None) } else { (Some(follows), Some(following)) };
        let unanswered = Unanswered::default();
        let store = Arc::new(PostgresStore { link, unanswered, claims, together, renewals, follows });
        Ok(Self(Client::new(store, Wake::new(told, following), client, abilities)))
    }
}

impl Served for PostgresBackend {
    type Store = PostgresStore;

    fn client(&self) -> &Client<PostgresStore> {
        &self.0
    }
}
