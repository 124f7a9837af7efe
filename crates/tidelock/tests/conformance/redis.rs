//! Redis: one server, Sentinels and a cluster, by scripts, functions and transactions. Each is started by
//! the first trial and shared by all.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use test_servers::{Cluster, Redis, Sentinel, Server};
use tidelock::{
    backend::{Backend, ClientId},
    backends::redis::{RedisBackend, RedisConfig},
    clock::Clock,
    testing::suite::Store,
};

use crate::SHORT_TTL;

/// What was started. Stopped at the end of the run.
#[derive(Debug, Default)]
struct Started {
    one: Option<Server>,
    sentinel: Option<Sentinel>,
    cluster: Option<Cluster>,
    with_functions: Option<Server>,
}

static STARTED: Mutex<Started> =
    Mutex::new(Started { one: None, sentinel: None, cluster: None, with_functions: None });

fn url<T>(
    kind: impl FnOnce(&mut Started) -> &mut Option<T>,
    start: impl FnOnce(&Redis) -> T,
    url: impl FnOnce(&T) -> &str,
) -> String {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    url(kind(&mut started).get_or_insert_with(|| start(&Redis::new().patient()))).to_owned()
}

fn one_url() -> String {
    url(|all| &mut all.one, |redis| redis.start().expect("a server"), Server::url)
}

fn cluster_url() -> String {
    url(|all| &mut all.cluster, |redis| redis.start_cluster().expect("a cluster"), Cluster::url)
}

pub(crate) fn one() -> Arc<dyn Store> {
    Installation::open("redis", &one_url(), "")
}

pub(crate) fn sentinel() -> Arc<dyn Store> {
    let start = |redis: &Redis| redis.start_sentinel().expect("Sentinels");
    Installation::open("redis_sentinel", &url(|all| &mut all.sentinel, start, Sentinel::url), "")
}

pub(crate) fn cluster() -> Arc<dyn Store> {
    Installation::open("redis_cluster", &cluster_url(), "")
}

pub(crate) fn functions() -> Arc<dyn Store> {
    let start = |redis: &Redis| {
        let server = redis.start().expect("a server");
        let library = RedisConfig::function_library();
        server.command(&["FUNCTION", "LOAD", "REPLACE", &library]).expect("a library that loads");
        server
    };
    let url = url(|all| &mut all.with_functions, start, Server::url);
    Installation::open("redis_functions", &url, "&scripting=functions")
}

pub(crate) fn off() -> Arc<dyn Store> {
    Installation::open("redis_off", &one_url(), "&scripting=off")
}

pub(crate) fn off_cluster() -> Arc<dyn Store> {
    Installation::open("redis_off_cluster", &cluster_url(), "&scripting=off")
}

/// Stops whatever was started.
pub(crate) fn stop() {
    *STARTED.lock().unwrap_or_else(PoisonError::into_inner) = Started::default();
}

/// Keys of its own for each trial.
#[derive(Debug)]
struct Installation {
    name: &'static str,
    url: String,
}

impl Installation {
    fn open(name: &'static str, url: &str, options: &str) -> Arc<dyn Store> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { name, url: format!("{url}?prefix=trial-{number}:{options}") })
    }
}

impl Store for Installation {
    fn name(&self) -> &'static str {
        self.name
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        let url = self.url.clone();
        Box::pin(async move {
            let config = RedisConfig::from_url(&url).expect("a URL");
            let backend = RedisBackend::connect(config, id).await.expect("a server that answers");
            Arc::new(backend) as Arc<dyn Backend>
        })
    }

    fn clock(&self) -> Clock {
        Clock::machine()
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }
}
