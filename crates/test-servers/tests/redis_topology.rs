//! Redis servers that change places: replicas, Sentinels, and slots and masters of a cluster.

#![allow(clippy::unwrap_used, reason = "the helpers of the tests fail the test, as the tests do")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{eventually, leaves_nothing};
use test_servers::{Cluster, Error, Etcd, Redis, RedisConnection, Server};

/// Keys of the same slot, because of what is in the braces.
const KEYS: [&str; 3] = ["{slot}a", "{slot}b", "{slot}with\nlines"];

fn get(server: &Server, key: &str) -> Result<Option<String>, Error> {
    server.command(&["GET", key])
}

fn another_master<'a>(cluster: &'a Cluster, than: &Server) -> &'a Server {
    cluster.masters().into_iter().find(|master| master.addr() != than.addr()).unwrap()
}

#[track_caller]
fn is_redirected(answer: Result<Option<String>, Error>, word: &str, to: &Server) {
    let error = answer.unwrap_err().to_string();
    assert!(error.contains(word) && error.ends_with(&to.addr().to_string()), "{error}");
}

#[test]
fn replicas_have_the_data_of_their_master_until_they_are_promoted() {
    let redis = Redis::new().start_with_replicas(2).unwrap();
    let (master, replicas) = (redis.master(), redis.replicas());
    assert_eq!(replicas.len(), 2);
    let mut writer = RedisConnection::open(master.addr()).unwrap();
    writer.call(&["SET", "key", "hello"]).unwrap();
    let copies = writer.call(&["WAIT", "2", "1500"]).unwrap();
    assert_eq!(copies.as_deref(), Some("2"));
    for replica in replicas {
        assert_eq!(get(replica, "key").unwrap().as_deref(), Some("hello"));
        let refused = replica.command(&["SET", "key", "no"]).unwrap_err().to_string();
        assert!(refused.contains("READONLY"), "{refused}");
    }

    redis.promote(&replicas[0]).unwrap();
    replicas[0].command(&["SET", "key", "mine"]).unwrap();
    assert_eq!(get(master, "key").unwrap().as_deref(), Some("hello"));

    redis.follow(master, &replicas[0]).unwrap();
    assert_eq!(get(master, "key").unwrap().as_deref(), Some("mine"));
    leaves_nothing(redis, |redis| std::iter::once(redis.master()).chain(redis.replicas()).collect());
}

#[test]
fn the_sentinels_name_a_successor_of_a_paused_master() {
    let redis = Redis::new().start_sentinel().unwrap();
    let old = redis.master_server().unwrap();
    assert_eq!(old.addr(), redis.servers()[0].addr());
    old.pause().unwrap();
    let new = redis.wait_for_successor(old).unwrap();
    assert_ne!(new.addr(), old.addr());
    assert_eq!(redis.master().unwrap(), new.addr());
    new.command(&["SET", "key", "hello"]).unwrap();
    // That the Sentinels make the old one a replica takes them ten seconds and more.
    old.resume().unwrap();
    assert_eq!(redis.master_server().unwrap().addr(), new.addr());
}

#[test]
fn a_slot_moves_with_its_keys_to_another_master() {
    let cluster = Redis::new().start_cluster().unwrap();
    let slot = cluster.slot_of_key(KEYS[0]).unwrap();
    let from = cluster.master_of_key(KEYS[0]).unwrap();
    let to = another_master(&cluster, from);
    for key in KEYS {
        assert_eq!(cluster.slot_of_key(key).unwrap(), slot);
        from.command(&["SET", key, "hello"]).unwrap();
    }
    is_redirected(get(to, KEYS[0]), "MOVED", from);

    cluster.move_slot(slot, to).unwrap();
    assert_eq!(cluster.master_of_slot(slot).unwrap().addr(), to.addr());
    for key in KEYS {
        assert_eq!(get(to, key).unwrap().as_deref(), Some("hello"));
        is_redirected(get(from, key), "MOVED", to);
    }
    leaves_nothing(cluster, |cluster| cluster.nodes().iter().collect());
}

#[test]
fn a_slot_that_is_half_way_sends_clients_on_for_what_has_left() {
    let cluster = Redis::new().start_cluster().unwrap();
    let [left, stays, _] = KEYS;
    let from = cluster.master_of_key(left).unwrap();
    let to = another_master(&cluster, from);
    for key in [left, stays] {
        from.command(&["SET", key, "hello"]).unwrap();
    }
    let half_way = cluster.begin_slot_move(cluster.slot_of_key(left).unwrap(), to).unwrap();
    assert_eq!((half_way.from().addr(), half_way.to().addr()), (from.addr(), to.addr()));
    assert_eq!(get(from, left).unwrap().as_deref(), Some("hello"));
    half_way.move_key(left).unwrap();
    assert!(half_way.move_key(left).is_err(), "it has left already");

    is_redirected(get(from, left), "ASK", to);
    assert_eq!(get(from, stays).unwrap().as_deref(), Some("hello"));
    let torn = from.command(&["MGET", left, stays]).unwrap_err().to_string();
    assert!(torn.contains("TRYAGAIN"), "{torn}");
    is_redirected(get(to, left), "MOVED", from);
    let mut asking = to.administrator().unwrap();
    asking.call(&["ASKING"]).unwrap();
    assert_eq!(asking.call(&["GET", left]).unwrap().as_deref(), Some("hello"));
    assert_eq!(cluster.master_of_key(left).unwrap().addr(), from.addr());

    half_way.move_keys().unwrap();
    is_redirected(get(from, stays), "ASK", to);
    half_way.finish().unwrap();
    is_redirected(get(from, stays), "MOVED", to);
    assert_eq!(get(to, stays).unwrap().as_deref(), Some("hello"));
}

/// Counts once, wherever the slot is, as a client does that follows redirections.
fn count(cluster: &Cluster, key: &str) {
    let mut at = cluster.nodes()[0].addr();
    let mut asking = false;
    loop {
        let mut redis = RedisConnection::open(at).unwrap();
        if asking {
            redis.call(&["ASKING"]).unwrap();
        }
        let Err(error) = redis.call(&["INCR", key]) else {
            return;
        };
        let error = error.to_string();
        asking = error.contains("ASK ");
        assert!(asking || error.contains("MOVED"), "{error}");
        at = error.rsplit_once(' ').unwrap().1.parse().unwrap();
    }
}

#[test]
fn clients_lose_nothing_while_a_slot_moves_to_and_fro() {
    let cluster = Redis::new().start_cluster().unwrap();
    let key = KEYS[0];
    let slot = cluster.slot_of_key(key).unwrap();
    let moved = AtomicBool::new(false);
    let counted = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut counted = 0;
            while !moved.load(Ordering::Relaxed) {
                count(&cluster, key);
                counted += 1;
            }
            counted
        });
        for _ in 0..5 {
            let to = another_master(&cluster, cluster.master_of_slot(slot).unwrap());
            cluster.move_slot(slot, to).unwrap();
        }
        moved.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    let value = get(cluster.master_of_key(key).unwrap(), key).unwrap();
    assert_eq!(value, Some(counted.to_string()));
}

#[test]
fn a_fail_over_makes_the_replica_master_and_the_master_replica() {
    let cluster = Redis::new().start_cluster().unwrap();
    let old = cluster.master_of_key("key").unwrap();
    let replica = cluster.replica_of(old).unwrap();
    old.command(&["SET", "key", "hello"]).unwrap();

    let new = cluster.fail_over(old).unwrap();
    assert_eq!(new.addr(), replica.addr());
    assert_eq!(get(new, "key").unwrap().as_deref(), Some("hello"));
    is_redirected(old.command(&["SET", "key", "no"]), "MOVED", new);

    assert!(cluster.fail_over(old).is_err(), "it is no master any more");
    eventually("the old master follows", || cluster.replica_of(new).is_ok());
    let again = cluster.fail_over(new).unwrap();
    assert_eq!(again.addr(), old.addr());
}

#[test]
fn the_replica_of_a_killed_master_takes_over() {
    let cluster = Redis::new().start_cluster().unwrap();
    let old = cluster.master_of_key("key").unwrap();
    let replica = cluster.replica_of(old).unwrap();
    let new = cluster.kill_master(old).unwrap();
    assert_eq!(new.addr(), replica.addr());
    assert_eq!(cluster.master_of_key("key").unwrap().addr(), new.addr());
    new.command(&["SET", "key", "hello"]).unwrap();

    old.restart().unwrap();
    eventually("the old master follows", || cluster.replica_of(new).is_ok());
}

#[test]
fn the_replica_of_a_paused_master_takes_over() {
    let cluster = Redis::new().start_cluster().unwrap();
    let slot = cluster.slot_of_key("key").unwrap();
    let old = cluster.master_of_slot(slot).unwrap();
    old.pause().unwrap();
    let new = cluster.wait_for_successor(slot, old).unwrap();
    new.command(&["SET", "key", "hello"]).unwrap();
    old.resume().unwrap();
    eventually("the old master follows", || cluster.replica_of(new).is_ok());
}

#[test]
fn what_is_not_redis_has_no_administrator() {
    let etcd = Etcd::new().start().unwrap();
    let error = etcd.command(&["PING"]).unwrap_err().to_string();
    assert_eq!(error, "etcd is not a server of Redis");
    assert!(etcd.certificates().is_none());
}
