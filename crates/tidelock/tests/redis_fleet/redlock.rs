//! Locks that other programs take as well, on three servers that vote.

use std::time::Duration;

use test_servers::{Redis, Server};

use crate::{
    alternating::{Does, Trial, take_turns},
    peers::both_ways_at,
    programs::{Library, NEW},
    support::{
        LONG, NAME, Place, SHORT, eventually, got, is_one_sentence, until, until_idle, until_waiting, waiter,
    },
};

trials! {
    redsync_on_three_servers_and_we_take_turns_and_never_overlap,
    node_redlock_on_three_servers_and_we_take_turns_and_never_overlap,
    pottery_on_three_servers_and_we_take_turns_and_never_overlap,
    rslock_on_three_servers_and_we_take_turns_and_never_overlap,
    a_redlock_of_redisson_and_we_take_turns_and_never_overlap,
    redsync_and_we_take_turns_while_one_server_after_the_other_is_paused,
    redsync_on_three_servers_and_we_wake_each_other_and_outlive_each_other,
    node_redlock_on_three_servers_and_we_wake_each_other_and_outlive_each_other,
    a_redlock_of_redisson_and_we_wake_each_other_and_outlive_each_other,
    what_is_taken_on_a_minority_is_given_back_and_the_place_in_line_kept,
    a_lock_is_held_by_a_majority_of_the_keys_and_lost_without,
    a_key_of_another_program_on_a_minority_is_neither_extended_nor_deleted,
    a_holder_of_another_program_on_a_majority_is_seen_and_can_be_put_out,
    read_write_locks_of_redisson_are_refused_on_servers_that_vote,
}

const MODES: [&str; 2] = ["mode=setnx", "mode=redisson"];

/// Servers that keep what they confirm, so that they have a vote at once; and the place of a lock on them.
fn three() -> (Vec<Server>, Place) {
    let servers: Vec<_> = (0..3).map(|_| Redis::new().durable().start().unwrap()).collect();
    let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    (servers, Place::on(&format!("redlock://{}", hosts.join(","))))
}

async fn turns_of(library: Library) -> Trial {
    let (_servers, place) = three();
    let hosts = place.hosts().to_owned();
    take_turns(library, place, &hosts, "", Does::Lock, || ()).await
}

async fn redsync_on_three_servers_and_we_take_turns_and_never_overlap() -> Trial {
    turns_of(Library::Redsync).await
}

async fn node_redlock_on_three_servers_and_we_take_turns_and_never_overlap() -> Trial {
    turns_of(Library::NodeRedlock).await
}

async fn pottery_on_three_servers_and_we_take_turns_and_never_overlap() -> Trial {
    turns_of(Library::Pottery).await
}

async fn rslock_on_three_servers_and_we_take_turns_and_never_overlap() -> Trial {
    turns_of(Library::Rslock).await
}

async fn a_redlock_of_redisson_and_we_take_turns_and_never_overlap() -> Trial {
    turns_of(NEW).await
}

async fn redsync_and_we_take_turns_while_one_server_after_the_other_is_paused() -> Trial {
    let (servers, place) = three();
    let hosts = place.hosts().to_owned();
    let mut paused = servers.iter().cycle();
    // For long enough that answers arrive which nobody waits for, and that give what was taken back too late.
    let pause = || {
        let server = paused.next().unwrap();
        server.pause().unwrap();
        std::thread::sleep(Duration::from_millis(250));
        server.resume().unwrap();
    };
    take_turns(Library::Redsync, place, &hosts, "", Does::Lock, pause).await
}

async fn redsync_on_three_servers_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    let (_servers, place) = three();
    both_ways_at(Library::Redsync, &place).await
}

async fn node_redlock_on_three_servers_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    let (_servers, place) = three();
    both_ways_at(Library::NodeRedlock, &place).await
}

async fn a_redlock_of_redisson_and_we_wake_each_other_and_outlive_each_other() -> Trial {
    let (_servers, place) = three();
    both_ways_at(NEW, &place).await
}

fn ask(server: &Server, command: &[&str]) -> String {
    server.command(command).unwrap().unwrap_or_default()
}

/// Another program takes the lock on a server.
fn take(server: &Server, mode: &str) -> bool {
    if mode == MODES[0] {
        return ask(server, &["SET", NAME, "theirs", "NX", "PX", "600000"]) == "OK";
    }
    // In one step, as Redisson does it.
    let script = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
                  redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], 600000)";
    ask(server, &["EVAL", script, "1", NAME, "8743c9c0-0795-4907-87fd-6c719a6b4586:61"]) == "1"
}

async fn what_is_taken_on_a_minority_is_given_back_and_the_place_in_line_kept() {
    for mode in MODES {
        let (servers, place) = three();
        let place = place.with(mode);
        let (locks, other) = (place.connect().await, place.connect().await);
        assert!(take(&servers[1], mode) && take(&servers[2], mode));
        let first = waiter(&locks, NAME, LONG);
        until_waiting(&other, NAME, 1).await;
        let second = waiter(&other, NAME, LONG);
        until_waiting(&locks, NAME, 2).await;
        // Ours looks again and again, and takes the key that is free; each time it is free again soon.
        for _ in 0..3 {
            eventually("the minority is given back", || take(&servers[0], mode)).await;
            assert!(!first.is_finished() && !second.is_finished());
            ask(&servers[0], &["DEL", NAME]);
        }
        ask(&servers[1], &["DEL", NAME]);
        ask(&servers[2], &["DEL", NAME]);
        let guard = got(first).await;
        assert!(!second.is_finished(), "they come in the order in which they asked");
        let theirs: Vec<_> = servers.iter().filter(|server| take(server, mode)).collect();
        assert!(theirs.len() <= 1, "a majority is ours");
        let token = guard.token();
        guard.release().await.unwrap();
        theirs.iter().for_each(|server| drop(ask(server, &["DEL", NAME])));
        let guard = got(second).await;
        assert!(guard.token() > token);
        guard.release().await.unwrap();
    }
}

async fn a_lock_is_held_by_a_majority_of_the_keys_and_lost_without() {
    for mode in MODES {
        let (servers, place) = three();
        let locks = place.with(mode).connect().await;
        let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
        eventually("all servers have it", || {
            servers.iter().all(|server| ask(server, &["EXISTS", NAME]) == "1")
        })
        .await;
        // One is forgotten, and is there again after a renewal.
        ask(&servers[0], &["DEL", NAME]);
        eventually("the third is taken again", || ask(&servers[0], &["EXISTS", NAME]) == "1").await;
        assert!(guard.is_held());
        // Two at the same time: a renewal between them would find one, and take it again.
        eventually("the holder hears it", || {
            servers[1..].iter().for_each(|server| drop(ask(server, &["DEL", NAME])));
            !guard.is_held()
        })
        .await;
        assert!(guard.release().await.is_err());
        until_idle(&locks, NAME).await;
        eventually("nothing is left", || servers.iter().all(|server| ask(server, &["EXISTS", NAME]) == "0"))
            .await;
    }
}

async fn a_key_of_another_program_on_a_minority_is_neither_extended_nor_deleted() {
    let (servers, place) = three();
    let locks = place.with(MODES[0]).connect().await;
    ask(&servers[0], &["SET", NAME, "theirs", "PX", "1000000"]);
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let renewed = ask(&servers[1], &["GET", NAME]);
    tokio::time::sleep(SHORT).await;
    assert!(guard.is_held());
    assert_eq!(ask(&servers[1], &["GET", NAME]), renewed);
    guard.release().await.unwrap();
    assert_eq!(ask(&servers[0], &["GET", NAME]), "theirs");
    assert!(ask(&servers[0], &["PTTL", NAME]).parse::<u64>().unwrap() > 900_000);
}

async fn a_holder_of_another_program_on_a_majority_is_seen_and_can_be_put_out() {
    for mode in MODES {
        let (servers, place) = three();
        let locks = place.with(mode).connect().await;
        assert!(servers.iter().all(|server| take(server, mode)));
        let waiting = waiter(&locks, NAME, LONG);
        until(&locks, NAME, |view| view.holders.len() == 1 && view.waiters.len() == 1).await;
        let view = locks.look(&[NAME]).await.unwrap().remove(0);
        assert!(view.holders[0].label.contains("client"), "{view:?}");
        assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
        locks.evict(NAME, view.holders[0].id, "it hangs").await.unwrap();
        got(waiting).await.release().await.unwrap();
    }
}

async fn read_write_locks_of_redisson_are_refused_on_servers_that_vote() {
    let (_servers, place) = three();
    let locks = place.with(MODES[1]).connect().await;
    for error in
        [locks.rw_lock(NAME).read().await.unwrap_err(), locks.rw_lock(NAME).write().await.unwrap_err()]
    {
        is_one_sentence(&error);
        assert!(error.is_denied() && error.to_string().contains("read-write"), "{error}");
    }
}
