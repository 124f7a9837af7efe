//! Five servers that vote: any two of them are killed, paused, emptied or cut off.
//!
//! `TIDELOCK_GRANTS=10000` makes the storm of processes as long as that.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use test_servers::{Proxy, Redis};
use tidelock::{
    LockState, Locks,
    backend::{Ask, Backend, ClientId, Entered, Scope},
    backends::redis::{RedisBackend, RedisConfig},
};

use crate::{
    five::{Five, LONGEST, claim},
    support::{
        LONG, NAME, SHORT, eventually, is_one_sentence, nobody, report,
        turns::{Turns, Verdict},
        until_idle, within,
    },
};

trials! {
    any_two_of_five_may_fail_in_any_way_while_processes_take_turns,
    a_majority_that_is_gone_is_an_error_with_what_each_server_said_and_comes_back_by_itself,
    a_majority_that_does_not_answer_is_an_error_and_not_a_hang,
    a_server_that_was_restarted_empty_has_no_vote_until_leases_from_before_are_over,
    servers_restarted_one_after_the_other_cost_the_holder_nothing,
    a_server_that_came_back_from_a_pause_is_told_what_it_missed,
    a_server_under_two_names_would_vote_twice_and_is_refused,
    a_wrong_password_on_one_of_five_is_said_when_connecting,
}

async fn any_two_of_five_may_fail_in_any_way_while_processes_take_turns() {
    const PROCESSES: usize = 3;
    let grants: usize = std::env::var("TIDELOCK_GRANTS").map_or(1_000, |grants| grants.parse().unwrap());
    let five = Five::forgetful();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    five.can_vote().await;
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let turns = Turns::begin(&url, PROCESSES, grants.div_ceil(PROCESSES), LONGEST);
    // Two of them at a time, each in another way, until all turns were taken.
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    let mut number = 0_usize;
    while !turns.are_over() {
        let (first, second) = (number % 5, (number + 1 + number / 5 % 4) % 5);
        for (server, way) in [(first, number % 4), (second, (number / 4 + 1) % 4)] {
            let name = match way {
                0 => {
                    five.servers[server].kill().unwrap();
                    "killed and started empty"
                }
                1 => {
                    five.servers[server].pause().unwrap();
                    "paused"
                }
                2 => {
                    proxies[server].cut();
                    "cut off"
                }
                _ => {
                    proxies[server].swallow_replies();
                    "not heard"
                }
            };
            *faults.entry(name).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(300 + (number as u64 * 37) % 400)).await;
        for server in [first, second] {
            let _ = five.servers[server].resume();
            if five.servers[server].ping().is_err() {
                five.servers[server].restart().unwrap();
            }
            proxies[server].heal().unwrap();
        }
        // Two others may only fail when these have their vote again.
        five.can_vote().await;
        number += 1;
    }
    let Verdict { turns, overlaps, unordered, errors } = turns.end().await;
    report(&format!(
        "{turns} turns of {PROCESSES} processes, {errors} errors, {overlaps} overlaps, {unordered} tokens out of order; {number} pairs of servers failed: {faults:?}"
    ));
    assert!(turns >= grants && number > 0);
    assert_eq!((overlaps, unordered), (0, 0));
}

async fn a_majority_that_is_gone_is_an_error_with_what_each_server_said_and_comes_back_by_itself() {
    let five = Five::durable();
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    for server in &five.servers[..3] {
        server.kill().unwrap();
    }
    let asked = Instant::now();
    let error =
        within("an answer", locks.mutex("another").ttl(LONG).fail_fast(true).lock()).await.unwrap_err();
    report(&format!("three of five gone, said after {:?}: {error}", asked.elapsed()));
    is_one_sentence(&error);
    assert!(error.is_retryable() && error.to_string().contains("2 of 5 servers can vote"), "{error}");
    for server in &five.servers[..3] {
        assert!(error.to_string().contains(&server.addr().to_string()), "{error}");
        server.restart().unwrap();
    }
    let mutex = locks.mutex("another").ttl(LONG);
    let again = within("they are found again", async {
        loop {
            if let Ok(guard) = mutex.lock().await {
                return guard;
            }
        }
    });
    again.await.release().await.unwrap();
    // It was within its lease all the time, and the servers kept it.
    eventually("it is renewed", || guard.state() == LockState::Held).await;
    guard.release().await.unwrap();
}

async fn a_majority_that_does_not_answer_is_an_error_and_not_a_hang() {
    let five = Five::durable();
    let locks = five.connect().await;
    for server in &five.servers[..3] {
        server.pause().unwrap();
    }
    let asked = Instant::now();
    let error = within("an answer", locks.mutex(NAME).ttl(LONG).fail_fast(true).lock()).await.unwrap_err();
    report(&format!("three of five paused, said after {:?}: {error}", asked.elapsed()));
    is_one_sentence(&error);
    assert!(error.to_string().contains("no answer in time"), "{error}");
    for server in &five.servers[..3] {
        server.resume().unwrap();
    }
    // What they were asked before is not in the way of anybody.
    let guard = within("they are found again", async {
        loop {
            if let Ok(guard) = locks.mutex(NAME).ttl(LONG).lock().await {
                return guard;
            }
        }
    });
    guard.await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

/// Without the rule the claims of two clients would each have a majority: the second one of servers that forgot
/// the first.
async fn a_server_that_was_restarted_empty_has_no_vote_until_leases_from_before_are_over() {
    let five = Five::forgetful();
    five.can_vote().await;
    // One that does not even listen: nobody renews.
    let first = five.backend(1).await;
    let held = claim(1, 1, LONGEST);
    let Entered::Held(grant) = first.enter(&held, Ask::Try).await.unwrap() else { panic!("nobody holds") };
    let since = Instant::now();
    for server in &five.servers[..3] {
        server.kill().unwrap();
        server.restart().unwrap();
    }
    // A client that knows nothing of that.
    let second = five.backend(2).await;
    let mut serial = 0;
    let later = within("they have a vote again", async {
        loop {
            serial += 1;
            match second.enter(&claim(2, serial, LONGEST), Ask::Try).await {
                Ok(Entered::Held(grant)) => return grant,
                Ok(_) => {}
                Err(failure) => {
                    assert!(failure.reason.contains("has no vote for another"), "{failure}");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let later = later.await;
    assert!(since.elapsed() >= LONGEST, "granted after {:?}", since.elapsed());
    assert!(later.epoch > grant.epoch, "tokens grow though three of five forgot them");
}

async fn servers_restarted_one_after_the_other_cost_the_holder_nothing() {
    let five = Five::forgetful();
    five.can_vote().await;
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    for server in &five.servers {
        server.kill().unwrap();
        server.restart().unwrap();
        five.can_vote().await;
        // Renewed there: the next one may go.
        let name = tidelock::Name::new(NAME).unwrap();
        let one = RedisBackend::connect(RedisConfig::from_url(server.url()).unwrap(), ClientId::from_u64(9));
        let one = one.await.unwrap();
        let looking = async {
            while one.look(&Scope::Names(vec![name.clone()])).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("the holder is known again", looking).await;
    }
    assert_eq!(guard.state(), LockState::Held);
    assert!(five.connect().await.mutex(NAME).ttl(SHORT).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn a_server_that_came_back_from_a_pause_is_told_what_it_missed() {
    let five = Five::durable();
    let locks = five.connect().await;
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    five.servers[4].pause().unwrap();
    guard.release().await.unwrap();
    five.servers[4].resume().unwrap();
    let one = five.one(4, 9).await;
    let name = tidelock::Name::new(NAME).unwrap();
    let looking = async {
        while !one.look(&Scope::Names(vec![name.clone()])).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Its lease does not end during the trial.
    within("the server knows that the lock was released", looking).await;
}

async fn a_server_under_two_names_would_vote_twice_and_is_refused() {
    let server = Redis::new().start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let other = Redis::new().start().unwrap();
    let url = format!("redlock://{},{},{}", server.addr(), other.addr(), proxy.addr());
    let error = Locks::connect(&url).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("the same server"), "{error}");
}

async fn a_wrong_password_on_one_of_five_is_said_when_connecting() {
    let open: Vec<_> = (0..2).map(|_| Redis::new().start().unwrap()).collect();
    let closed = Redis::new().password("other").start().unwrap();
    let hosts: Vec<_> = open.iter().chain([&closed]).map(|server| server.addr().to_string()).collect();
    let error = Locks::connect(&format!("redlock://:secret@{}", hosts.join(","))).await.unwrap_err();
    is_one_sentence(&error);
    assert!(!error.to_string().contains("secret") && error.to_string().contains("password"), "{error}");
    // Two that nobody listens at leave one of three.
    let url = format!("redlock://{},{},{}", open[0].addr(), nobody(), nobody());
    let error = Locks::connect(&url).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("1 of 3 servers can vote, and 2 have to"), "{error}");
}
