//! Which server a lock's commands go to.

use std::sync::Arc;

use redis::{Cmd, RedisError, Value};

use super::{
    cluster::Cluster,
    config::{Host, Place, RedisConfig},
    errors::classify_connecting,
    link::{Common, Link},
    sentinel::Sentinel,
};
use crate::backend::Failure;

/// The servers of an installation.
#[derive(Debug)]
pub(super) enum Servers {
    One(Arc<Link>),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

/// What a command is to be made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'a> {
    /// Whether all keys of a lock are given, or its head only.
    pub(super) all_keys: bool,
    /// In a cluster, what the channels of clients end with.
    pub(super) shard: Option<&'a str>,
    /// Whether the server knows the library of functions.
    pub(super) functions: bool,
}

impl Form<'_> {
    /// The form where there are no slots.
    pub(super) fn plain(link: &Link) -> Self {
        Self { all_keys: false, shard: None, functions: link.has_functions() }
    }
}

/// An answer of a server, or its error; the outer failure: nothing was sent.
pub(super) type Answer = Result<Result<Value, RedisError>, Failure>;

impl Servers {
    pub(super) fn new(config: &Arc<RedisConfig>, common: &Arc<Common>) -> Result<Self, Failure> {
        let open = |client: Result<_, RedisError>| client.map_err(|error| classify_connecting(&error));
        Ok(match &config.servers {
            Place::One(host) => Self::One(Link::new(at(host), open(config.client(host))?, common)),
            Place::Socket(path) => {
                Self::One(Link::new(path.clone(), open(config.client_of_socket(path))?, common))
            }
            Place::Sentinel(hosts, master) => Self::Sentinel(Sentinel::new(config, common, hosts, master)),
            Place::Cluster(seeds) => Self::Cluster(Cluster::new(config, common, seeds)),
        })
    }

    /// Connects, so that pushes are heard.
    pub(super) async fn listen(&self) -> Result<(), Failure> {
        match self {
            Self::One(link) => link.connection().await.map(drop),
            Self::Sentinel(sentinel) => sentinel.listen().await,
            Self::Cluster(cluster) => cluster.listen().await,
        }
    }

    /// Asks the server that has a key.
    pub(super) async fn ask(&self, key: &str, make: &(dyn Fn(Form<'_>) -> Cmd + Send + Sync)) -> Answer {
        match self {
            Self::One(link) => {
                // Connected first: only then it is known what the server knows.
                link.connection().await?;
                link.ask(&make(Form::plain(link))).await
            }
            Self::Sentinel(sentinel) => {
                let link = sentinel.link().await?;
                link.ask(&make(Form::plain(&link))).await
            }
            Self::Cluster(cluster) => cluster.ask(key, make).await,
        }
    }

    /// A link to each server that has locks.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Link>>, Failure> {
        match self {
            Self::One(link) => Ok(vec![Arc::clone(link)]),
            Self::Sentinel(sentinel) => Ok(vec![sentinel.link().await?]),
            Self::Cluster(cluster) => cluster.all().await,
        }
    }

    /// What should be mended about the servers that are connected.
    pub(super) fn concerns(&self) -> Vec<String> {
        let links = match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Sentinel(sentinel) => sentinel.current().into_iter().collect(),
            Self::Cluster(cluster) => cluster.current(),
        };
        let mut concerns: Vec<_> =
            links.iter().filter_map(|link| link.fitness()).flat_map(|fit| fit.concerns()).collect();
        concerns.sort();
        concerns.dedup();
        concerns
    }

    /// The link to the server that has a key, and what the channels of clients end with there.
    pub(super) async fn place(&self, key: &str) -> Result<(Arc<Link>, Box<str>), Failure> {
        match self {
            Self::Cluster(cluster) => cluster.place(key).await,
            _ => Ok((self.link(key).await?, "".into())),
        }
    }

    /// After a failure at a server: whether another one has the key now.
    pub(super) async fn is_elsewhere(&self, key: &str, link: &Arc<Link>, error: Option<&RedisError>) -> bool {
        match self {
            Self::Cluster(cluster) => cluster.is_elsewhere(key, link, error).await,
            _ => false,
        }
    }

    /// The link to the server that has a key.
    pub(super) async fn link(&self, key: &str) -> Result<Arc<Link>, Failure> {
        match self {
            Self::One(link) => Ok(Arc::clone(link)),
            Self::Sentinel(sentinel) => sentinel.link().await,
            Self::Cluster(cluster) => cluster.link(key).await,
        }
    }
}

/// A host and its port, as people write it.
pub(super) fn at((host, port): &Host) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
