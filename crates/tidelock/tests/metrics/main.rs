//! The figures are right on every path by which a hold or a wait can end.
#![allow(clippy::disallowed_methods, reason = "a test spawns the tasks that it is about")]

mod recorder;
mod storm;

use std::time::Duration;

use recorder::Figures;
use tidelock::{
    Locks,
    backend::ClientId,
    testing::{
        Clock,
        defect::Defects,
        faulty::{Faults, FaultyStore},
        take_away,
    },
};

async fn memory() -> Locks {
    Locks::builder("memory:").clock(&Clock::tokio()).connect().await.expect("a store in memory")
}

/// Polls a future once: it stands in line afterwards.
async fn begin<F: Future + Unpin>(future: &mut F) {
    let once = std::future::poll_fn(|context| {
        assert!(std::pin::Pin::new(&mut *future).poll(context).is_pending());
        std::task::Poll::Ready(())
    });
    once.await;
}

#[test]
fn a_lock_is_held_from_its_grant_to_its_release_or_drop() {
    let figures = Figures::of(|figures| async move {
        let locks = memory().await;
        let released = locks.mutex("a").lock().await.unwrap();
        let dropped = locks.mutex("b").lock().await.unwrap();
        assert_eq!(figures.levels(), (2.0, 0.0));
        tokio::time::advance(Duration::from_secs(2)).await;
        released.release().await.unwrap();
        assert_eq!(figures.levels(), (1.0, 0.0));
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(dropped);
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
    let held = figures.all("tidelock_hold_seconds{store=memory}");
    assert_eq!(held.iter().map(|time| time.round()).collect::<Vec<_>>(), [2.0, 3.0]);
    assert_eq!(figures.now("tidelock_acquired_total{store=memory,outcome=held}"), 2.0);
}

#[test]
fn an_owner_that_re_enters_holds_one_lock() {
    let figures = Figures::of(|figures| async move {
        let locks = memory().await;
        let mutex = locks.mutex("a").owner("me");
        let outer = mutex.lock().await.unwrap();
        let inner = mutex.lock().await.unwrap();
        assert_eq!(figures.levels(), (1.0, 0.0));
        outer.release().await.unwrap();
        assert_eq!(figures.levels(), (1.0, 0.0));
        inner.release().await.unwrap();
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
    assert_eq!(figures.all("tidelock_hold_seconds{store=memory}").len(), 1);
}

#[test]
fn a_hand_off_ends_one_hold_and_begins_the_next() {
    let figures = Figures::of(|figures| async move {
        let locks = memory().await;
        let mutex = locks.mutex("a");
        let first = mutex.lock().await.unwrap();
        let mut second = Box::pin(mutex.lock());
        begin(&mut second).await;
        assert_eq!(figures.levels(), (1.0, 1.0));
        first.release().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(figures.levels(), (1.0, 0.0));
        drop(second);
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
    assert_eq!(figures.now("tidelock_handed_off_total{store=memory}"), 1.0);
    assert_eq!(figures.all("tidelock_hold_seconds{store=memory}").len(), 2);
}

#[test]
fn a_lock_that_is_lost_is_not_held_though_its_guard_lives() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let limited = locks.mutex("a").max_hold(Duration::from_secs(1)).lock().await.unwrap();
        limited.lost().await;
        assert_eq!(figures.levels(), (0.0, 0.0));
        drop(limited);
        let evicted = locks.mutex("b").lock().await.unwrap();
        let mutex = locks.mutex("b");
        let mut next = Box::pin(mutex.lock());
        begin(&mut next).await;
        take_away(&locks, "b", "a test").await.unwrap();
        evicted.lost().await;
        let next = next.await.unwrap();
        assert_eq!(figures.levels(), (1.0, 0.0));
        drop((evicted, next));
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn a_wait_that_is_cancelled_or_times_out_ends() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let _held = locks.mutex("a").lock().await.unwrap();
        let mutex = locks.mutex("a");
        let mut cancelled = Box::pin(mutex.lock());
        begin(&mut cancelled).await;
        assert_eq!(figures.levels(), (1.0, 1.0));
        drop(cancelled);
        assert_eq!(figures.levels(), (1.0, 0.0));
        assert!(locks.mutex("a").wait(Duration::from_secs(1)).lock().await.is_err());
        assert!(mutex.try_lock().await.unwrap().is_none());
        assert_eq!(figures.levels(), (1.0, 0.0));
    });
}

#[test]
fn a_shutdown_leaves_nothing_held_and_nobody_waiting() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let _kept = locks.mutex("a").lock().await.unwrap();
        let mutex = locks.mutex("a");
        let mut waits = Box::pin(mutex.lock());
        begin(&mut waits).await;
        assert_eq!(locks.shutdown(Duration::from_secs(1)).await, 1);
        assert!(waits.await.is_err());
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn a_client_that_is_dropped_before_its_guards_holds_until_they_go() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let guard = locks.mutex("a").lock().await.unwrap();
        drop(locks);
        assert_eq!(figures.levels(), (1.0, 0.0));
        drop(guard);
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn work_that_panics_holds_nothing_afterwards() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let guard = locks.mutex("a").lock().await.unwrap();
        let work = tokio::spawn(guard.run(|_| async { panic!("as a test wants it") }));
        assert!(work.await.unwrap_err().is_panic());
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn several_names_are_several_locks_and_half_of_them_are_none() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let all = locks.multi(["a", "b", "c"]).lock().await.unwrap();
        assert_eq!(figures.levels(), (3.0, 0.0));
        assert!(locks.multi(["d", "c"]).try_lock().await.unwrap().is_none());
        assert_eq!(figures.levels(), (3.0, 0.0));
        all.release().await.unwrap();
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn readers_and_permits_are_counted_one_by_one() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let shared = locks.rw_lock("a");
        let readers = (shared.read().await.unwrap(), shared.read().await.unwrap());
        let permit = locks.semaphore("b", 3).acquire(2).await.unwrap();
        assert_eq!(figures.levels(), (3.0, 0.0));
        drop((readers, permit));
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn what_is_left_behind_is_not_held_by_this_process() {
    Figures::of(|figures| async move {
        let locks = memory().await;
        let guard = locks.mutex("a").detached(true).lock().await.unwrap();
        let ticket = guard.leave_behind().unwrap();
        assert_eq!(figures.levels(), (0.0, 0.0));
        locks.release(&ticket).await.unwrap();
        let kept = locks.mutex("b").hold_at_least(Duration::from_secs(5)).lock().await.unwrap();
        kept.release().await.unwrap();
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting_and_a_guard_still_counts_itself_out() {
    let figures = Figures::default();
    metrics::with_local_recorder(&figures, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            let locks = Locks::connect("memory:").await.unwrap();
            let guard = locks.mutex("a").lock().await.unwrap();
            tokio::spawn(async move { locks.mutex("a").lock().await.map(drop) });
            while figures.levels() != (1.0, 1.0) {
                tokio::task::yield_now().await;
            }
            guard
        });
        drop(runtime);
        assert_eq!(figures.levels(), (1.0, 0.0));
        drop(guard);
        assert_eq!(figures.levels(), (0.0, 0.0));
    });
}

#[test]
fn a_recorder_that_is_installed_late_does_not_see_less_than_nothing() {
    let figures = Figures::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = Locks::connect("memory:").await.unwrap();
        let guard = locks.mutex("a").lock().await.unwrap();
        (locks, guard)
    });
    metrics::with_local_recorder(&figures, || {
        runtime.block_on(async {
            guard.release().await.unwrap();
            assert_eq!(figures.levels(), (0.0, 0.0));
            let _held = locks.mutex("b").lock().await.unwrap();
            assert_eq!(figures.levels(), (1.0, 0.0));
        });
    });
}

#[test]
fn names_are_labels_only_if_asked_for_and_only_as_patterns() {
    let figures = Figures::of(|_| async {
        let builder = Locks::builder("memory:").metrics_groups(["orders/*", "report"]);
        let locks = builder.connect().await.unwrap();
        for n in 0..100 {
            locks.mutex(format!("orders/{n}")).lock().await.unwrap().release().await.unwrap();
            locks.mutex(format!("visits/{n}")).lock().await.unwrap().release().await.unwrap();
        }
        locks.mutex("report").lock().await.unwrap().release().await.unwrap();
    });
    for (group, count) in [("orders/*", 100), ("report", 1), ("other", 100)] {
        assert_eq!(
            figures.now(&format!("tidelock_acquired_total{{store=memory,group={group},outcome=held}}")),
            f64::from(count)
        );
        assert_eq!(
            figures.all(&format!("tidelock_hold_seconds{{store=memory,group={group}}}")).len(),
            count as usize
        );
    }
    assert_eq!(figures.keys().iter().filter(|key| key.starts_with("tidelock_locks_held")).count(), 3);
    let refused = Figures::of(|_| async {
        let many = (0..65).map(|n| format!("{n}/*"));
        let error = Locks::builder("memory:").metrics_groups(many).connect().await.unwrap_err();
        assert!(error.to_string().contains("at most 64"), "{error}");
    });
    assert_eq!(refused.keys(), [""; 0]);
}

#[test]
fn counters_that_alerts_watch_begin_at_zero() {
    let figures = Figures::of(|_| async {
        Locks::builder("memory:").metrics_groups(["orders/*"]).connect().await.unwrap();
    });
    for group in ["orders/*", "other"] {
        let key = format!("tidelock_lost_total{{store=memory,group={group},reason=expired}}");
        assert_eq!(figures.all(&key), [0.0], "{:?}", figures.keys());
    }
    assert_eq!(figures.all("tidelock_renewed_late_total{store=memory}"), [0.0]);
}

#[test]
fn renewals_are_timed_and_late_ones_are_counted() {
    let figures = Figures::of(|figures| async move {
        let faults = Faults { delay_ms: 10, ..Faults::default() };
        let store = FaultyStore::new(1, faults, Clock::driven(0), Defects::NONE);
        let id = ClientId::from_u64(1);
        let locks = Locks::on_clock(store.connect(id), Clock::driven(0), Defects::NONE);
        let held = locks.mutex("a").ttl(Duration::from_secs(30)).lock().await.unwrap();
        let renewed = || figures.all("tidelock_renewal_seconds{store=faulty}").len();
        while renewed() == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(figures.now("tidelock_renewed_late_total{store=faulty}"), 0.0);
        store.cut(id, true);
        tokio::time::sleep(Duration::from_secs(25)).await;
        store.cut(id, false);
        let before = renewed();
        while renewed() == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(held.is_held());
        assert_eq!(figures.now("tidelock_renewed_late_total{store=faulty}"), 1.0);
    });
    assert!(figures.now("tidelock_renewal_failed_total{store=faulty}") >= 1.0);
}
