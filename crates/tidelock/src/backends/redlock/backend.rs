//! The verbs, each one call on the store.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{
    RedlockConfig,
    store::{Ears, RedlockStore},
};
use crate::backend::{
    Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Leave, LockView, News, Scope,
    Standing, TokenGrade,
};
use crate::{backends::redis, name::Name};

/// A client of several Redis servers that vote.
#[derive(Debug)]
pub struct RedlockBackend {
    store: Arc<RedlockStore>,
    ears: Arc<Mutex<Ears>>,
    abilities: Abilities,
}

impl RedlockBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when fewer than a majority of the servers answer;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login, or that is not fit for locks.
    pub async fn connect(config: RedlockConfig, client: ClientId) -> Result<Self, Failure> {
        let (store, ears) = RedlockStore::connect(config, client).await?;
        let abilities = Abilities {
            store: "redlock",
            token: TokenGrade::TimeAssisted,
            push: true,
            fair: true,
            reentry: true,
            permits: Err(
                "majorities of different servers add up to more permits than there are, so none of them would notice",
            ),
            min_ttl: redis::MIN_TTL,
            renew_batch: 128,
        };
        Ok(Self { store, ears: Arc::new(Mutex::new(ears)), abilities })
    }
}

impl Backend for RedlockBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn concerns(&self) -> Vec<String> {
        self.store.concerns()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let (store, claim) = (Arc::clone(&self.store), Arc::clone(claim));
        Call::later(async move { store.enter(&claim, ask).await })
    }

    fn wait(&self) -> Call<News> {
        let (store, ears) = (Arc::clone(&self.store), Arc::clone(&self.ears));
        Call::later(async move { store.wait(&mut *ears.lock().await).await })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let (store, claims) = (Arc::clone(&self.store), claims.to_vec());
        Call::later(async move { store.renew(&claims.into()).await })
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<()> {
        let (store, name) = (Arc::clone(&self.store), name.clone());
        Call::later(async move { store.leave(&name, id, why).await })
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let (store, scope) = (Arc::clone(&self.store), scope.clone());
        Call::later(async move { store.look(&scope).await })
    }
}
