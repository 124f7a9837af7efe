//! Acquiring, waiting, cancelling and giving back, in paused time on a store that can be broken.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

mod common;

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use common::{INSTANT, SLOW, TTL, client, settle, store};
use tidelock::{Locks, testing::faulty::Faults};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_and_takes_one_place() {
    let store = store(Faults { lost_answer: 500, ..SLOW });
    let a = client(&store, 1);
    for _ in 0..50 {
        let guard = a.locks.mutex("x").lock().await.unwrap();
        let seen = store.left_behind();
        assert_eq!(seen[0].holders.len() + seen[0].waiters.len(), 1);
        drop(guard);
        // Wait until it is given back, answers lost or not.
        while !store.left_behind().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_push_is_made_up_for() {
    let store = store(Faults { lost_push: 1_000, ..SLOW });
    let (a, b) = (client(&store, 1), client(&store, 2));
    let first = a.locks.mutex("x").lock().await.unwrap();
    let second = b.locks.clone();
    let second = tokio::spawn(async move { second.mutex("x").lock().await.unwrap() });
    sleep(Duration::from_secs(1)).await;
    first.release().await.unwrap();
    let freed = Instant::now();
    drop(second.await.unwrap());
    assert!(freed.elapsed() < Duration::from_secs(3), "{:?}", freed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_cancel_is_given_back() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    for after in 0..8 {
        let first = a.locks.mutex("x").lock().await.unwrap();
        let mutex = b.locks.mutex("x");
        let second = timeout(Duration::from_millis(40 + after), mutex.lock());
        let release = async {
            sleep(Duration::from_millis(38)).await;
            first.release().await.unwrap();
        };
        let (second, ()) = tokio::join!(second, release);
        drop(second);
        while !store.left_behind().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(a.locks.mutex("x").try_lock().await.unwrap().is_some());
        while !store.left_behind().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Polls an acquire `polls` times, then drops it. Says whether it came to its end.
async fn drop_after(locks: &Locks, polls: usize, limit: Option<Duration>) -> bool {
    let mutex = locks.mutex("x").ttl(Duration::from_secs(1));
    let mut acquire = pin!(async {
        match limit {
            Some(limit) => mutex.try_lock_for(limit).await,
            None => mutex.lock().await.map(Some),
        }
    });
    for _ in 0..polls {
        if let Poll::Ready(got) = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            drop(got);
            return true;
        }
        sleep(Duration::from_millis(1)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_acquires_dropped_at_every_poll_leave_nothing_behind() {
    let mut dropped = 0;
    for (seed, faults) in
        [SLOW, INSTANT, Faults { lost_answer: 100, lost_push: 100, ..SLOW }].into_iter().enumerate()
    {
        let store = store(faults);
        let clients: Vec<_> = (0..4).map(|i| client(&store, seed as u64 * 10 + i)).collect();
        for round in 0..3_400_usize {
            // Every other one meets a lock that is held by somebody else.
            let held = if round % 2 == 0 {
                None
            } else {
                clients[0].locks.mutex("x").try_lock().await.unwrap_or(None)
            };
            let limit = (round % 3 == 0).then(|| Duration::from_millis(round as u64 % 7 + 1));
            drop_after(&clients[round % 4].locks, round % 13, limit).await;
            dropped += 1;
            drop(held);
        }
        let deadline = Instant::now() + TTL;
        while !store.left_behind().is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        assert!(store.left_behind().is_empty(), "{:?}", store.left_behind());
        for client in &clients {
            assert_eq!(client.locks.shutdown(Duration::ZERO).await, 0, "a lock was still held");
        }
    }
    assert!(dropped >= 10_000);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_hand_a_lock_on_without_a_message() {
    let store = store(SLOW);
    let a = client(&store, 1);
    let first = a.locks.mutex("x").lock().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let locks = a.locks.clone();
        tasks.spawn(async move {
            let guard = locks.mutex("x").lock().await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            token
        });
    }
    settle().await;
    let before = first.token();
    first.release().await.unwrap();
    let mut tokens = vec![before];
    while let Some(token) = tasks.join_next().await {
        tokens.push(token.unwrap());
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "each has its own, larger token");
    assert_eq!((a.calls.of(&a.calls.enter), a.calls.of(&a.calls.leave)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_busy_process_lets_another_one_in() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    for _ in 0..4 {
        let locks = a.locks.clone();
        tokio::spawn(async move {
            loop {
                let guard = locks.mutex("x").lock().await.unwrap();
                sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
        });
    }
    sleep(Duration::from_millis(100)).await;
    for _ in 0..10 {
        let asked = Instant::now();
        let guard = b.locks.mutex("x").lock().await.unwrap();
        assert!(asked.elapsed() < Duration::from_millis(100), "{:?}", asked.elapsed());
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_the_same_process_is_not_passed_by_later_writers() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let first = a.locks.mutex("x").lock().await.unwrap();
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    let (reader, told) = (a.locks.clone(), done.clone());
    tokio::spawn(async move {
        let _guard = reader.rw_lock("x").read().await.unwrap();
        told.send("reader").unwrap();
    });
    settle().await;
    let writer = a.locks.clone();
    tokio::spawn(async move {
        let _guard = writer.mutex("x").lock().await.unwrap();
        done.send("writer").unwrap();
    });
    settle().await;
    first.release().await.unwrap();
    assert_eq!((order.recv().await, order.recv().await), (Some("reader"), Some("writer")));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_tasks_wait_in_order_with_one_claim() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let first = a.locks.mutex("x").lock().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..10_000 {
        let (locks, order) = (a.locks.clone(), Arc::clone(&order));
        tasks.spawn(async move {
            let guard = locks.mutex("x").lock().await.unwrap();
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        });
    }
    settle().await;
    assert_eq!(store.left_behind()[0].waiters.len(), 0, "one claim stands for all");
    first.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(order.lock().unwrap().is_sorted());
    assert!(a.calls.of(&a.calls.enter) <= 12, "{} claims", a.calls.of(&a.calls.enter));
}

#[tokio::test(start_paused = true)]
async fn a_dead_store_is_a_clear_error_at_once_to_a_try_and_to_fail_fast() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    store.stop();
    let asked = Instant::now();
    let mutex = a.locks.mutex("orders/42");
    for error in [
        mutex.try_lock().await.unwrap_err(),
        mutex.try_lock_for(Duration::ZERO).await.unwrap_err(),
        mutex.clone().wait(Duration::ZERO).lock().await.unwrap_err(),
        mutex.clone().fail_fast(true).lock().await.unwrap_err(),
        mutex.clone().fail_fast(true).wait(TTL).lock().await.unwrap_err(),
    ] {
        assert!(error.is_unavailable() && error.is_retryable());
        assert_eq!(error.to_string(), r#"faulty is not reachable for lock "orders/42": the store is down"#);
    }
    assert!(asked.elapsed() < Duration::from_secs(1));
    store.start(true);
    assert!(mutex.lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_survives_a_restart_of_the_store() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let first = a.locks.mutex("x").lock().await.unwrap();
    let second = b.locks.clone();
    let second = tokio::spawn(async move { second.mutex("x").lock().await });
    sleep(Duration::from_secs(1)).await;
    store.stop();
    sleep(Duration::from_secs(5)).await;
    store.start(true);
    first.release().await.unwrap();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiting_in_vain_says_who_holds_it() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let _held = a.locks.mutex("orders/42").label("worker-7").lock().await.unwrap();
    sleep(Duration::from_secs(7)).await;
    let error = b.locks.mutex("orders/42").wait(Duration::from_secs(5)).lock().await.unwrap_err();
    assert!(error.is_timed_out());
    assert_eq!(
        error.to_string(),
        r#"timed out after 5s waiting for lock "orders/42" on faulty; held by worker-7 for 12s"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_try_right_after_a_drop_finds_the_lock_free() {
    let store = store(SLOW);
    let a = client(&store, 1);
    for _ in 0..20 {
        let guard = a.locks.mutex("x").try_lock().await.unwrap();
        drop(guard.expect("free"));
    }
}

/// A lock of `a` is being given back, a task of `a` queues behind that, and another one tries.
async fn try_during_a_release(a: &Locks) -> (tokio::task::JoinHandle<tidelock::Guard>, bool) {
    let queues = a.clone();
    let queues = tokio::spawn(async move { queues.mutex("x").lock().await.expect("it is granted") });
    settle().await;
    let tried = timeout(Duration::from_secs(1), a.mutex("x").try_lock()).await;
    let tried = tried.expect("a try is answered while others wait").expect("the store answers");
    (queues, tried.is_some())
}

#[tokio::test(start_paused = true)]
async fn a_try_that_came_during_a_release_does_not_wait_with_those_who_queue() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let first = a.locks.mutex("x").lock().await.unwrap();
    let next = b.locks.clone();
    let next = tokio::spawn(async move { next.mutex("x").lock().await.unwrap() });
    sleep(Duration::from_millis(50)).await;
    drop(first);
    let (queues, tried) = try_during_a_release(&a.locks).await;
    assert!(!tried);
    drop(next.await.unwrap());
    queues.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_try_that_came_during_a_release_does_not_wait_for_one_that_came_before_it() {
    let store = store(SLOW);
    let a = client(&store, 1);
    drop(a.locks.mutex("x").lock().await.unwrap());
    let (queues, tried) = try_during_a_release(&a.locks).await;
    assert!(!tried);
    queues.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_waiting_drains_and_cuts_off_what_is_held() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let held = a.locks.mutex("x").lock().await.unwrap();
    let waits = a.locks.clone();
    let waits = tokio::spawn(async move { waits.rw_lock("x").read().await });
    sleep(Duration::from_millis(50)).await;
    assert_eq!(a.locks.shutdown(Duration::from_secs(2)).await, 1);
    assert!(waits.await.unwrap().unwrap_err().is_closed());
    assert!(held.lost().await.to_string().contains("shut down"));
    assert!(store.left_behind().is_empty());
    assert!(a.locks.mutex("y").lock().await.unwrap_err().is_closed());
    assert!(b.locks.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_a_shutdown_took_back_before_its_task_went_on_is_not_returned() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let first = a.locks.mutex("x").lock().await.unwrap();
    let mutex = b.locks.mutex("x");
    let mut waits = pin!(mutex.lock());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    sleep(Duration::from_millis(50)).await;
    first.release().await.unwrap();
    sleep(Duration::from_millis(50)).await;
    assert_eq!(store.left_behind()[0].holders.len(), 1, "the second one was granted the lock");
    assert_eq!(b.locks.shutdown(Duration::ZERO).await, 1);
    assert!(waits.await.unwrap_err().is_closed());
    assert!(store.left_behind().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_guards_that_are_released_in_time() {
    let store = store(SLOW);
    let a = client(&store, 1);
    let held = a.locks.mutex("x").lock().await.unwrap();
    let release = async {
        sleep(Duration::from_secs(1)).await;
        held.release().await.unwrap();
    };
    let (cut_off, ()) = tokio::join!(a.locks.shutdown(Duration::from_secs(5)), release);
    assert_eq!(cut_off, 0);
    assert!(store.left_behind().is_empty());
}

#[test]
fn a_guard_may_be_dropped_without_a_runtime_and_after_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = runtime.block_on(Locks::connect("memory:")).unwrap();
    let (x, y) = runtime
        .block_on(async { (locks.mutex("x").lock().await.unwrap(), locks.mutex("y").lock().await.unwrap()) });
    drop(x);
    runtime.block_on(async { assert!(locks.mutex("x").lock().await.is_ok()) });
    drop(runtime);
    drop(y);
}

#[tokio::test(start_paused = true)]
async fn a_panic_under_a_lock_gives_it_back() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let locks = a.locks.clone();
    let work = tokio::spawn(async move {
        let _guard = locks.mutex("x").lock().await.unwrap();
        panic!("as users do");
    });
    assert!(work.await.is_err());
    settle().await;
    assert!(store.left_behind().is_empty());
}

#[tokio::test(start_paused = true)]
async fn several_names_are_taken_without_deadlock() {
    let store = store(SLOW);
    let clients: Vec<_> = (0..4).map(|i| client(&store, i)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (i, client) in clients.iter().enumerate() {
        let locks = client.locks.clone();
        tasks.spawn(async move {
            let names = if i % 2 == 0 { ["a", "b", "c"] } else { ["c", "a", "b"] };
            for _ in 0..20 {
                let all = locks.lock_all(names).await.unwrap();
                assert!(all.is_held() && all.iter().count() == 3);
                sleep(Duration::from_millis(1)).await;
                all.release().await.unwrap();
            }
        });
    }
    let all = async { while tasks.join_next().await.is_some_and(|done| done.is_ok()) {} };
    timeout(Duration::from_secs(60), all).await.expect("nobody waits in a circle");
    let taken = clients[0].locks.mutex("b").lock().await.unwrap();
    assert!(clients[1].locks.multi(["a", "b"]).try_lock().await.unwrap().is_none());
    settle().await;
    sleep(Duration::from_millis(20)).await;
    assert!(clients[1].locks.mutex("a").try_lock().await.unwrap().is_some(), "what was taken is given back");
    drop(taken);
}

#[tokio::test]
async fn a_loop_over_free_locks_lets_other_tasks_run() {
    let locks = Locks::connect("memory:").await.unwrap();
    let looping = tokio::spawn(async move {
        loop {
            locks.mutex("x").lock().await.unwrap().release().await.unwrap();
        }
    });
    // On one thread: without a yield in the loop this would never come back.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    looping.abort();
    assert!(looping.await.unwrap_err().is_cancelled());
}
