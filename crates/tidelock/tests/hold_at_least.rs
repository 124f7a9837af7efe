//! Locks that are kept for a shortest time, in paused time on a store that can be broken.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks and measure paused time")]

mod common;

use std::time::Duration;

use common::{INSTANT, SLOW, TTL, client, settle, store};
use tokio::time::{Instant, sleep};

const SHORT: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_or_dropped_early_is_kept_for_the_rest_of_the_time_and_no_longer() {
    for (faults, dropped) in [(INSTANT, false), (INSTANT, true), (SLOW, false), (SLOW, true)] {
        let store = store(faults);
        let (a, b) = (client(&store, 1), client(&store, 2));
        let guard = a.locks.mutex("job").hold_at_least(SHORT).lock().await.unwrap();
        let (granted, holding) = (Instant::now(), guard.holding());
        sleep(Duration::from_secs(2)).await;
        if dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        assert!(granted.elapsed() < Duration::from_secs(3), "nobody waits for the rest of the time");
        assert!(!holding.is_held());
        // The client itself is kept out, too.
        assert!(a.locks.mutex("job").try_lock().await.unwrap().is_none());
        let next = b.locks.mutex("job").lock().await.unwrap();
        let kept = granted.elapsed();
        assert!(kept >= SHORT && kept < SHORT + Duration::from_secs(3), "{kept:?}");
        assert!(next.token() > holding.token());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_held_for_long_enough_is_free_at_once() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("job").hold_at_least(SHORT).lock().await.unwrap();
    sleep(LONG).await;
    guard.release().await.unwrap();
    assert!(b.locks.mutex("job").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_process_that_is_gone_is_at_least_as_long() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let granted = Instant::now();
    let guard = a.locks.mutex("job").hold_at_least(LONG).lock().await.unwrap();
    // From here on the store hears nothing of it, as of a process that is killed.
    store.cut(a.id, true);
    drop(guard);
    let next = b.locks.mutex("job").lock().await;
    assert!(granted.elapsed() >= LONG && granted.elapsed() < LONG + TTL, "{:?}", granted.elapsed());
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waited_in_line_is_kept_for_the_whole_time_after_its_grant() {
    let store = store(SLOW);
    let (a, b, c) = (client(&store, 1), client(&store, 2), client(&store, 3));
    let first = a.locks.mutex("job").lock().await.unwrap();
    let waits = tokio::spawn({
        let locks = b.locks.clone();
        async move { locks.mutex("job").hold_at_least(LONG).lock().await.unwrap() }
    });
    // Its place was renewed some time ago when it is granted.
    sleep(Duration::from_secs(90)).await;
    first.release().await.unwrap();
    let second = waits.await.unwrap();
    let granted = Instant::now();
    second.release().await.unwrap();
    // The process ends now.
    store.cut(b.id, true);
    drop(c.locks.mutex("job").lock().await.unwrap());
    assert!(granted.elapsed() >= LONG && granted.elapsed() < LONG + TTL, "{:?}", granted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_free_for_others_and_its_release_says_so() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("job").hold_at_least(LONG).lock().await.unwrap();
    // Nobody has told its holder.
    store.forget("job");
    assert!(guard.release().await.unwrap_err().is_lost());
    let guard = b.locks.mutex("job").hold_at_least(LONG).lock().await.unwrap();
    let holder = store.left_behind()[0].holders[0].id;
    assert!(a.locks.evict("job", holder, "by hand").await.unwrap());
    guard.lost().await;
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(a.locks.mutex("job").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_can_be_broken() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    a.locks.mutex("job").hold_at_least(LONG).lock().await.unwrap().release().await.unwrap();
    let holder = store.left_behind()[0].holders[0].id;
    assert!(b.locks.evict("job", holder, "by hand").await.unwrap());
    let next = b.locks.mutex("job").try_lock().await.unwrap().expect("it is free");
    // When the time has come, nothing of the next holder is given back.
    sleep(LONG + TTL).await;
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_the_rest_of_the_time_and_does_not_shorten_it() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let granted = Instant::now();
    a.locks.mutex("job").hold_at_least(LONG).lock().await.unwrap().release().await.unwrap();
    assert_eq!(a.locks.shutdown(LONG).await, 0);
    settle().await;
    assert!(granted.elapsed() < Duration::from_secs(2), "{:?}", granted.elapsed());
    drop(b.locks.mutex("job").lock().await.unwrap());
    assert!(granted.elapsed() >= LONG, "{:?}", granted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_reported_and_the_lock_is_given_back_when_it_does() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("job").hold_at_least(LONG).lock().await.unwrap();
    let granted = Instant::now();
    store.stop();
    assert!(guard.release().await.unwrap_err().is_unavailable());
    store.start(true);
    drop(b.locks.mutex("job").lock().await.unwrap());
    assert!(granted.elapsed() >= LONG && granted.elapsed() < LONG + TTL, "{:?}", granted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn several_names_are_kept_only_if_all_were_held() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let taken = b.locks.mutex("b").lock().await.unwrap();
    let both = a.locks.multi(["a", "b"]).hold_at_least(LONG);
    assert!(both.try_lock().await.unwrap().is_none());
    sleep(Duration::from_secs(1)).await;
    drop(b.locks.mutex("a").try_lock().await.unwrap().expect("nobody ran anything under it"));
    taken.release().await.unwrap();
    both.lock().await.unwrap().release().await.unwrap();
    for name in ["a", "b"] {
        assert!(b.locks.mutex(name).try_lock().await.unwrap().is_none(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn contradictory_options_are_refused_in_one_sentence_and_hold_nothing() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let job = || a.locks.mutex("job").hold_at_least(LONG);
    let day = Duration::from_secs(24 * 3_600);
    for (wrong, part) in [
        (job().owner("worker-7"), "leave out owner or hold_at_least"),
        (job().max_hold(SHORT), "max_hold of 10s is shorter than hold_at_least of 300s"),
        (job().auto_renew(false), "set a longer ttl"),
        (job().hold_at_least(day * 2), "at most 86400s are allowed: use `once`"),
    ] {
        let error = wrong.lock().await.unwrap_err();
        assert!(error.is_invalid_option() && error.to_string().contains(part), "{error}");
    }
    assert!(store.left_behind().is_empty());
    // Nothing to keep is nothing special.
    job().hold_at_least(Duration::ZERO).owner("worker-7").lock().await.unwrap().release().await.unwrap();
    assert!(store.left_behind().is_empty());
}
