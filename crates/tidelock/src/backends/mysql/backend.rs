//! The verbs, each one call on the store.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{
    MysqlConfig,
    link::Link,
    store::{MIN_TTL, MysqlStore, RENEW_BATCH},
    wake::Listener,
};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Leave, LockView, News,
        Scope, Standing, TokenGrade,
    },
    backends::unanswered::Unanswered,
    name::Name,
};

/// A client of MySQL or MariaDB.
#[derive(Debug)]
pub struct MysqlBackend {
    store: Arc<MysqlStore>,
    listener: Arc<Mutex<Listener>>,
    abilities: Abilities,
}

impl MysqlBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when the server does not answer;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login, or that is not fit for locks.
    pub async fn connect(config: MysqlConfig, client: ClientId) -> Result<Self, Failure> {
        let store =
            Arc::new(MysqlStore { link: Link::new(config), client, unanswered: Unanswered::default() });
        // A mistake in the URL is said now, not when the first lock is wanted.
        store.link.call("CALL tidelock_version()", Vec::new()).await?;
        let abilities = Abilities {
            store: "mysql",
            token: TokenGrade::TimeAssisted,
            push: true,
            fair: true,
            reentry: true,
            permits: Ok(()),
            min_ttl: MIN_TTL,
            renew_batch: RENEW_BATCH,
        };
        Ok(Self { store, listener: Arc::new(Mutex::new(Listener::new())), abilities })
    }
}

impl Backend for MysqlBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn concerns(&self) -> Vec<String> {
        self.store.link.concerns()
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
