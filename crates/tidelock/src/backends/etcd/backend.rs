//! The verbs, each one call on the store.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Mutex, Notify};

use super::{
    EtcdConfig, codec::Space, leases::Leases, servers::Servers, store::EtcdStore, table::Table,
    wake::Listener,
};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Leave, LockView, News,
        Scope, Standing, TokenGrade,
    },
    clock::Clock,
    name::Name,
};

/// A client of etcd.
#[derive(Debug)]
pub struct EtcdBackend {
    store: Arc<EtcdStore>,
    listener: Arc<Mutex<Listener>>,
    abilities: Abilities,
}

impl EtcdBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no member answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login or the certificate.
    pub async fn connect(config: EtcdConfig, _client: ClientId) -> Result<Self, Failure> {
        let servers = Arc::new(Servers::new(&config)?);
        // A mistake in the URL is said now, not when the first lock is wanted.
        servers.connection().await?;
        let clock = Clock::machine();
        let listener = Listener::new(servers.in_use());
        let store = EtcdStore {
            space: Space::new(&config.prefix),
            leases: Leases::new(Arc::clone(&servers), clock.clone()),
            servers,
            clock,
            table: std::sync::Mutex::new(Table::default()),
            stirred: Notify::new(),
        };
        let abilities = Abilities {
            store: "etcd",
            token: TokenGrade::Consensus,
            push: true,
            fair: true,
            reentry: true,
            permits: Ok(()),
            // Leases are counted in whole seconds.
            min_ttl: Duration::from_secs(1),
            // One keep-alive for all of them, and a hundredth as many transactions that read.
            renew_batch: 1_000,
        };
        Ok(Self { store: Arc::new(store), listener: Arc::new(Mutex::new(listener)), abilities })
    }
}

impl Backend for EtcdBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn concerns(&self) -> Vec<String> {
        self.store.servers.concerns()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let (store, claim) = (Arc::clone(&self.store), Arc::clone(claim));
        Call::later(async move { store.enter(&claim, ask).await })
    }

    fn wait(&self) -> Call<News> {
        let (store, listener) = (Arc::clone(&self.store), Arc::clone(&self.listener));
        Call::later(async move { listener.lock().await.wait(&store).await })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let (store, claims) = (Arc::clone(&self.store), claims.to_vec());
        Call::later(async move { store.renew(&claims).await })
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<()> {
        let (store, name) = (Arc::clone(&self.store), name.clone());
        Call::later(async move { store.leave(&name, id, &why).await })
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let (store, scope) = (Arc::clone(&self.store), scope.clone());
        Call::later(async move { store.look(&scope).await })
    }
}
