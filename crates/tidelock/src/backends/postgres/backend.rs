//! The verbs, each one call on the store.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc::unbounded_channel};

use super::{
    PostgresConfig,
    link::Link,
    store::{ADVISORY, Ear, MIN_TTL, PostgresStore, ROWS},
    taken::Taken,
    wake::Waiting,
};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Leave, LockView, News,
        Scope, Standing, TokenGrade,
    },
    backends::unanswered::Unanswered,
    name::Name,
};

/// A client of PostgreSQL.
#[derive(Debug)]
pub struct PostgresBackend {
    store: Arc<PostgresStore>,
    ear: Arc<Mutex<Ear>>,
    abilities: Abilities,
}

impl PostgresBackend {
    /// Connects a client, and makes the schema if it is not there. Must be called within a tokio runtime that has I/O
    /// and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers that can grant;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login, or that is not fit for locks.
    pub async fn connect(config: PostgresConfig, client: ClientId) -> Result<Self, Failure> {
        let (tell, heard) = unbounded_channel();
        let advisory = config.advisory;
        let link = Link::new(config, client, if advisory { &ADVISORY } else { &ROWS }, tell);
        // A mistake in the URL is said now, not when the first lock is wanted.
        link.connection().await?;
        let is_pooled = link.fitness().is_some_and(|fitness| fitness.is_pooled);
        let abilities = Abilities {
            store: "postgres",
            token: TokenGrade::TimeAssisted,
            push: !is_pooled,
            fair: true,
            // Another process has another session.
            reentry: !advisory,
            permits: if advisory { Err("advisory locks have no permits") } else { Ok(()) },
            min_ttl: MIN_TTL,
            // Each takes some ten microseconds, in which its row is locked.
            renew_batch: 128,
        };
        let waiting = is_pooled.then(Waiting::default);
        let taken = advisory.then(Taken::default);
        let store = Arc::new(PostgresStore { link, unanswered: Unanswered::default(), waiting, taken });
        Ok(Self { store, ear: Arc::new(Mutex::new(Ear::new(heard))), abilities })
    }
}

impl Backend for PostgresBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn concerns(&self) -> Vec<String> {
        self.store.link.fitness().map(|fitness| fitness.concerns()).unwrap_or_default()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let (store, claim) = (Arc::clone(&self.store), Arc::clone(claim));
        Call::later(async move { store.enter(&claim, ask).await })
    }

    fn wait(&self) -> Call<News> {
        let (store, ear) = (Arc::clone(&self.store), Arc::clone(&self.ear));
        Call::later(async move { store.wait(&mut *ear.lock().await).await })
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
