//! The connections of a client, and which of them a lock's commands go to.
//!
//! | file | what |
//! |---|---|
//! | `server` | one server: its connection, and what is known of it |
//! | `open` | opening that connection: the server is checked and subscribed to |
//! | `lazy` | a stream that is read now and then |
//! | `pool` | connections to one server of which each serves one transaction at a time |
//! | `sentinel` | the master that Sentinels name |
//! | `cluster` | the members that slots are spread over |
//! | `slots` | in which slot a key is, and which channels are in the same |

mod cluster;
mod lazy;
mod open;
mod pool;
mod sentinel;
mod server;
mod slots;

use std::sync::{Arc, atomic::AtomicU64};

use redis::{Cmd, RedisError, Value};

use self::{cluster::Cluster, sentinel::Sentinel};
pub(crate) use self::{
    pool::{CONNECTIONS, Lent},
    server::{Live, Server},
};
use super::{
    codec::Space,
    errors::classify_connecting,
    scripts::Library,
    settings::{Address, Host, RedisSettings, Scripting},
    wake::Tell,
};
use crate::{
    backend::{ClientId, Failure},
    backends::shared::address::host_and_port,
    clock::Clock,
};

/// What the connections of a client have in common.
#[derive(Debug)]
pub(crate) struct Common {
    pub(super) space: Space,
    pub(super) client: ClientId,
    pub(super) tell: Tell,
    pub(super) eviction_allowed: bool,
    pub(super) scripting: Scripting,
    /// The functions that it calls.
    pub(super) library: &'static Library,
    /// Whether clients have an inbox for each slot instead of one.
    pub(super) sharded: bool,
    pub(crate) clock: Clock,
    /// The longest lease that this client has asked for, in nanoseconds.
    pub(crate) longest_ttl: AtomicU64,
    /// Whether a server that is younger than that grants nothing, though nobody here saw it restart, unless
    /// it syncs whatever it writes.
    pub(crate) wary: bool,
}

impl Common {
    pub(super) fn new(
        config: &RedisSettings,
        library: &'static Library,
        client: ClientId,
        tell: Tell,
    ) -> Self {
        Self {
            space: Space::new(&config.prefix),
            client,
            tell,
            eviction_allowed: config.eviction_allowed,
            scripting: config.scripting,
            library,
            sharded: matches!(config.address, Address::Cluster(_)),
            clock: Clock::machine(),
            longest_ttl: AtomicU64::default(),
            wary: false,
        }
    }
}

/// The way to the servers of an installation.
#[derive(Debug)]
pub(crate) enum Link {
    One(Arc<Server>),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

/// What a command is to be made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    /// In a cluster, what the channels of clients end with.
    pub(super) shard: Option<&'a str>,
    /// Whether the server knows the library of functions.
    pub(super) functions: bool,
}

impl Form<'_> {
    /// The form where there are no slots.
    pub(super) fn plain(server: &Server) -> Self {
        Self { shard: None, functions: server.has_functions() }
    }
}

/// An answer of a server, or its error; the outer failure: nothing was sent.
pub(super) type Answer = Result<Result<Value, RedisError>, Failure>;

impl Link {
    pub(crate) fn new(config: &Arc<RedisSettings>, common: &Arc<Common>) -> Result<Self, Failure> {
        let open = |client: Result<_, RedisError>| client.map_err(|error| classify_connecting(&error));
        Ok(match &config.address {
            Address::One(host) => Self::One(Server::new(at(host), open(config.client(host))?, common)),
            Address::Socket(path) => {
                Self::One(Server::new(path.clone(), open(config.client_of_socket(path))?, common))
            }
            Address::Sentinel(hosts, master) => Self::Sentinel(Sentinel::new(config, common, hosts, master)),
            Address::Cluster(seeds) => Self::Cluster(Cluster::new(config, common, seeds)),
        })
    }

    /// Connects, so that pushes are heard.
    pub(super) async fn listen(&self) -> Result<(), Failure> {
        match self {
            Self::One(server) => server.connection().await.map(drop),
            Self::Sentinel(sentinel) => sentinel.listen().await,
            Self::Cluster(cluster) => cluster.listen().await,
        }
    }

    /// Asks the server that has a key.
    pub(super) async fn ask(&self, key: &str, make: &(dyn Fn(Form<'_>) -> Cmd + Send + Sync)) -> Answer {
        match self {
            Self::One(server) => {
                // Connected first: only then it is known what the server knows.
                server.connection().await?;
                server.ask(&make(Form::plain(server))).await
            }
            Self::Sentinel(sentinel) => {
                let server = sentinel.server().await?;
                server.ask(&make(Form::plain(&server))).await
            }
            Self::Cluster(cluster) => cluster.ask(key, make).await,
        }
    }

    /// The one server that has all locks, if it is known at once.
    pub(super) fn at_hand(&self) -> Option<Arc<Server>> {
        match self {
            Self::One(server) => Some(Arc::clone(server)),
            Self::Sentinel(sentinel) => sentinel.connected(),
            Self::Cluster(_) => None,
        }
    }

    /// Each server that has locks.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Server>>, Failure> {
        match self {
            Self::One(server) => Ok(vec![Arc::clone(server)]),
            Self::Sentinel(sentinel) => Ok(vec![sentinel.server().await?]),
            Self::Cluster(cluster) => cluster.all().await,
        }
    }

    /// Each server that has locks, as far as others say by now: slots move, and replicas take over.
    pub(super) async fn all_now(&self) -> Result<Vec<Arc<Server>>, Failure> {
        match self {
            Self::Cluster(cluster) => cluster.all_now().await,
            _ => self.all().await,
        }
    }

    /// Problems found in the servers that are connected.
    pub(crate) fn concerns(&self) -> Vec<String> {
        let servers = match self {
            Self::One(server) => vec![Arc::clone(server)],
            Self::Sentinel(sentinel) => sentinel.current().into_iter().collect(),
            Self::Cluster(cluster) => cluster.current(),
        };
        let mut concerns: Vec<_> = servers.iter().flat_map(|server| server.concerns()).collect();
        concerns.sort();
        concerns.dedup();
        concerns
    }

    /// The server that has a key, and what the channels of clients end with there.
    pub(super) async fn server_and_shard(&self, key: &str) -> Result<(Arc<Server>, Box<str>), Failure> {
        match self {
            Self::Cluster(cluster) => cluster.server_and_shard(key).await,
            _ => Ok((self.server(key).await?, "".into())),
        }
    }

    /// After a failure at a server: whether another one has the key now.
    pub(super) async fn is_elsewhere(
        &self,
        key: &str,
        server: &Arc<Server>,
        error: Option<&RedisError>,
    ) -> bool {
        match self {
            Self::Cluster(cluster) => cluster.is_elsewhere(key, server, error).await,
            _ => false,
        }
    }

    /// The server that has a key.
    pub(super) async fn server(&self, key: &str) -> Result<Arc<Server>, Failure> {
        match self {
            Self::One(server) => Ok(Arc::clone(server)),
            Self::Sentinel(sentinel) => sentinel.server().await,
            Self::Cluster(cluster) => cluster.server(key).await,
        }
    }
}

/// Whether two keys are in one slot of a cluster.
pub(super) fn in_one_slot(one: &str, other: &str) -> bool {
    slots::slot(one) == slots::slot(other)
}

/// A host and its port, as people write it.
fn at((host, port): &Host) -> String {
    host_and_port(host, *port)
}
