//! ZooKeeper without locks, through the same connection: for tests that break things, and as what locks are
//! measured against.

use std::{sync::Arc, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    codec::paths,
    config::ZookeeperConfig,
    errors::{NO_NODE, NODE_EXISTS, ZkError, classify},
    link::{
        connection,
        session::{Session, Watcher},
        wire::{self, Change, Mode, Request, Stat},
    },
    settings::ZookeeperSettings,
};
use crate::backend::Failure;

/// What ZooKeeper's servers make the passwords of sessions from.
const SECRET: i64 = 0xB341_5C00;

const TIMEOUT_MS: i32 = 30_000;

/// A session that keeps no locks.
#[derive(Debug)]
pub struct Bare {
    config: Arc<ZookeeperSettings>,
    session: Arc<Session>,
}

/// Watches nothing.
struct NoWatcher;

impl Watcher for NoWatcher {
    fn watched(&self, _: u64, _: &str, _: Option<Stat>, _: u64) {}
    fn changed(&self, _: u64, _: Change, _: &str) {}
    fn resumed(&self, _: u64) {}
    fn expired(&self, _: u64) {}
}

impl Bare {
    /// A session on the servers of a URL.
    ///
    /// # Errors
    /// A wrong URL, or a server that does not let the client in.
    pub async fn connect(url: &str) -> Result<Self, crate::Error> {
        Self::connect_for(url, Duration::from_secs(30)).await
    }

    /// As [`connect`](Self::connect), with a session that ends after this time without a sign of life.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_for(url: &str, timeout: Duration) -> Result<Self, crate::Error> {
        let failed = |failure| crate::Error::failure("zookeeper", None, &failure);
        let config = Arc::new(ZookeeperConfig::from_url(url)?.settings().map_err(failed)?);
        let session = Session::new(0, Arc::clone(&config), timeout, 0, Arc::new(NoWatcher));
        let bare = Self { config, session };
        let answer = bare.ask(Request::sync("/")).await;
        answer.map_err(failed)?;
        Ok(bare)
    }

    /// The path of a lock's node.
    pub fn path(&self, name: &crate::Name) -> String {
        paths::path(&self.config.root, name)
    }

    /// Makes an ephemeral sequential node, and gives its path.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn create(&self, front: &str) -> Result<String, Failure> {
        let request = Request::create(front, b"", &self.config.acl, Mode::EphemeralSequential);
        let made = self.ask(request).await?;
        wire::created(&made).map(|(path, _)| path).map_err(|error| classify(&error))
    }

    /// Makes a node that stays, unless it is there.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn create_container(&self, path: &str) -> Result<(), Failure> {
        match self.session.ask(Request::create_container(path, &self.config.acl)).await {
            Err(error) if !error.is(NODE_EXISTS) => Err(classify(&error)),
            _ => Ok(()),
        }
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.ask(Request::delete(path, -1)).await.map(drop)
    }

    /// The names of a node's children; of one that is not there, none.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn children(&self, path: &str) -> Result<Vec<String>, Failure> {
        self.ask(Request::sync(path)).await?;
        match self.session.ask(Request::children(path, false)).await {
            Err(error) if error.is(NO_NODE) => Ok(Vec::new()),
            children => {
                children.and_then(|children| wire::children(&children)).map_err(|error| classify(&error))
            }
        }
    }

    /// Whether a node is there.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn exists(&self, path: &str) -> Result<bool, Failure> {
        match self.session.ask(Request::exists(path, false)).await {
            Err(error) if error.is(NO_NODE) => Ok(false),
            stat => stat.map(|_| true).map_err(|error| classify(&error)),
        }
    }

    /// Ends the session that a node belongs to, as an administrator would.
    ///
    /// # Errors
    /// Whatever the server says.
    pub async fn end_session_of(&self, path: &str) -> Result<(), Failure> {
        // The client that has the session may take it back before it is ended: then once more.
        loop {
            let stat = match self.session.ask(Request::exists(path, false)).await {
                Err(error) if error.is(NO_NODE) => return Ok(()),
                stat => stat.and_then(|stat| wire::stat(&stat)).map_err(|error| classify(&error))?,
            };
            // An error means that it was taken back.
            let _ = self.end_session(stat.ephemeral_owner).await;
            self.ask(Request::sync(path)).await?;
        }
    }

    async fn end_session(&self, owner: i64) -> Result<(), ZkError> {
        let mut stream = connection::connect(&self.config, &self.config.hosts[0]).await?;
        // At once with the greeting: its client takes the session back as soon as it notices.
        let mut out = wire::connect(0, TIMEOUT_MS, owner, &password(owner));
        Request::close().put(1, &mut out);
        let lost = |error: std::io::Error| ZkError::Lost(error.to_string().into());
        stream.write_all(&out).await.map_err(lost)?;
        stream.flush().await.map_err(lost)?;
        // The server ends the connection when the session is over.
        stream.read_to_end(&mut out).await.map(drop).map_err(lost)
    }

    async fn ask(&self, request: Request) -> Result<Vec<u8>, Failure> {
        self.session.ask(request).await.map_err(|error| classify(&error))
    }
}

/// The password of a session, as servers make it: Java's generator of random numbers, seeded with the id.
fn password(session: i64) -> Vec<u8> {
    const FACTOR: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut seed = (session ^ SECRET ^ FACTOR) & MASK;
    let mut password = Vec::with_capacity(16);
    for _ in 0..4 {
        seed = seed.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        password.extend_from_slice(&((seed >> 16) as i32).to_le_bytes());
    }
    password
}
