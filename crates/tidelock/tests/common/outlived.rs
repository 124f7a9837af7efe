//! Clients that outlive the runtime they were connected on.

use std::time::Duration;

use tidelock::{Error, Guard, Locks};
use tokio::runtime::{Builder, Runtime};

const NAME: &str = "the lock";

/// What takes longer hangs. Generous: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(45);

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
    ]
}

/// A client and a lock that it holds, made on a runtime. Nobody is in its `block_on` afterwards.
async fn holds(runtime: Runtime, url: &str, ttl: Duration) -> (Runtime, Locks, Guard) {
    let url = url.to_owned();
    let work = move || {
        let (locks, guard) = runtime.block_on(async {
            let locks = Locks::connect_within(&url, PATIENCE / 2).await.unwrap();
            let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
            (locks, guard)
        });
        (runtime, locks, guard)
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn end(runtime: Runtime) {
    tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
}

#[track_caller]
fn says_that_its_runtime_has_ended(error: &Error) {
    let text = error.to_string();
    assert!(
        error.is_closed() && text.contains("the runtime this client was connected on has ended"),
        "{text}"
    );
}

pub(crate) async fn a_client_that_outlives_its_runtime_says_so_in_every_call(url: &str, ttl: Duration) {
    for runtime in runtimes() {
        let (runtime, locks, guard) = holds(runtime, url, ttl).await;
        let other = Locks::connect_within(url, PATIENCE / 2).await.unwrap();
        let holder = other.look(&[NAME]).await.unwrap()[0].holders[0].id;
        end(runtime).await;
        for error in [
            within("lock", locks.mutex(NAME).lock()).await.map(drop).unwrap_err(),
            within("lock", locks.mutex("free").lock()).await.map(drop).unwrap_err(),
            within("try_lock", locks.mutex(NAME).try_lock()).await.map(drop).unwrap_err(),
            within("read", locks.rw_lock("other").read()).await.map(drop).unwrap_err(),
            within("several", locks.lock_all(["a", "b"])).await.map(drop).unwrap_err(),
            within("look", locks.look(&[NAME])).await.map(drop).unwrap_err(),
            within("evict", locks.evict(NAME, holder, "why not")).await.map(drop).unwrap_err(),
        ] {
            says_that_its_runtime_has_ended(&error);
        }
        within("shutdown", locks.shutdown(Duration::ZERO)).await;
        drop(guard);
        within("it is free in the end", other.mutex(NAME).lock()).await.unwrap().release().await.unwrap();
    }
}

pub(crate) async fn a_lock_whose_runtime_has_ended_is_lost_when_its_lease_ends(url: &str, ttl: Duration) {
    for runtime in runtimes() {
        let (runtime, _locks, guard) = holds(runtime, url, ttl).await;
        let (holding, early) = (guard.holding(), tokio::spawn(guard.lost()));
        end(runtime).await;
        let ran = within("the work is stopped", guard.run(|_| std::future::pending::<()>())).await;
        assert!(ran.unwrap_err().is_lost());
        assert!(within("who listened before hears it", early).await.unwrap().is_lost());
        assert!(within("who listens later hears it", holding.lost()).await.is_lost());
        assert!(!holding.is_held());
    }
}

pub(crate) async fn a_lock_whose_runtime_stands_still_is_lost_when_its_lease_ends(url: &str, ttl: Duration) {
    let [one_thread, other] = runtimes();
    end(other).await;
    let (runtime, _locks, guard) = holds(one_thread, url, ttl).await;
    let ran = within("the work is stopped", guard.run(|_| std::future::pending::<()>())).await;
    assert!(ran.unwrap_err().is_lost());
    end(runtime).await;
}

pub(crate) async fn those_who_wait_when_their_runtime_ends_hear_it(url: &str, ttl: Duration) {
    let [other, runtime] = runtimes();
    end(other).await;
    let (runtime, locks, guard) = holds(runtime, url, ttl).await;
    let there = Locks::connect_within(url, PATIENCE / 2).await.unwrap();
    let held = within("it is free", there.mutex("held elsewhere").lock()).await.unwrap();
    let (same, elsewhere) = (locks.mutex(NAME), locks.mutex("held elsewhere"));
    let behind_a_task = tokio::spawn(async move { same.lock().await.map(drop) });
    let behind_a_process = tokio::spawn(async move { elsewhere.lock().await.map(drop) });
    let in_line = async {
        while there.look(&["held elsewhere"]).await.unwrap()[0].waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("it waits", in_line).await;
    end(runtime).await;
    for waiting in [behind_a_task, behind_a_process] {
        says_that_its_runtime_has_ended(&within("it is told", waiting).await.unwrap().unwrap_err());
    }
    drop(guard);
    held.release().await.unwrap();
}
