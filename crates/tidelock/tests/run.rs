//! Work under locks with `run` and `try_run`: what happens to the lock, and which error the caller gets.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

mod common;

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{INSTANT, SLOW, client, store};
use tidelock::{Error, Holding, Locks, LossReason};

/// The error of a program: of its locks, or its own.
#[derive(Debug)]
enum Failed {
    Lock(Error),
    Work(&'static str),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

/// Runs work that fails with `try_run` of each kind of lock.
async fn each_fails(locks: &Locks) -> Result<[Result<(), Failed>; 7], Error> {
    let work = |_: Holding| async { Err(Failed::Work("no stock")) };
    let many = |_: Vec<Holding>| async { Err(Failed::Work("no stock")) };
    Ok([
        locks.mutex("a").try_run(work).await,
        locks.rw_lock("a").try_run_read(work).await,
        locks.rw_lock("a").try_run_write(work).await,
        locks.semaphore("a", 5).try_run(2, work).await,
        locks.multi(["a", "b"]).try_run(many).await,
        locks.mutex("a").lock().await?.try_run(work).await,
        locks.lock_all(["a", "b"]).await?.try_run(many).await,
    ])
}

#[tokio::test(start_paused = true)]
async fn the_works_own_error_is_returned_and_the_lock_is_released() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    for failed in each_fails(&a.locks).await.unwrap() {
        assert!(matches!(failed, Err(Failed::Work("no stock"))), "{failed:?}");
        let free = b.locks.lock_all(["a", "b"]).await.unwrap();
        free.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn run_returns_what_the_work_returns_under_every_kind_of_lock() {
    let locks = client(&store(SLOW), 1).locks;
    let one = |held: Holding| async move { u32::from(held.is_held()) };
    let many = |held: Vec<Holding>| async move { held.iter().map(|held| u32::from(held.is_held())).sum() };
    let done: [Result<u32, Error>; 7] = [
        locks.mutex("a").run(one).await,
        locks.rw_lock("a").run_read(one).await,
        locks.rw_lock("a").run_write(one).await,
        locks.semaphore("a", 5).run(5, one).await,
        locks.multi(["a", "b"]).run(many).await,
        locks.mutex("a").lock().await.unwrap().run(one).await,
        locks.lock_all(["a", "b"]).await.unwrap().run(many).await,
    ];
    assert_eq!(done.map(Result::unwrap), [1, 1, 1, 1, 2, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn run_read_shares_the_lock_and_run_write_does_not() {
    let locks = client(&store(INSTANT), 1).locks;
    let prices = locks.rw_lock("prices");
    let (can_read, can_write) = prices
        .try_run_read(|_| async {
            Ok::<_, Error>((prices.try_read().await?.is_some(), prices.try_write().await?.is_some()))
        })
        .await
        .unwrap();
    assert!(can_read && !can_write);
    let can_read =
        prices.try_run_write(|_| async { Ok::<_, Error>(prices.try_read().await?.is_some()) }).await;
    assert!(!can_read.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_the_work_runs_stops_it_and_becomes_the_error_of_the_program() {
    let store = store(SLOW);
    let (a, b) = (client(&store, 1), client(&store, 2));
    for kind in 0..5 {
        let (locks, is_dropped) = (a.locks.clone(), Arc::new(AtomicBool::new(false)));
        let dropped = OnDrop(Arc::clone(&is_dropped));
        let forever = || async move {
            let _dropped = dropped;
            pending::<Result<(), Failed>>().await
        };
        let running = tokio::spawn(async move {
            match kind {
                0 => locks.mutex("a").try_run(|_| forever()).await,
                1 => locks.rw_lock("a").try_run_read(|_| forever()).await,
                2 => locks.rw_lock("a").try_run_write(|_| forever()).await,
                3 => locks.semaphore("a", 5).try_run(2, |_| forever()).await,
                _ => locks.multi(["0", "a", "z"]).try_run(|_| forever()).await,
            }
        });
        let holder = loop {
            let seen = b.locks.look(&["a"]).await.unwrap();
            if let Some(holder) = seen.first().and_then(|view| view.holders.first()) {
                break holder.id;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert!(b.locks.evict("a", holder, "it hangs").await.unwrap());
        let failed = running.await.unwrap().unwrap_err();
        let Failed::Lock(error) = failed else { panic!("{failed:?}") };
        assert_eq!(error.loss_reason(), Some(LossReason::Evicted), "{error}");
        assert!(
            error.to_string().contains("it hangs") && error.lock().is_some_and(|name| name == "a"),
            "{error}"
        );
        assert!(is_dropped.load(Ordering::SeqCst), "the work was stopped");
        // The others of several are released too.
        b.locks.lock_all(["0", "a", "z"]).await.unwrap().release().await.unwrap();
    }
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_succeeded_is_an_error_when_the_release_finds_the_lock_gone() {
    let store = store(SLOW);
    let locks = client(&store, 1).locks;
    let forgotten = || async {
        store.forget("a");
        Ok::<(), Failed>(())
    };
    for failed in [
        locks.mutex("a").try_run(|_| forgotten()).await,
        locks.multi(["a", "b"]).try_run(|_| forgotten()).await,
    ] {
        let Err(Failed::Lock(error)) = failed else { panic!("{failed:?}") };
        assert_eq!(error.loss_reason(), Some(LossReason::Gone), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_works_own_error_is_returned_though_the_release_finds_the_lock_gone() {
    let store = store(SLOW);
    let locks = client(&store, 1).locks;
    let refused = || async {
        store.forget("a");
        Err::<(), _>(Failed::Work("the table refused the token"))
    };
    for failed in
        [locks.mutex("a").try_run(|_| refused()).await, locks.multi(["a", "b"]).try_run(|_| refused()).await]
    {
        assert!(matches!(failed, Err(Failed::Work("the table refused the token"))), "{failed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_acquired_is_the_error_of_the_program_and_no_work_runs() {
    let store = store(INSTANT);
    let (a, b) = (client(&store, 1), client(&store, 2));
    let guard = b.locks.mutex("a").lock().await.unwrap();
    let (mutex, ran) = (a.locks.mutex("a").wait(Duration::from_millis(10)), AtomicBool::new(false));
    let work = |_| async {
        ran.store(true, Ordering::SeqCst);
        Ok::<(), Failed>(())
    };
    let failed = mutex.try_run(work).await.unwrap_err();
    assert!(!ran.load(Ordering::SeqCst));
    assert!(matches!(&failed, Failed::Lock(error) if error.is_timed_out()), "{failed:?}");
    guard.release().await.unwrap();
}
