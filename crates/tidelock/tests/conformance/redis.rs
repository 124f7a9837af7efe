//! Redis: one server, Sentinels and a cluster, by scripts, functions and transactions. Each is started by
//! the first trial and shared by all.

use std::{pin::Pin, sync::Arc, time::Duration};

use test_servers::{Cluster, Redis, Sentinel, Server};
use tidelock::{
    backend::{Backend, ClientId},
    backends::redis::{RedisBackend, RedisConfig},
    testing::{Clock, suite::Store},
};

use crate::{
    SHORT_TTL,
    served::{Served, client, number},
    shared::Shared,
};

static ONE: Shared<Server> = Shared::new();
static SENTINEL: Shared<Sentinel> = Shared::new();
static CLUSTER: Shared<Cluster> = Shared::new();
static WITH_FUNCTIONS: Shared<Server> = Shared::new();

fn shared_one() -> Arc<Server> {
    ONE.get(|| Redis::new().patient().start().expect("a server"))
}

fn shared_cluster() -> Arc<Cluster> {
    CLUSTER.get(|| Redis::new().patient().start_cluster().expect("a cluster"))
}

pub(crate) fn one() -> Arc<dyn Store> {
    let server = shared_one();
    open("redis", server.url(), "", Some(Keys::One(Arc::clone(&server))))
}

pub(crate) fn sentinel() -> Arc<dyn Store> {
    open(
        "redis_sentinel",
        SENTINEL.get(|| Redis::new().patient().start_sentinel().expect("Sentinels")).url(),
        "",
        None,
    )
}

pub(crate) fn cluster() -> Arc<dyn Store> {
    let cluster = shared_cluster();
    open("redis_cluster", cluster.url(), "", Some(Keys::Cluster(Arc::clone(&cluster))))
}

pub(crate) fn functions() -> Arc<dyn Store> {
    let server = WITH_FUNCTIONS.get(|| {
        let server = Redis::new().patient().start().expect("a server");
        let library = RedisConfig::function_library();
        server.command(&["FUNCTION", "LOAD", "REPLACE", &library]).expect("a library that loads");
        server
    });
    open("redis_functions", server.url(), "&scripting=functions", Some(Keys::One(Arc::clone(&server))))
}

pub(crate) fn off() -> Arc<dyn Store> {
    let server = shared_one();
    open("redis_off", server.url(), "&scripting=off", Some(Keys::One(Arc::clone(&server))))
}

pub(crate) fn off_cluster() -> Arc<dyn Store> {
    let cluster = shared_cluster();
    open("redis_off_cluster", cluster.url(), "&scripting=off", Some(Keys::Cluster(Arc::clone(&cluster))))
}

/// With the hash that Redisson takes as well.
pub(crate) fn redisson() -> Arc<dyn Store> {
    let server = shared_one();
    let options = format!("&mode=redisson&lock_key=redisson-{}/{{name}}", number());
    open("redis_redisson", server.url(), &options, Some(Keys::One(Arc::clone(&server))))
}

/// Stops whatever was started.
pub(crate) fn stop() {
    ONE.stop();
    SENTINEL.stop();
    CLUSTER.stop();
    WITH_FUNCTIONS.stop();
}

fn open(name: &'static str, url: &str, options: &str, keys: Option<Keys>) -> Arc<dyn Store> {
    let prefix = format!("trial-{}:", number());
    let served = Served {
        name,
        url: format!("{url}?prefix={prefix}{options}"),
        short_ttl: SHORT_TTL,
        connect: |url, id| {
            let config = RedisConfig::from_url(&url).expect("a URL");
            client(RedisBackend::connect(config, id))
        },
    };
    Arc::new(Walked { served, prefix, keys })
}

/// Where the keys of a trial are.
#[derive(Debug)]
enum Keys {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

/// A store whose keys are walked when its trial has ended.
#[derive(Debug)]
struct Walked {
    served: Served,
    prefix: String,
    keys: Option<Keys>,
}

impl Store for Walked {
    fn name(&self) -> &'static str {
        self.served.name()
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        self.served.client(id)
    }

    fn clock(&self) -> Clock {
        self.served.clock()
    }

    fn short_ttl(&self) -> Duration {
        self.served.short_ttl()
    }
}

impl Drop for Walked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        match &self.keys {
            Some(Keys::One(server)) => walk(server, &self.prefix),
            Some(Keys::Cluster(cluster)) => {
                cluster.masters().into_iter().for_each(|server| walk(server, &self.prefix));
            }
            None => {}
        }
    }
}

/// Every key of a trial is the line of a lock, says how long it is where it can be long, and expires.
fn walk(server: &Server, prefix: &str) {
    let mut administrator = server.administrator().expect("a server");
    let keys = administrator.call(&["KEYS", &format!("{prefix}*")]).expect("keys").unwrap_or_default();
    for key in keys.lines() {
        let mut ask = |command: &[&str]| administrator.call(command).expect("an answer").unwrap_or_default();
        let left: i64 = ask(&["PTTL", key]).parse().expect("a number");
        if left == -2 {
            continue;
        }
        assert!(left > 0, "{key} never expires");
        assert!(key.starts_with(&format!("{prefix}{{")) && key.ends_with('}'), "{key} is no line of a lock");
        let head = ask(&["GET", key]);
        match head.get(..1) {
            Some("I") => assert_eq!(head.len(), 17, "{key}: {head}"),
            Some("S" | "Q" | "T") => {}
            Some("V") => {
                assert_eq!(head.get(124..134).and_then(|n| n.parse().ok()), Some(head.len()), "{key}")
            }
            _ => panic!("{key} is no line: {head}"),
        }
    }
}
