//! The verbs, each one call on the store.

use std::{sync::Arc, time::Duration};

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::{
    ZookeeperConfig,
    attendant::attend,
    connection,
    errors::{NO_NODE, classify},
    store::{MIN_TTL, ZkStore},
    wire::Request,
};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, Entered, Failure, Leave, LockView, News, Scope,
        Standing, TokenGrade,
    },
    backends,
    name::Name,
};

/// How long a server may take to say what it is.
const STATUS: Duration = Duration::from_millis(500);

/// A client of ZooKeeper.
#[derive(Debug)]
pub struct ZookeeperBackend {
    store: Arc<ZkStore>,
    news: Arc<Mutex<UnboundedReceiver<News>>>,
    abilities: Abilities,
    /// What a server says about itself.
    status: Option<String>,
}

impl ZookeeperBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login.
    pub async fn connect(config: ZookeeperConfig) -> Result<Self, Failure> {
        let (tell, news) = unbounded_channel();
        let (todo, queue) = unbounded_channel();
        let abilities = Abilities {
            store: "zookeeper",
            token: if config.hosts.len() > 1 { TokenGrade::Consensus } else { TokenGrade::SingleNode },
            push: true,
            fair: true,
            reentry: true,
            permits: Ok(()),
            min_ttl: MIN_TTL,
            renew_batch: 1_000,
        };
        let store = ZkStore::new(config, tell, todo);
        drop(backends::attend(attend(Arc::downgrade(&store), queue)));
        // A mistake in the URL is said now, not when the first lock is wanted.
        match store.any_session().ask(Request::exists(&store.config.root, false)).await {
            Ok(_) => {}
            Err(error) if error.is(NO_NODE) => {}
            Err(error) => return Err(classify(&error)),
        }
        let status = connection::status(&store.config, &store.config.hosts[0]);
        let status = tokio::time::timeout(STATUS, status).await.ok().flatten();
        Ok(Self { store, news: Arc::new(Mutex::new(news)), abilities, status })
    }
}

impl Backend for ZookeeperBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn concerns(&self) -> Vec<String> {
        let config = &self.store.config;
        let mut concerns = Vec::new();
        if self.status.as_ref().is_some_and(|status| status.contains("Mode: standalone")) {
            concerns.push(
                "ZooKeeper runs alone: while it is down there are no locks; use an ensemble of three"
                    .to_owned(),
            );
        } else if config.hosts.len() == 1 {
            concerns.push(
                "the URL names one server of ZooKeeper: name all, or locks are lost with that one".to_owned(),
            );
        }
        if config.has_open_nodes() {
            concerns.push(
                "anybody may delete the nodes of locks: give the URL a login, or set its option acl"
                    .to_owned(),
            );
        }
        if config.login.as_ref().is_some_and(|login| !login.sasl) && config.tls.is_none() {
            concerns.push("the password is sent in the clear: use zookeepers://".to_owned());
        }
        for session in self.store.all_sessions() {
            let (asked, agreed) = (session.asked, session.timeout());
            if agreed < asked {
                concerns.push(format!(
                    "the server ends sessions after {agreed:?} where {asked:?} was asked for: leases are shorter; raise maxSessionTimeout or use a shorter ttl"
                ));
            } else if agreed > asked {
                concerns.push(format!(
                    "the server ends sessions after {agreed:?} where {asked:?} was asked for: locks of clients that die stay longer; lower minSessionTimeout or use a longer ttl"
                ));
            }
        }
        concerns
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let (store, claim) = (Arc::clone(&self.store), Arc::clone(claim));
        Call::later(async move { store.enter(&claim, ask).await })
    }

    fn wait(&self) -> Call<News> {
        let news = Arc::clone(&self.news);
        Call::later(async move {
            let news = news.lock().await.recv().await;
            news.ok_or_else(|| Failure::unreachable("nobody can tell anything any more"))
        })
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
