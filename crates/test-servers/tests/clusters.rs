//! Stores of several servers: they form, survive the death of a member, and come back.

#![allow(clippy::unwrap_used, reason = "the helpers of the tests fail the test, as the tests do")]

mod common;

use std::net::SocketAddr;

use common::{eventually, leaves_nothing};
use test_servers::{Cluster, Etcd, Redis, RedisConnection, Server, Zookeeper};

fn nodes(cluster: &Cluster) -> Vec<&Server> {
    cluster.nodes().iter().collect()
}

/// Kills `victim`; the others must serve `read` and `write`; then all are killed and come back.
#[track_caller]
fn survives_one_death_and_then_all(cluster: Cluster, victim: usize, read: &[&str], write: &[&str]) {
    let survivor = &cluster.nodes()[(victim + 1) % cluster.nodes().len()];
    cluster.nodes()[victim].kill().unwrap();
    eventually("two of three serve", || survivor.ping().is_ok() && survivor.ask(write).is_ok());
    assert!(survivor.ask(read).unwrap().contains("hello"));
    cluster.nodes()[victim].restart().unwrap();

    cluster.restart().unwrap();
    for node in cluster.nodes() {
        let answer = node.ask(read).unwrap();
        assert!(answer.contains("hello"), "{answer:?} of {node:?}");
    }
    leaves_nothing(cluster, nodes);
}

#[test]
fn an_etcd_cluster_survives_its_leader_and_a_full_stop() {
    let cluster = Etcd::new().start_cluster().unwrap();
    assert_eq!(cluster.addrs().len(), 3);
    assert_eq!(cluster.url().matches(',').count(), 2);
    cluster.nodes()[0].ask(&["put", "key", "hello"]).unwrap();
    let leader = |node: &Server| {
        let status = node.ask(&["endpoint", "status", "-w", "fields"]).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.contains(name));
            line.unwrap().rsplit_once(':').unwrap().1.trim().to_owned()
        };
        field("\"MemberID\"") == field("\"Leader\"")
    };
    let victim = cluster.nodes().iter().position(leader).unwrap();
    let write = ["put", "other", "value"];
    survives_one_death_and_then_all(cluster, victim, &["get", "key"], &write);
}

#[test]
fn a_zookeeper_ensemble_survives_a_member_and_a_full_stop() {
    let cluster = Zookeeper::new().start_ensemble().unwrap();
    assert_eq!(cluster.addrs().len(), 3);
    cluster.nodes()[0].ask(&["create", "/key", "hello"]).unwrap();
    let write = ["set", "/key", "hello again"];
    // The one with the highest number is leader when all start at once.
    survives_one_death_and_then_all(cluster, 2, &["get", "/key"], &write);
}

fn get(addr: SocketAddr, key: &str) -> Option<String> {
    RedisConnection::open(addr).and_then(|mut redis| redis.call(&["GET", key])).ok().flatten()
}

fn role(addr: SocketAddr) -> String {
    RedisConnection::open(addr).and_then(|mut redis| redis.call(&["ROLE"])).ok().flatten().unwrap_or_default()
}

#[test]
fn sentinels_replace_a_killed_master() {
    let redis = Redis::new().append_only().start_sentinel().unwrap();
    assert_eq!((redis.servers().len(), redis.sentinels().len()), (3, 3));
    assert!(redis.url().ends_with("/tidelock"), "{}", redis.url());
    let old = &redis.servers()[0];
    assert_eq!(redis.master().unwrap(), old.addr());

    let mut connection = RedisConnection::open(old.addr()).unwrap();
    connection.call(&["SET", "key", "hello"]).unwrap();
    let copies = connection.call(&["WAIT", "2", "1500"]).unwrap();
    assert_eq!(copies.as_deref(), Some("2"));
    old.kill().unwrap();
    // One watcher less must not matter either: two of three decide.
    redis.sentinels()[0].kill().unwrap();

    eventually("another server is master", || {
        redis.master().is_ok_and(|addr| addr != old.addr() && role(addr).starts_with("master"))
    });
    let new = redis.master().unwrap();
    assert_eq!(get(new, "key").as_deref(), Some("hello"));

    // That the Sentinels make it a replica takes them ten seconds and more: theirs to test.
    old.restart().unwrap();
    assert_eq!(get(old.addr(), "key").as_deref(), Some("hello"));
    redis.sentinels()[0].restart().unwrap();
    leaves_nothing(redis, |redis| redis.servers().iter().chain(redis.sentinels()).collect());
}

#[test]
fn sentinels_watch_over_servers_with_a_password() {
    let redis = Redis::new().password("secret").start_sentinel().unwrap();
    assert!(redis.url().starts_with("redis+sentinel://:secret@127."));
    let answer = redis.servers()[1].ask(&["ROLE"]).unwrap();
    assert!(answer.contains("connected"), "{answer}");
}

#[test]
fn a_redis_cluster_replaces_a_killed_master_by_its_replica() {
    let cluster = Redis::new().append_only().start_cluster().unwrap();
    assert_eq!(cluster.nodes().len(), 6);
    assert!(cluster.url().starts_with("redis+cluster://127.0.0.1:"));
    let key = ["SET", "key", "hello"];
    // All but the master of the key answer with a redirection, which is an error here.
    let (master, mut connection) = cluster
        .nodes()
        .iter()
        .find_map(|node| {
            let mut connection = RedisConnection::open(node.addr()).unwrap();
            connection.call(&key).is_ok().then_some((node, connection))
        })
        .unwrap();
    // On the connection that wrote: WAIT waits for the writes of its own connection only.
    let copies = connection.call(&["WAIT", "1", "1500"]).unwrap();
    assert_eq!(copies.as_deref(), Some("1"));
    master.kill().unwrap();
    eventually("the replica took over", || {
        let mut others = cluster.nodes().iter().filter(|node| node.pid().is_some());
        others.any(|node| get(node.addr(), "key").as_deref() == Some("hello"))
    });
    master.restart().unwrap();
    eventually("the old master is a replica now", || role(master.addr()).starts_with("slave"));
    leaves_nothing(cluster, nodes);
}
