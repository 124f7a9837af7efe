//! The blocking facade: the same methods, without async.

use std::{sync::Arc, time::Duration};

use tidelock::{
    Error, ErrorKind, LossReason,
    backend::ClientId,
    backends::memory::{MemoryBackend, MemoryStore},
    blocking::Locks,
};

#[test]
fn the_blocking_facade_renews_while_the_caller_computes() {
    let locks = Locks::connect("memory:").unwrap();
    let ttl = Duration::from_millis(200);
    let guard = locks.mutex("x").ttl(ttl).lock().unwrap();
    let (tell, hear) = std::sync::mpsc::channel();
    guard.on_lost(move |why| tell.send(why).unwrap());
    std::thread::sleep(ttl * 4);
    assert!(guard.is_held(), "the caller never came back to a runtime, and still it is held");
    assert!(locks.mutex("x").try_lock().unwrap().is_none());
    let seen = locks.look(["x"]).unwrap();
    locks.evict("x", seen[0].holders[0].id, "").unwrap();
    assert!(hear.recv_timeout(Duration::from_secs(10)).unwrap().is_lost());
    assert!(guard.release().unwrap_err().is_lost());
    let both = locks.lock_all(["x", "y"]).unwrap();
    assert_eq!(both.tokens().len(), 2);
    both.release().unwrap();
    let readers = (locks.rw_lock("z").read().unwrap(), locks.rw_lock("z").try_read().unwrap().unwrap());
    assert!(locks.rw_lock("z").try_write().unwrap().is_none());
    drop(readers);
    let three = locks.semaphore("s", 5).acquire(3).unwrap();
    assert!(locks.semaphore("s", 5).try_acquire(3).unwrap().is_none());
    three.release().unwrap();
    assert_eq!(locks.shutdown(Duration::ZERO).unwrap(), 0);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real time passes for the background thread")]
fn a_callback_that_blocks_does_not_delay_the_renewals_of_other_locks() {
    // Long enough for a machine that stands still now and then.
    let ttl = Duration::from_secs(2);
    let locks = Locks::connect("memory:").unwrap();
    let (lost, kept) = (locks.mutex("lost").lock().unwrap(), locks.mutex("kept").ttl(ttl).lock().unwrap());
    let (called, is_called) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    lost.on_lost(move |_| {
        called.send(()).unwrap();
        // Until the test ends.
        let _ = ends.recv();
    });
    let holder = locks.look(["lost"]).unwrap()[0].holders[0].id;
    assert!(locks.evict("lost", holder, "a test").unwrap());
    is_called.recv().unwrap();
    let began = std::time::Instant::now();
    while began.elapsed() < 2 * ttl {
        assert!(kept.is_held());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(end);
    kept.release().unwrap();
}

#[tokio::test]
async fn the_blocking_facade_refuses_to_stop_an_async_task() {
    let error = Locks::connect("memory:").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(!error.to_string().contains('\n'), "{error}");
}

#[tokio::test]
async fn the_blocking_facade_works_where_blocking_is_allowed() {
    let token = tokio::task::spawn_blocking(|| {
        let guard = Locks::connect("memory:")?.mutex("x").lock()?;
        let token = guard.token();
        guard.release().map(|()| token)
    });
    assert!(token.await.unwrap().unwrap().get() > 0);
}

#[tokio::test]
async fn a_task_that_is_exempt_from_yielding_gets_the_same_error() {
    let error = tokio::task::unconstrained(async { Locks::connect("memory:").unwrap_err() }).await;
    assert!(error.is_would_block(), "{error}");
}

#[test]
fn every_way_to_acquire_has_a_limit_of_its_own() {
    let (locks, limit) = (Locks::connect("memory:").unwrap(), Duration::from_millis(20));
    let (rw, permits, several) =
        (locks.rw_lock("rw"), locks.semaphore("permits", 2), locks.multi(["a", "b"]));
    let writer = rw.try_write_for(limit).unwrap().expect("free");
    assert!(rw.try_read_for(limit).unwrap().is_none());
    writer.release().unwrap();
    let reader = rw.try_read_for(limit).unwrap().expect("free");
    assert!(rw.try_write_for(limit).unwrap().is_none());
    reader.release().unwrap();
    let both = permits.try_acquire_for(2, limit).unwrap().expect("free");
    assert!(permits.try_acquire_for(1, limit).unwrap().is_none());
    both.release().unwrap();
    let all = several.try_lock_for(limit).unwrap().expect("free");
    assert!(several.try_lock().unwrap().is_none() && several.try_lock_for(limit).unwrap().is_none());
    for guard in all {
        guard.release().unwrap();
    }
    assert_eq!(several.lock().unwrap().len(), 2);
}

#[test]
fn a_backend_of_the_caller_serves_the_blocking_facade() {
    let store = MemoryStore::new();
    let backend = || Arc::new(MemoryBackend::connect(Arc::clone(&store), ClientId::random()));
    let (one, other) = (Locks::with_backend(backend()), Locks::with_backend(backend()));
    assert!(one.abilities().fair && one.concerns().is_empty());
    let guard = one.mutex("x").lock().unwrap();
    assert!(other.mutex("x").try_lock().unwrap().is_none());
    let seen = other.look_all().unwrap().remove(0).holders.remove(0).id;
    assert!(one.is_own(seen) && !other.is_own(seen));
    guard.release().unwrap();
    other.mutex("x").lock().unwrap().release().unwrap();
}

#[derive(Debug)]
enum Failed {
    Lock(Error),
    Work,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[test]
fn work_that_outlives_its_lock_is_reported_when_it_has_ended() {
    let locks = Locks::connect("memory:").unwrap();
    let evict = || {
        let holder = locks.look(["x"]).unwrap()[0].holders[0].id;
        assert!(locks.evict("x", holder, "a test").unwrap());
    };
    assert_eq!(locks.mutex("x").run(|held| held.name().to_string()).unwrap(), "x");
    let lost = locks.mutex("x").run(|_| evict()).unwrap_err();
    // Told of the eviction or not before its release.
    assert!(matches!(lost.loss_reason(), Some(LossReason::Evicted | LossReason::Gone)), "{lost}");

    let failed = locks.mutex("x").try_run(|_| Err::<(), _>(Failed::Work));
    assert!(matches!(failed, Err(Failed::Work)));
    let failed = locks.mutex("x").try_run(|_| {
        evict();
        Ok::<(), Failed>(())
    });
    assert!(matches!(failed, Err(Failed::Lock(error)) if error.is_lost()));
    let count = locks.multi(["x", "y"]).run(|held| held.len()).unwrap();
    assert_eq!(count, 2);
    let permit = locks.semaphore("s", 1).run(1, |held| held.is_held()).unwrap();
    let written = locks.rw_lock("rw").run_write(|held| held.is_held()).unwrap();
    let read = locks.rw_lock("rw").run_read(|held| held.is_held()).unwrap();
    assert!(permit && written && read);
}

/// A process that may open no more files, as this program runs in it.
const NO_FILES: &str = "TIDELOCK_TEST_NO_FILES";

#[test]
#[cfg(unix)]
fn connecting_without_a_file_left_is_an_error_and_no_panic() {
    if std::env::var_os(NO_FILES).is_none() {
        let name = "connecting_without_a_file_left_is_an_error_and_no_panic";
        let this = std::env::current_exe().unwrap();
        // Enough to start the program with, and too few for a runtime.
        let mut process = std::process::Command::new("sh");
        process.args(["-c", "ulimit -n 4; exec \"$0\" --exact \"$1\" --nocapture"]).arg(this).arg(name);
        let output = process.env(NO_FILES, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let refused = Locks::connect("memory:").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoRuntime);
    assert!(refused.to_string().contains("no background thread"), "{refused}");
}
