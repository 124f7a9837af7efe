//! What a release says about a lock that the store no longer knew, in paused time on a store that can be broken.
#![cfg(feature = "testing")]

mod common;

use std::time::Duration;

use common::{INSTANT, SLOW, client, settle, store};
use tidelock::testing::faulty::Faults;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_release_of_a_lock_that_the_store_forgot_is_a_loss() {
    for faults in [INSTANT, SLOW] {
        let store = store(faults);
        let a = client(&store, 1);
        let guard = a.locks.mutex("orders/42").lock().await.unwrap();
        store.forget("orders/42");
        let error = guard.release().await.unwrap_err();
        assert!(error.is_lost());
        assert_eq!(
            error.to_string(),
            r#"lost lock "orders/42" on faulty before its release: the store did not know the claim any more; others may have held it meanwhile, so check what was done under it"#
        );
    }
}

#[tokio::test(start_paused = true)]
async fn run_says_that_the_lock_was_gone_though_the_work_was_done() {
    let store = store(SLOW);
    let a = client(&store, 1);
    let work = |_| async { store.forget("x") };
    assert!(a.locks.mutex("x").run(work).await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_release_of_several_names_says_which_one_was_gone_and_gives_back_the_others() {
    let store = store(SLOW);
    let a = client(&store, 1);
    let guards = a.locks.lock_all(["a", "b", "c"]).await.unwrap();
    store.forget("b");
    let error = guards.release().await.unwrap_err();
    assert!(error.is_lost() && error.lock().is_some_and(|lock| lock.as_str() == "b"), "{error}");
    assert!(store.left_behind().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_repeated_after_a_lost_answer_is_a_success() {
    let store = store(SLOW);
    let a = client(&store, 1);
    let guard = a.locks.mutex("x").lock().await.unwrap();
    store.set_faults(Faults { lost_answer: 1_000, ..SLOW });
    let heal = async {
        // The first answer is lost by then, and the claim removed.
        sleep(Duration::from_secs(1)).await;
        assert!(store.left_behind().is_empty());
        store.heal();
    };
    let (released, ()) = tokio::join!(guard.release(), heal);
    released.unwrap();
    assert!(a.calls.of(&a.calls.leave) > 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_repeated_because_the_store_was_not_reached_is_a_loss_if_the_claim_is_gone() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let guard = a.locks.mutex("x").lock().await.unwrap();
    store.stop();
    let back = async {
        sleep(Duration::from_millis(10)).await;
        store.forget("x");
        store.start(true);
    };
    let (released, ()) = tokio::join!(guard.release(), back);
    assert!(released.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_release_of_an_evicted_lock_says_for_which_reason_if_it_is_known() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = a.locks.mutex("x").lock().await.unwrap();
    let holder = store.left_behind()[0].holders[0].id;
    assert!(b.locks.evict("x", holder, "it hangs").await.unwrap());
    assert!(!b.locks.evict("x", holder, "it hangs").await.unwrap(), "it is not there any more");
    sleep(Duration::from_millis(10)).await;
    let error = guard.release().await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("it hangs"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_last_of_those_who_were_handed_a_lock_hears_that_it_was_gone() {
    let store = store(INSTANT);
    let a = client(&store, 1);
    let first = a.locks.mutex("x").lock().await.unwrap();
    let mutex = a.locks.mutex("x");
    let mut next = std::pin::pin!(mutex.lock());
    assert!(
        std::future::poll_fn(|context| std::task::Poll::Ready(next.as_mut().poll(context).is_pending()))
            .await
    );
    store.forget("x");
    first.release().await.unwrap();
    assert!(next.await.unwrap().release().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_a_forgotten_place_hears_nothing() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let _held = a.locks.mutex("x").lock().await.unwrap();
    let mutex = b.locks.mutex("x");
    let waits = mutex.try_lock_for(Duration::from_secs(1));
    let forget = async {
        sleep(Duration::from_millis(999)).await;
        store.forget("x");
    };
    let (waited, ()) = tokio::join!(waits, forget);
    assert!(waited.unwrap().is_none());
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_released_in_one_round_trip_and_once() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let ticket = a.locks.mutex("x").detached(true).lock().await.unwrap().leave_behind().unwrap();
    b.locks.release(&ticket).await.unwrap();
    assert_eq!((b.calls.of(&b.calls.renew), b.calls.of(&b.calls.leave)), (0, 1));
    let held = a.locks.mutex("x").lock().await.unwrap();
    assert!(b.locks.release(&ticket).await.unwrap_err().is_lost(), "it was released before");
    assert!(held.is_held());
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ticket_whose_release_lost_its_answer_is_released() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let ticket = a.locks.mutex("x").detached(true).lock().await.unwrap().leave_behind().unwrap();
    store.set_faults(Faults { lost_answer: 1_000, ..SLOW });
    let heal = async {
        sleep(Duration::from_secs(1)).await;
        store.heal();
    };
    let (released, ()) = tokio::join!(b.locks.release(&ticket), heal);
    released.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_push_that_comes_during_a_release_does_not_make_it_a_loss() {
    let store = store(Faults { doubled_push: 1_000, delay_ms: 20, ..SLOW });
    let (a, b) = (client(&store, 1), client(&store, 2));
    let waits = b.locks.mutex("x");
    for _ in 0..100 {
        let guard = a.locks.mutex("x").lock().await.unwrap();
        let (next, ()) = tokio::join!(waits.lock(), async {
            while !store.has_waiting(b.id) {
                sleep(Duration::from_millis(1)).await;
            }
            guard.release().await.unwrap();
        });
        // The second push may come now: its grant is left too, and one of the two leaves finds nothing.
        next.unwrap().release().await.unwrap();
    }
    assert!(store.left_behind().is_empty());
}
