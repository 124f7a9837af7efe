//! Connecting, what the store can do, and the verbs: each one call on the store.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Mutex, mpsc};

use super::store::MemoryStore;
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Follow, Leave, Left,
        LockView, News, Scope, Standing, TokenGrade,
    },
    model::name::Name,
};

/// A client of a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryBackend {
    store: Arc<MemoryStore>,
    client: ClientId,
    inbox: Arc<Mutex<mpsc::UnboundedReceiver<News>>>,
    abilities: Abilities,
}

impl MemoryBackend {
    /// Connects a client.
    pub fn connect(store: Arc<MemoryStore>, client: ClientId) -> Self {
        let inbox = Arc::new(Mutex::new(store.open_inbox(client)));
        let abilities = Abilities::new("memory")
            .token(TokenGrade::Process)
            .follow(Ok(()))
            .min_ttl(Duration::from_millis(20))
            .renew_batch(1_000);
        Self { store, client, inbox, abilities }
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.store.close_inbox(self.client);
    }
}

impl Backend for MemoryBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn client_id(&self) -> ClientId {
        self.client
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        Call::now(Ok(self.store.enter(claim, ask)))
    }

    fn wait(&self) -> Call<News> {
        let inbox = Arc::clone(&self.inbox);
        Call::later(async move {
            let news = inbox.lock().await.recv().await;
            news.ok_or_else(|| Failure::unreachable("the store was dropped"))
        })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        Call::now(Ok(claims.iter().map(|claim| self.store.renew(claim)).collect()))
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        Call::now(Ok(self.store.leave(name, id, why)))
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        Call::now(Ok(self.store.look(scope)))
    }
    fn follow(&self, name: &Name) -> Option<Follow> {
        self.store.follow(name)
    }
}
