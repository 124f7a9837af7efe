//! Redis: one server, Sentinels and a cluster, by scripts, functions and transactions. Each is started by
//! the first trial and shared by all.

use std::sync::Arc;

use test_servers::{Cluster, Redis, Sentinel, Server};
use tidelock::{
    backends::redis::{RedisBackend, RedisConfig},
    testing::suite::Store,
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
    open("redis", shared_one().url(), "")
}

pub(crate) fn sentinel() -> Arc<dyn Store> {
    open(
        "redis_sentinel",
        SENTINEL.get(|| Redis::new().patient().start_sentinel().expect("Sentinels")).url(),
        "",
    )
}

pub(crate) fn cluster() -> Arc<dyn Store> {
    open("redis_cluster", shared_cluster().url(), "")
}

pub(crate) fn functions() -> Arc<dyn Store> {
    let server = WITH_FUNCTIONS.get(|| {
        let server = Redis::new().patient().start().expect("a server");
        let library = RedisConfig::function_library();
        server.command(&["FUNCTION", "LOAD", "REPLACE", &library]).expect("a library that loads");
        server
    });
    open("redis_functions", server.url(), "&scripting=functions")
}

pub(crate) fn off() -> Arc<dyn Store> {
    open("redis_off", shared_one().url(), "&scripting=off")
}

pub(crate) fn off_cluster() -> Arc<dyn Store> {
    open("redis_off_cluster", shared_cluster().url(), "&scripting=off")
}

/// Stops whatever was started.
pub(crate) fn stop() {
    ONE.stop();
    SENTINEL.stop();
    CLUSTER.stop();
    WITH_FUNCTIONS.stop();
}

fn open(name: &'static str, url: &str, options: &str) -> Arc<dyn Store> {
    Arc::new(Served {
        name,
        url: format!("{url}?prefix=trial-{}:{options}", number()),
        short_ttl: SHORT_TTL,
        connect: |url, id| {
            let config = RedisConfig::from_url(&url).expect("a URL");
            client(RedisBackend::connect(config, id))
        },
    })
}
