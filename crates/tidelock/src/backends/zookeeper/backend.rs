//! Connecting, and what the store can do.

use std::sync::Arc;

use super::{
    ZookeeperConfig,
    errors::{NO_NODE, classify},
    fitness::Fitness,
    link::wire::Request,
    settings::ZookeeperSettings,
    store::{MIN_TTL, ZookeeperStore},
    wake::work,
};
use crate::{
    backend::{Abilities, ClientId, Failure, TokenGrade},
    backends::shared::{
        attend,
        served::{Client, Served},
    },
};

/// A client of ZooKeeper.
#[derive(Debug)]
pub struct ZookeeperBackend(Client<ZookeeperStore>);

impl ZookeeperBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) when a server refuses the login.
    pub async fn connect(config: ZookeeperConfig, client: ClientId) -> Result<Self, Failure> {
        Self::open(config.settings()?, client).await
    }

    pub(super) async fn open(config: ZookeeperSettings, client: ClientId) -> Result<Self, Failure> {
        let abilities = Abilities::new("zookeeper")
            .token(if config.hosts.len() > 1 { TokenGrade::Consensus } else { TokenGrade::SingleNode })
            .follow(Ok(()))
            .min_ttl(MIN_TTL)
            .renew_batch(1_000);
        let (store, wake) = ZookeeperStore::new(config);
        // The one task of the client besides those of its sessions. It ends with the store.
        let (work, pushes) = (Arc::clone(&store.work), Arc::clone(&store.pushes));
        drop(attend(work::run(Arc::downgrade(&store), work, pushes)));
        // A mistake in the URL is said now, not when the first lock is wanted.
        let session = store.link.any_session();
        let asked = session.ask(Request::exists(&store.config.root, false));
        // Sent with the first question, for the first lock.
        let epochs = store.prepare_epochs(&session);
        match asked.await {
            Ok(_) => {}
            Err(error) if error.is(NO_NODE) => {}
            Err(error) => return Err(classify(&error)),
        }
        store.learn_epochs(&session, epochs).await;
        let fitness = Fitness::ask(&store.config).await;
        store.fitness.get_or_init(|| fitness);
        Ok(Self(Client::new(store, wake, client, abilities)))
    }
}

impl Served for ZookeeperBackend {
    type Store = ZookeeperStore;

    fn client(&self) -> &Client<ZookeeperStore> {
        &self.0
    }
}
