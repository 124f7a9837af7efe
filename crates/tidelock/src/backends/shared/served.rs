//! Stores behind a network: each verb of the waist is one async call on the store of a client.

use std::{fmt, sync::Arc};

use tokio::sync::Mutex;

use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Follow, FollowAll,
        Follows, Leave, Left, LockView, News, Scope, Standing,
    },
    model::name::Name,
};

/// An answer of a store.
pub(crate) trait Answer<T>: Future<Output = Result<T, Failure>> + Send {}

impl<T, F: Future<Output = Result<T, Failure>> + Send> Answer<T> for F {}

/// The verbs of a store that answers later. [`Backend`] says what they mean.
pub(crate) trait Verbs: fmt::Debug + Send + Sync + 'static {
    /// What is kept between two calls of `wait`.
    type Wake: fmt::Debug + Send + 'static;

    fn concerns(&self) -> Vec<String> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> impl Answer<Entered> + 'static;

    fn wait(self: Arc<Self>, wake: &mut Self::Wake) -> impl Answer<News>;

    fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> impl Answer<Vec<Standing>> + 'static;

    fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> impl Answer<Left> + 'static;

    fn look(self: Arc<Self>, scope: Scope) -> impl Answer<Vec<LockView>> + 'static;

    /// The names that are followed, if the store can tell of changes.
    fn follows(&self) -> Option<&Follows> {
        None
    }

    /// All names, followed, if the store can tell of changes of any.
    fn follow_all(self: Arc<Self>) -> Option<FollowAll> {
        None
    }
}

/// A client of such a store.
#[derive(Debug)]
pub(crate) struct Client<S: Verbs> {
    pub(crate) store: Arc<S>,
    wake: Arc<Mutex<S::Wake>>,
    id: ClientId,
    abilities: Abilities,
}

impl<S: Verbs> Client<S> {
    pub(crate) fn new(store: Arc<S>, wake: S::Wake, id: ClientId, abilities: Abilities) -> Self {
        Self { store, wake: Arc::new(Mutex::new(wake)), id, abilities }
    }
}

/// A public backend that is such a client and nothing more.
pub(crate) trait Served: fmt::Debug + Send + Sync + 'static {
    type Store: Verbs;

    fn client(&self) -> &Client<Self::Store>;
}

impl<B: Served> Backend for B {
    fn abilities(&self) -> &Abilities {
        &self.client().abilities
    }

    fn client_id(&self) -> ClientId {
        self.client().id
    }

    fn concerns(&self) -> Vec<String> {
        self.client().store.concerns()
    }

    fn notes(&self) -> Vec<String> {
        self.client().store.notes()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        Call::later(Arc::clone(&self.client().store).enter(Arc::clone(claim), ask))
    }

    fn wait(&self) -> Call<News> {
        let (store, wake) = (Arc::clone(&self.client().store), Arc::clone(&self.client().wake));
        Call::later(async move { store.wait(&mut *wake.lock().await).await })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        Call::later(Arc::clone(&self.client().store).renew(claims.to_vec()))
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        Call::later(Arc::clone(&self.client().store).leave(name.clone(), id, why))
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        Call::later(Arc::clone(&self.client().store).look(scope.clone()))
    }
    fn follow(&self, name: &Name) -> Option<Follow> {
        self.client().store.follows()?.follow(name)
    }

    fn follow_all(&self) -> Option<FollowAll> {
        Arc::clone(&self.client().store).follow_all()
    }
}
