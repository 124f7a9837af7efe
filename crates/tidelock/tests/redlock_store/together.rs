//! Claims of one client that share a call to each of the servers that vote.

use std::time::Duration;

use test_servers::{Proxy, Server};
use tidelock::{
    Locks,
    backend::{Backend, Scope},
};

use crate::{
    five::Five,
    support::{
        LONG,
        batches::{MANY, all, ask, names, release},
        got, within,
    },
};

trials! {
    claims_that_come_at_once_share_a_call_to_each_server,
    claims_that_share_calls_hold_by_a_majority_and_leave_nothing_on_the_others,
    claims_that_share_calls_wait_for_holders_like_any_other,
    a_server_that_answers_last_is_told_once_that_a_claim_left,
}

/// Five servers, each behind a network of its own, and a client whose calls take a while.
async fn slow() -> (Five, Vec<Proxy>, Locks) {
    let five = Five::durable();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let locks = Locks::connect(&url).await.unwrap();
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(10));
    }
    (five, proxies, locks)
}

/// How often functions were called.
fn calls(server: &Server) -> usize {
    let stats = server.command(&["INFO", "commandstats"]).unwrap().unwrap();
    let of = |line: &str| line.strip_prefix("cmdstat_fcall:calls=")?.split(',').next()?.parse::<usize>().ok();
    stats.lines().find_map(of).unwrap_or_default()
}

/// Nobody is in line on any server.
async fn nothing_is_left(five: &Five) {
    for server in 0..five.servers.len() {
        let one = five.one(server, 77).await;
        within("nothing is left on a server", async {
            while !one.look(&Scope::All).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

async fn claims_that_come_at_once_share_a_call_to_each_server() {
    let (five, _proxies, locks) = slow().await;
    let other = five.connect().await;
    let mut last = vec![0; MANY];
    for _ in 0..3 {
        let before: Vec<_> = five.servers.iter().map(calls).collect();
        let guards = all(&locks, &names()).await;
        for (server, before) in five.servers.iter().zip(before) {
            let called = calls(server) - before;
            assert!(called < MANY, "{called} calls for {MANY} claims");
        }
        for ((guard, name), last) in guards.iter().zip(names()).zip(&mut last) {
            assert!(guard.is_held() && guard.token().epoch() > *last);
            *last = guard.token().epoch();
            assert!(other.mutex(&name).ttl(LONG).try_lock().await.unwrap().is_none());
        }
        release(guards).await;
        nothing_is_left(&five).await;
    }
}

async fn claims_that_share_calls_hold_by_a_majority_and_leave_nothing_on_the_others() {
    let (five, proxies, locks) = slow().await;
    // Two servers grant, and nobody hears it; or they hear nothing at all.
    for lose in [Proxy::hold_replies, Proxy::swallow_replies] {
        for proxy in &proxies[3..] {
            lose(proxy);
        }
        let guards = all(&locks, &names()).await;
        assert!(guards.iter().all(tidelock::Guard::is_held));
        release(guards).await;
        for proxy in &proxies[3..] {
            proxy.heal().unwrap();
        }
        nothing_is_left(&five).await;
    }
}

async fn claims_that_share_calls_wait_for_holders_like_any_other() {
    let (five, _proxies, locks) = slow().await;
    let other = five.connect().await;
    let names = names();
    let held = all(&other, &names[MANY / 2..]).await;
    let mut asked = ask(&locks, &names);
    let behind = asked.split_off(MANY / 2);
    let mut guards = Vec::new();
    for waiter in asked {
        guards.push(got(waiter).await);
    }
    assert!(behind.iter().all(|waiter| !waiter.is_finished()));
    release(held).await;
    for waiter in behind {
        guards.push(got(waiter).await);
    }
    release(guards).await;
    nothing_is_left(&five).await;
}

async fn a_server_that_answers_last_is_told_once_that_a_claim_left() {
    const PAIRS: usize = 20;
    let (five, proxies, locks) = slow().await;
    let late = 3..5;
    for proxy in &proxies[late.clone()] {
        // A claim is left before these have said that it holds.
        proxy.delay(Duration::from_millis(40));
    }
    let before: Vec<_> = five.servers.iter().map(calls).collect();
    for pair in 1..=PAIRS {
        locks.mutex("a lock").ttl(LONG).lock().await.unwrap().release().await.unwrap();
        for server in late.clone() {
            within("a claim is known everywhere, and left", async {
                while calls(&five.servers[server]) - before[server] < 2 * pair {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
    }
    nothing_is_left(&five).await;
    for server in late {
        let called = calls(&five.servers[server]) - before[server];
        // An enter and a leave each. Both answers may be read at once, and the leave's be heard first: then it is told again.
        assert!((2 * PAIRS..2 * PAIRS + PAIRS / 2).contains(&called), "{called} calls");
    }
}
