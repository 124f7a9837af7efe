//! All locks are listed: among many names that nobody uses, on every kind of installation.

use test_servers::{Redis, Server};
use tidelock::{Guard, Locks};

use crate::{
    cluster::{TURN, another_master, shared},
    support::{LONG, Place, until_waiting, waiter},
};

trials! {
    locks_in_use_are_found_among_idle_names_with_a_few_commands_for_each_page,
    a_user_without_mget_lists_all_locks,
    all_members_of_a_cluster_are_listed,
    a_lock_whose_slot_is_on_its_way_is_listed_once,
    the_master_behind_sentinels_is_listed,
}

/// How many names were used lately, and how many of them a scan looks at in one call.
const IDLE: usize = 5_000;
const PAGE: usize = 500;

/// Leaves idle names behind, as released locks do.
fn fill(server: &Server, place: &Place) {
    let script = "for n = 1, ARGV[2] do redis.call('SET', ARGV[1] .. '{idle ' .. n .. '}', 'I0000000000000017', 'PX', 600000) end";
    server.command(&["EVAL", script, "0", &place.prefix, &IDLE.to_string()]).unwrap();
}

async fn hold(locks: &Locks, names: &[String]) -> Vec<Guard> {
    let mut held = Vec::new();
    for name in names {
        held.push(locks.mutex(name).ttl(LONG).lock().await.unwrap());
    }
    held
}

fn named(count: usize) -> Vec<String> {
    (10..10 + count).map(|n| format!("held {n}")).collect()
}

async fn listed(locks: &Locks) -> Vec<String> {
    locks.look_all().await.unwrap().iter().map(|view| view.name.as_str().to_owned()).collect()
}

/// How often a server was told to run each of these.
fn calls(server: &Server, commands: &[&str]) -> usize {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().unwrap();
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        commands.contains(&name).then(|| rest.split(',').next()?.parse::<usize>().ok())?
    };
    stats.lines().filter_map(of).sum()
}

async fn locks_in_use_are_found_among_idle_names_with_a_few_commands_for_each_page() {
    let server = Redis::new().start().unwrap();
    for scripting in ["on", "scripts", "off"] {
        let place = Place::at(&server).with(&format!("scripting={scripting}"));
        fill(&server, &place);
        // Not of locks, though their keys look like it.
        server.command(&["SET", &place.key("a text"), "hello"]).unwrap();
        server.command(&["RPUSH", &place.key("a list"), "hello"]).unwrap();
        let (locks, other) = (place.connect().await, place.connect().await);
        let names = named(30);
        let held = hold(&locks, &names).await;
        let waiting = waiter(&other, &names[7], LONG);
        until_waiting(&locks, &names[7], 1).await;

        server.command(&["CONFIG", "RESETSTAT"]).unwrap();
        let views = other.look_all().await.unwrap();
        let seen: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
        assert_eq!(seen, names, "scripting={scripting}");
        assert!(views.iter().all(|view| view.holders.len() == 1), "scripting={scripting}");
        assert_eq!(views[7].waiters.len(), 1, "scripting={scripting}");
        let commands = calls(&server, &["scan", "mget", "get"]);
        let all: usize = server.command(&["DBSIZE"]).unwrap().unwrap().trim().parse().unwrap();
        // A scan ends in the middle of a page. Renewals may come in between: scripts that read a key.
        assert!(commands <= 2 * (all / PAGE + 2) + 100, "{commands} commands for {all} names");
        waiting.abort();
        drop(held);
    }
}

async fn a_user_without_mget_lists_all_locks() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    fill(&server, &place);
    let names = named(3);
    let locks = place.connect().await;
    let _held = hold(&locks, &names).await;
    let user = ["ACL", "SETUSER", "few", "on", ">secret", "~*", "&*", "+@all", "-mget"];
    server.command(&user).unwrap();
    assert_eq!(listed(&place.logged_in("few", "secret").connect().await).await, names);
}

async fn all_members_of_a_cluster_are_listed() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    for scripting in ["on", "off"] {
        let place = Place::on(cluster.url()).with(&format!("scripting={scripting}"));
        let (locks, other) = (place.connect().await, place.connect().await);
        let names = named(40);
        // Some names are idle: they were used, and nobody holds them now.
        drop(hold(&locks, &named(60)).await);
        let held = hold(&locks, &names).await;
        assert_eq!(listed(&other).await, names, "scripting={scripting}");
        drop(held);
    }
}

async fn a_lock_whose_slot_is_on_its_way_is_listed_once() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let name = &*place.prefix;
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(name).ttl(LONG).lock().await.unwrap();
    let slot = cluster.slot_of_key(&place.key(name)).unwrap();
    let to = another_master(&cluster, cluster.master_of_slot(slot).unwrap());
    assert_eq!(listed(&other).await, [name]);
    // Its key is at a member that does not serve the slot yet.
    cluster.begin_slot_move(slot, to).unwrap().move_keys().unwrap();
    assert_eq!(listed(&other).await, [name]);
    // A client that has the old map.
    cluster.begin_slot_move(slot, to).unwrap().finish().unwrap();
    assert_eq!(listed(&other).await, [name]);
    guard.release().await.unwrap();
}

async fn the_master_behind_sentinels_is_listed() {
    let servers = Redis::new().start_sentinel().unwrap();
    let place = Place::on(servers.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let names = named(3);
    let _held = hold(&locks, &names).await;
    assert_eq!(listed(&other).await, names);
}
