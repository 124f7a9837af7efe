//! Leases, renewal and loss, in paused time on a store that can be broken.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

mod common;

use std::time::Duration;

use common::{INSTANT, TTL, client, settle, store};
use tidelock::LockState;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_for_as_long_as_its_guard_lives() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("x").lock().await.unwrap();
    for _ in 0..100 {
        sleep(TTL / 2).await;
        assert_eq!(guard.state(), LockState::Held);
        assert!(b.locks.mutex("x").try_lock().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn the_keeper_declares_loss_before_the_store_can_grant_again() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("x").lock().await.unwrap();
    let other = b.locks.clone();
    let next = tokio::spawn(async move {
        let next = other.mutex("x").lock().await.unwrap();
        (Instant::now(), next.token())
    });
    sleep(Duration::from_secs(1)).await;
    store.cut(a.id, true);
    let why = guard.lost().await;
    let lost_at = Instant::now();
    assert!(why.is_lost(), "{why}");
    assert!(!guard.is_held() && guard.valid_for().is_zero());
    let (got_at, token) = next.await.unwrap();
    assert!(lost_at < got_at, "lost {:?} after the next one got it", lost_at - got_at);
    assert!(token > guard.token());
    store.cut(a.id, false);
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_short_cut_makes_a_holder_uncertain_and_then_sure_again() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let guard = a.locks.mutex("x").lock().await.unwrap();
    store.cut(a.id, true);
    sleep(TTL / 3 + Duration::from_secs(6)).await;
    assert_eq!(guard.state(), LockState::Uncertain);
    assert!(guard.is_held());
    store.cut(a.id, false);
    sleep(Duration::from_secs(7)).await;
    assert_eq!(guard.state(), LockState::Held);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_finds_its_locks_lost() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let guard = a.locks.mutex("x").lock().await.unwrap();
    a.clock.jump(Duration::from_secs(3_600));
    assert_eq!(guard.state(), LockState::Lost);
    assert!(
        guard
            .release()
            .await
            .unwrap_err()
            .to_string()
            .contains("no renewal confirmed for 1h00m of a 30s lease")
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgot_a_lock_makes_it_lost_at_the_next_renewal() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let guard = a.locks.mutex("x").lock().await.unwrap();
    store.stop();
    store.start(false);
    let why = tokio::time::timeout(TTL / 2, guard.lost()).await.unwrap();
    assert!(why.to_string().contains("does not know the claim"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_holder_is_told_at_once() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("x").lock().await.unwrap();
    let seen = b.locks.look(&["x"]).await.unwrap();
    b.locks.evict("x", seen[0].holders[0].id, "maintenance").await.unwrap();
    let asked = Instant::now();
    let why = guard.lost().await;
    assert!(asked.elapsed() < Duration::from_millis(5));
    assert!(why.to_string().contains("taken away by force (maintenance)"), "{why}");
    let next = b.locks.mutex("x").try_lock().await.unwrap().unwrap();
    assert!(next.token() > guard.token());
}

#[tokio::test(start_paused = true)]
async fn without_renewal_a_lock_ends_with_its_ttl_and_others_get_it() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("x").auto_renew(false).lock().await.unwrap();
    assert!(guard.valid_for() < TTL);
    guard.lost().await;
    settle().await;
    assert!(b.locks.mutex("x").try_lock_for(Duration::from_secs(1)).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hold_and_gives_it_to_the_next() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let mutex = a.locks.mutex("x").max_hold(Duration::from_secs(5));
    let guard = mutex.lock().await.unwrap();
    let waits = a.locks.clone();
    let next = tokio::spawn(async move { waits.mutex("x").max_hold(Duration::from_secs(5)).lock().await });
    let asked = Instant::now();
    let why = guard.lost().await;
    assert_eq!(asked.elapsed().as_secs(), 5);
    assert!(why.to_string().contains("max_hold"), "{why}");
    let next = next.await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert!(next.valid_for() > Duration::from_secs(4), "the limit begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_pushed_grant_counts_from_when_it_was_last_known_to_wait() {
    // More than an eighth of the short lease is gone by then, and little of the long one.
    for (ttl, at_once) in [(Duration::from_secs(10), true), (TTL, false)] {
        let store = store(INSTANT);
        let (a, b) = (client(&store, 1), client(&store, 2));
        let first = a.locks.mutex("x").lock().await.unwrap();
        let waits = b.locks.clone();
        let second = tokio::spawn(async move {
            let guard = waits.mutex("x").ttl(ttl).lock().await.unwrap();
            // Looked at before a renewal that follows at once is answered.
            (guard.valid_for(), guard)
        });
        sleep(Duration::from_millis(1_500)).await;
        first.release().await.unwrap();
        let (at_first, second) = second.await.unwrap();
        assert!(at_first <= ttl * 99 / 100 - Duration::from_millis(1_500), "{at_first:?}");
        sleep(Duration::from_millis(50)).await;
        assert_eq!(second.valid_for() > ttl * 98 / 100, at_once, "{:?}", second.valid_for());
        // Renewed when it is due, at the latest.
        sleep(ttl / 3).await;
        assert!(second.valid_for() > ttl * 6 / 10, "{:?}", second.valid_for());
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_locks_are_renewed_in_few_calls() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let mut guards = Vec::new();
    for i in 0..1_000 {
        guards.push(a.locks.mutex(format!("orders/{i}")).lock().await.unwrap());
        sleep(Duration::from_millis(7)).await;
    }
    let (calls, claims) = (a.calls.of(&a.calls.renew), a.calls.of(&a.calls.renewed));
    sleep(Duration::from_secs(60)).await;
    let (calls, claims) = (a.calls.of(&a.calls.renew) - calls, a.calls.of(&a.calls.renewed) - claims);
    assert!(claims >= 5_000, "{claims} renewals in two leases");
    // The store takes batches of 8.
    assert!(calls <= claims / 7, "{calls} calls for {claims} renewals");
    assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
}

#[tokio::test(start_paused = true)]
async fn run_stops_its_work_when_the_lock_is_lost() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let mutex = a.locks.mutex("x");
    let work = mutex.run(|held| async move {
        sleep(TTL * 10).await;
        held.token()
    });
    let cut = async {
        sleep(Duration::from_secs(1)).await;
        store.cut(a.id, true);
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = cut => unreachable!(),
    };
    assert!(outcome.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_result_and_the_lock_back() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let token = a.locks.mutex("x").run(|held| async move { held.token() }).await.unwrap();
    let next = b.locks.mutex("x").try_lock().await.unwrap().unwrap();
    assert!(next.token() > token);
}
