//! Servers that are killed, paused and started again, under load and at rest.

use std::time::Duration;

use test_servers::MariaDb;
use tidelock::LockState;

use crate::support::{
    LONG, NAME, Place, SHORT, eventually, got, pass_on, report,
    turns::{Turns, Verdict},
    until, until_idle, until_waiting, waiter, within,
    witness::Witness,
};

trials! {
    servers_killed_under_load_never_let_two_in_and_tokens_grow,
    after_a_kill_the_lock_is_still_held_and_waiters_keep_their_order,
    a_server_paused_for_less_than_the_ttl_costs_nobody_a_lock,
    a_server_paused_for_longer_than_the_ttl_ends_the_hold_before_the_next_begins,
    a_server_that_may_forget_is_left_alone_after_its_start,
}

/// Rounds of `kill -9` while worker processes take turns.
async fn servers_killed_under_load_never_let_two_in_and_tokens_grow() {
    const ROUNDS: u32 = 5;
    const PROCESSES: usize = 4;
    const TURNS: usize = 150;
    let server = MariaDb::new().durable().start().unwrap();
    let place = Place::at(&server);
    let eyes = place.connect().await;
    let turns = Turns::begin(&place.url(), PROCESSES, TURNS, SHORT);
    // A worker that has had a turn has connected: that is not tried again.
    turns.all_take_part().await;
    for _ in 0..ROUNDS {
        turns.go_on(20).await;
        server.kill().unwrap();
        server.restart().unwrap();
    }
    let Verdict { turns, overlaps, unordered, errors } = turns.end().await;
    report(&format!(
        "{ROUNDS} times kill -9 under load: {turns} turns, {errors} errors, {overlaps} overlaps, {unordered} tokens out of order"
    ));
    assert_eq!((overlaps, unordered, turns), (0, 0, PROCESSES * TURNS));
    until_idle(&eyes, NAME).await;
}

async fn after_a_kill_the_lock_is_still_held_and_waiters_keep_their_order() {
    let server = MariaDb::new().durable().start().unwrap();
    let place = Place::at(&server);
    let (locks, stranger) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut waiters = Vec::new();
    for n in 1..=3 {
        let client = place.connect().await;
        waiters.push(waiter(&client, NAME, LONG));
        until_waiting(&stranger, NAME, n).await;
        // A client without an answer may give up: this answer comes later than that.
        until_waiting(&client, NAME, n).await;
    }
    server.kill().unwrap();
    server.restart().unwrap();
    until(&stranger, NAME, |view| view.holders.len() == 1 && view.waiters.len() == 3).await;
    assert!(stranger.mutex(NAME).try_lock().await.unwrap().is_none());
    assert!(guard.is_held());
    pass_on(guard, waiters).await;
    until_idle(&stranger, NAME).await;
}

async fn a_server_paused_for_less_than_the_ttl_costs_nobody_a_lock() {
    let server = MariaDb::new().durable().start().unwrap();
    let place = Place::at(&server);
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(Duration::from_secs(8)).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    server.pause().unwrap();
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    server.resume().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn a_server_paused_for_longer_than_the_ttl_ends_the_hold_before_the_next_begins() {
    let server = MariaDb::new().durable().start().unwrap();
    let place = Place::at(&server);
    let (locks, other) = (place.connect().await, place.connect().await);
    let witness = Witness::default();
    let guard = witness.lock(&locks.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    server.pause().unwrap();
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    server.resume().unwrap();
    let next = got(waiting).await;
    witness.saw(&next, before);
    assert_eq!(witness.doubles(), 0);
    next.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_server_that_may_forget_is_left_alone_after_its_start() {
    let server = MariaDb::new().start().unwrap();
    let place = Place::at(&server);
    let error = place.try_connect().await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("may have forgotten"), "{error}");
    // A client that says that no lease is longer waits for no longer.
    let place = place.with("longest_ttl_ms=4000");
    let locks = within("it is old enough", async {
        loop {
            match place.try_connect().await {
                Ok(locks) => return locks,
                Err(error) => assert!(error.to_string().contains("may have forgotten"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let locks = locks.await;
    assert!(locks.concerns().iter().any(|concern| concern.contains("innodb_flush_log_at_trx_commit is 2")));
    let error = locks.mutex(NAME).ttl(LONG).lock().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("longest_ttl_ms"), "{error}");
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let before = guard.token();
    server.kill().unwrap();
    server.restart().unwrap();
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    let next = within("it is granted again", async {
        loop {
            if let Ok(guard) = locks.mutex(NAME).ttl(SHORT).lock().await {
                return guard;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let next = next.await;
    assert!(!guard.is_held() && next.token() > before);
    next.release().await.unwrap();
}
