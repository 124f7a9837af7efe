//! Connecting, and what the store can do.

use std::{sync::Arc, time::Duration};

use super::{EtcdConfig, link::Link, settings::EtcdSettings, store::EtcdStore, wake::Wake};
use crate::{
    backend::{Abilities, ClientId, Failure, TokenGrade},
    backends::shared::served::{Client, Served},
};

/// A client of etcd.
#[derive(Debug)]
pub struct EtcdBackend(Client<EtcdStore>);

impl EtcdBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no member answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) when a member refuses the login or the certificate.
    pub async fn connect(config: EtcdConfig, client: ClientId) -> Result<Self, Failure> {
        Self::open(config.settings()?, client).await
    }

    pub(super) async fn open(config: EtcdSettings, client: ClientId) -> Result<Self, Failure> {
        let link = Arc::new(Link::new(&config)?);
        // A mistake in the URL is said now, not when the first lock is wanted.
        link.connection().await?;
        let in_use = link.in_use();
        let store = Arc::new(EtcdStore::new(link, &config.prefix));
        let wake = Wake::new(in_use, &store.clock);
        let abilities = Abilities::new("etcd")
            .token(TokenGrade::Consensus)
            .follow(Ok(()))
            // Leases are counted in whole seconds.
            .min_ttl(Duration::from_secs(1))
            // One keep-alive for all of them, and a hundredth as many transactions that read.
            .renew_batch(1_000);
        Ok(Self(Client::new(store, wake, client, abilities)))
    }
}

impl Served for EtcdBackend {
    type Store = EtcdStore;

    fn client(&self) -> &Client<EtcdStore> {
        &self.0
    }
}
