//! The verbs, each one call on the store: immediate if the shard is free, later if it is not.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::{FileConfig, session::Session, store::FileStore, wake::Wake};
use crate::{
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Failure, Follow, FollowAll, Leave,
        Left, LockView, News, Scope, Standing, TokenGrade,
    },
    model::name::Name,
};

/// A client of the files in a directory.
#[derive(Debug)]
pub struct FileBackend {
    store: Arc<FileStore>,
    client: ClientId,
    wake: Arc<Mutex<Wake>>,
    abilities: Abilities,
}

impl FileBackend {
    /// Connects a client. Must be called within a tokio runtime that has I/O enabled.
    ///
    /// # Errors
    /// [`Denied`](crate::backend::FailureKind::Denied) when the directory cannot be created, does not belong
    /// to this user, is not on a local file system, or has a path too long for sockets; also when the boot id
    /// cannot be read, or a time namespace shifts the clock of this process.
    pub fn connect(config: &FileConfig, client: ClientId) -> Result<Self, Failure> {
        let boot = config.boot()?;
        let directory = config.prepare()?;
        let (session, doorbell, life) = Session::open(&directory, client)?;
        let store = Arc::new(FileStore::new(&directory, session, client, boot));
        let wake = Wake::new(doorbell, life)
            .map_err(|error| Failure::unreachable(format!("cannot listen at a socket: {error}")))?;
        let abilities = Abilities::new("file")
            .token(TokenGrade::TimeAssisted)
            .follow(if cfg!(target_os = "linux") { Ok(()) } else { Err("the kernel has no inotify") })
            .min_ttl(Duration::from_millis(50))
            .ends_with_process(true)
            // Each is a change of its own; together they take less than a millisecond.
            .renew_batch(64);
        Ok(Self { store, client, wake: Arc::new(Mutex::new(wake)), abilities })
    }
}

impl Backend for FileBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn client_id(&self) -> ClientId {
        self.client
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        match self.store.try_enter(claim, ask) {
            Ok(Some(answer)) => Call::now(Ok(answer)),
            Err(failure) => Call::now(Err(failure)),
            Ok(None) => {
                let (store, claim) = (Arc::clone(&self.store), Arc::clone(claim));
                Call::later(
                    async move { store.until_free(&claim.name, || store.try_enter(&claim, ask)).await },
                )
            }
        }
    }

    fn wait(&self) -> Call<News> {
        let (store, wake) = (Arc::clone(&self.store), Arc::clone(&self.wake));
        Call::later(async move { wake.lock().await.next(&store).await })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let (store, claims) = (Arc::clone(&self.store), claims.to_vec());
        Call::later(async move {
            let mut standings = Vec::with_capacity(claims.len());
            for claim in &claims {
                standings.push(store.until_free(&claim.name, || store.try_renew(claim)).await?);
            }
            Ok(standings)
        })
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        match self.store.try_leave(name, id, &why) {
            Ok(Some(left)) => Call::now(Ok(left)),
            Err(failure) => Call::now(Err(failure)),
            Ok(None) => {
                let (store, name) = (Arc::clone(&self.store), name.clone());
                Call::later(async move { store.until_free(&name, || store.try_leave(&name, id, &why)).await })
            }
        }
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        let (store, scope) = (Arc::clone(&self.store), scope.clone());
        Call::later(async move { store.look(&scope).await })
    }

    fn follow(&self, name: &Name) -> Option<Follow> {
        self.abilities.follow.ok().and_then(|()| self.store.follows.follow(name))
    }

    fn follow_all(&self) -> Option<FollowAll> {
        let store = Arc::clone(&self.store);
        self.abilities.follow.ok().map(|()| FollowAll::new(|told| store.hear_all(told)))
    }
}
