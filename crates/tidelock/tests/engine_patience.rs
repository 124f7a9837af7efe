//! Waiting that goes on while a store fails, in paused time on a store that can be broken.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

mod common;

use std::time::Duration;

use common::{INSTANT, SLOW, TTL, client, settle, store};
use tidelock::{Error, Guard, Locks, testing::faulty::Faults};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

/// Longer than any lease here.
const OUTAGE: Duration = Duration::from_secs(300);

fn lock_later(locks: &Locks, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let mutex = locks.mutex(name);
    tokio::spawn(async move { mutex.lock().await })
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_after_an_outage_longer_than_its_ttl() {
    for with_memory in [true, false] {
        let store = store(SLOW);
        let (a, b) = (client(&store, 1), client(&store, 2));
        let held = a.locks.mutex("x").lock().await.unwrap();
        let waits = lock_later(&b.locks, "x");
        sleep(Duration::from_secs(1)).await;
        store.stop();
        sleep(OUTAGE).await;
        assert!(!held.is_held() && !waits.is_finished());
        store.start(with_memory);
        let back = Instant::now();
        assert!(waits.await.unwrap().unwrap().is_held());
        // The longest pause and, if the store forgot, what it keeps closed for.
        assert!(back.elapsed() < TTL + Duration::from_secs(5), "{:?}", back.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_cut_off_gets_the_lock_after_the_cut() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let held = a.locks.mutex("x").lock().await.unwrap();
    let waits = lock_later(&b.locks, "x");
    sleep(Duration::from_secs(1)).await;
    store.cut(b.id, true);
    sleep(OUTAGE).await;
    store.cut(b.id, false);
    held.release().await.unwrap();
    let guard = waits.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    sleep(TTL).await;
    assert!(store.left_behind().is_empty(), "{:?}", store.left_behind());
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_the_lock_when_the_store_comes_back() {
    let store = store(SLOW);
    let a = client(&store, 1);
    store.stop();
    let (first, second) = (lock_later(&a.locks, "x"), lock_later(&a.locks, "x"));
    sleep(OUTAGE).await;
    assert!(!first.is_finished());
    let asked = a.calls.of(&a.calls.enter);
    assert!(asked < 300, "{asked} questions in five minutes");
    store.start(true);
    let back = Instant::now();
    first.await.unwrap().unwrap().release().await.unwrap();
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
    second.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn patience_that_ends_in_an_outage_says_how_the_store_failed_and_how_long_it_was_tried() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let mutex = a.locks.mutex("orders/42");
    store.stop();
    let limit = Duration::from_secs(20);
    let asked = Instant::now();
    for error in [
        mutex.clone().wait(limit).lock().await.unwrap_err(),
        mutex.try_lock_for(limit).await.unwrap_err(),
        a.locks.multi(["orders/42", "x"]).wait(limit).lock().await.unwrap_err(),
    ] {
        assert!(error.is_unavailable());
        assert_eq!(
            error.to_string(),
            r#"faulty is not reachable for lock "orders/42": the store is down; gave up after 20s"#
        );
    }
    assert_eq!(asked.elapsed(), 3 * limit);
    store.start(true);
    assert!(mutex.lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn patience_that_ends_in_line_during_an_outage_says_that_the_store_failed() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let _held = a.locks.mutex("x").lock().await.unwrap();
    let mutex = b.locks.mutex("x").wait(TTL / 2);
    let stop = async {
        sleep(Duration::from_secs(1)).await;
        store.stop();
    };
    let (error, ()) = tokio::join!(mutex.lock(), stop);
    let error = error.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().ends_with("gave up after 15s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_try_and_fail_fast_do_not_wait_behind_those_who_are_patient() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    store.stop();
    let patient = lock_later(&a.locks, "x");
    sleep(OUTAGE).await;
    let asked = Instant::now();
    for error in [
        a.locks.mutex("x").try_lock().await.unwrap_err(),
        a.locks.mutex("x").fail_fast(true).lock().await.unwrap_err(),
    ] {
        assert!(error.is_unavailable(), "{error}");
    }
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    store.start(true);
    assert!(patient.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_patient_task_stays_when_a_try_that_asked_for_both_fails() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    store.stop();
    let mutex = a.locks.mutex("x");
    let tries = tokio::spawn(async move { mutex.try_lock().await });
    settle().await;
    let patient = lock_later(&a.locks, "x");
    assert!(tries.await.unwrap().unwrap_err().is_unavailable());
    sleep(Duration::from_secs(10)).await;
    store.start(true);
    assert!(patient.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_with_fail_fast_hears_of_an_outage_when_its_place_is_lost() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let _held = a.locks.mutex("x").lock().await.unwrap();
    let mutex = b.locks.mutex("x").fail_fast(true);
    let waits = tokio::spawn(async move { mutex.lock().await });
    sleep(Duration::from_secs(1)).await;
    store.stop();
    let stopped = Instant::now();
    assert!(waits.await.unwrap().unwrap_err().is_unavailable());
    assert!(stopped.elapsed() < TTL + Duration::from_secs(1), "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiting_that_is_dropped_during_an_outage_leaves_nothing_behind() {
    for faults in [INSTANT, Faults { lost_answer: 1_000, ..SLOW }] {
        let store = store(faults);
        let a = client(&store, 1);
        if faults.lost_answer == 0 {
            store.stop();
        }
        for after in [0, 10, 200, 5_000, 100_000] {
            let waits = lock_later(&a.locks, "x");
            sleep(Duration::from_millis(after)).await;
            waits.abort();
        }
        store.start(true);
        store.heal();
        sleep(Duration::from_secs(10)).await;
        assert!(a.locks.mutex("x").try_lock().await.unwrap().is_some());
        sleep(TTL).await;
        assert!(store.left_behind().is_empty(), "{:?}", store.left_behind());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_during_an_outage_does_not_wait_for_the_store() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    store.stop();
    let waits = lock_later(&a.locks, "x");
    sleep(OUTAGE).await;
    let asked = Instant::now();
    assert_eq!(a.locks.shutdown(Duration::from_secs(10)).await, 0);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(waits.await.unwrap().unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_heal_is_an_error_at_once_however_patient_one_is() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    store.deny(true);
    let asked = Instant::now();
    let error = a.locks.mutex("x").lock().await.unwrap_err();
    assert!(error.is_denied() && asked.elapsed().is_zero(), "{error}");
    // Also if it turns out after a while.
    store.deny(false);
    store.stop();
    let waits = lock_later(&a.locks, "x");
    sleep(OUTAGE).await;
    store.deny(true);
    store.start(true);
    assert!(waits.await.unwrap().unwrap_err().is_denied());
}

#[tokio::test(start_paused = true)]
async fn the_first_that_waits_asks_every_two_seconds_and_those_further_back_less_often() {
    let store = store(SLOW);
    let holder = client(&store, 1);
    let _held = holder.locks.mutex("x").lock().await.unwrap();
    let mut waiting = Vec::new();
    for number in 2..26 {
        let client = client(&store, number);
        let waits = lock_later(&client.locks, "x");
        sleep(Duration::from_millis(10)).await;
        waiting.push((client, waits));
    }
    sleep(Duration::from_secs(60)).await;
    let asked: Vec<usize> =
        waiting.iter().map(|(client, _)| client.calls.of(&client.calls.renewed)).collect();
    assert!(asked[0] >= 28, "{asked:?}");
    assert!((13..=16).contains(&asked[1]), "{asked:?}");
    // The leases of those behind are renewed in time all the same.
    assert!(asked[4..].iter().all(|asked| (5..=8).contains(asked)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn claims_of_a_client_that_wait_are_asked_about_together_and_none_of_them_less_often() {
    const LOCKS: usize = 20;
    let store = store(SLOW);
    let (holder, waiter) = (client(&store, 1), client(&store, 2));
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..LOCKS {
        let name = format!("x{number}");
        held.push(holder.locks.mutex(name.as_str()).lock().await.unwrap());
        waiting.push(lock_later(&waiter.locks, &name));
        sleep(Duration::from_millis(95)).await;
    }
    let calls = || (waiter.calls.of(&waiter.calls.renew), waiter.calls.of(&waiter.calls.renewed));
    let before = calls();
    sleep(Duration::from_secs(60)).await;
    let (asked, claims) = (calls().0 - before.0, calls().1 - before.1);
    // Each is the first in its line, and asks every two seconds.
    assert!((29 * LOCKS..=33 * LOCKS).contains(&claims), "{claims} answers");
    // Alone, each would ask on its own: thirty times as often as one.
    assert!(asked <= 120, "{asked} questions about {claims} claims");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_became_the_first_makes_up_for_a_lost_push_as_soon_as_any_first() {
    let store = store(Faults { lost_push: 1_000, ..SLOW });
    let (a, b, c) = (client(&store, 1), client(&store, 2), client(&store, 3));
    let first = a.locks.mutex("x").lock().await.unwrap();
    let second = lock_later(&b.locks, "x");
    sleep(Duration::from_millis(10)).await;
    let third = lock_later(&c.locks, "x");
    sleep(Duration::from_secs(1)).await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    // It has asked since, and knows that it is the first.
    sleep(Duration::from_secs(20)).await;
    second.release().await.unwrap();
    let freed = Instant::now();
    assert!(third.await.unwrap().unwrap().is_held());
    assert!(freed.elapsed() < Duration::from_secs(3), "{:?}", freed.elapsed());
}
