//! The verbs, each one call on the store.

use std::sync::Arc;

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::{
    RedisConfig, codec,
    config::Scripting,
    errors::{classify, is_unknown},
    link::{Common, Heard},
    pool::CONNECTIONS,
    servers::{Form, Servers},
    store::{MIN_TTL, RedisStore},
};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, FailureKind, Leave,
        LockView, News, Scope, Standing, TokenGrade,
    },
    name::Name,
};

/// A client of Redis.
#[derive(Debug)]
pub struct RedisBackend {
    store: Arc<RedisStore>,
    heard: Arc<Mutex<UnboundedReceiver<Heard>>>,
    abilities: Abilities,
}

impl RedisBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login, or that is not fit for locks.
    pub async fn connect(config: RedisConfig, client: ClientId) -> Result<Self, Failure> {
        let (tell, heard) = unbounded_channel();
        let config = Arc::new(config);
        let common = Arc::new(Common::new(&config, client, tell));
        let servers = Servers::new(&config, &common)?;
        let abilities = Abilities {
            store: "redis",
            token: TokenGrade::TimeAssisted,
            push: true,
            fair: true,
            reentry: true,
            permits: Ok(()),
            min_ttl: MIN_TTL,
            // By scripts each takes a few microseconds, in which the server does nothing else; by
            // transactions it takes two round trips on one of a few connections.
            renew_batch: if config.scripting == Scripting::Off { 4 * CONNECTIONS } else { 128 },
        };
        let store = Arc::new(RedisStore { config, common, servers });
        // A mistake in the URL is said now, not when the first lock is wanted. Of several servers one has
        // to answer: the others may be about to be replaced.
        let links = store.servers.all().await?;
        let connected = futures_util::future::join_all(links.iter().map(|link| link.connection())).await;
        if !connected.iter().any(Result::is_ok)
            || connected
                .iter()
                .any(|link| link.as_ref().is_err_and(|failure| failure.kind == FailureKind::Denied))
        {
            connected.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        Ok(Self { store, heard: Arc::new(Mutex::new(heard)), abilities })
    }
}

impl Backend for RedisBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn concerns(&self) -> Vec<String> {
        self.store.servers.concerns()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        self.store.note_ttl(claim.ttl);
        let (store, claim) = (Arc::clone(&self.store), Arc::clone(claim));
        let Some((link, live)) = store.at_hand() else {
            return Call::later(async move { store.enter(&claim, ask, None).await });
        };
        let command = store.enter_command(&claim, ask, None, Form::plain(&link));
        Call::later(async move {
            match link.ask_live(live, &command).await {
                Ok(answer) => codec::entered(&claim, &answer),
                Err(error) if is_unknown(&error) => Box::pin(store.enter(&claim, ask, None)).await,
                Err(error) => Err(classify(&error)),
            }
        })
    }

    fn wait(&self) -> Call<News> {
        let (store, heard) = (Arc::clone(&self.store), Arc::clone(&self.heard));
        Call::later(async move { store.wait(&mut *heard.lock().await).await })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let (store, claims) = (Arc::clone(&self.store), claims.to_vec());
        Call::later(async move { store.renew(&claims, None).await })
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<()> {
        let (store, name) = (Arc::clone(&self.store), name.clone());
        let Some((link, live)) = store.at_hand() else {
            return Call::later(async move { store.leave(&name, id, &why, None).await });
        };
        let command = store.leave_command(&name, id, &why, None, Form::plain(&link));
        Call::later(async move {
            match link.ask_live(live, &command).await {
                Ok(_) => Ok(()),
                Err(error) if is_unknown(&error) => Box::pin(store.leave(&name, id, &why, None)).await,
                Err(error) => Err(classify(&error)),
            }
        })
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let (store, scope) = (Arc::clone(&self.store), scope.clone());
        Call::later(async move { store.look(&scope).await })
    }
}
