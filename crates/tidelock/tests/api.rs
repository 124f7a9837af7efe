//! The public interface: bounds and bad input.

use std::time::Duration;

use tidelock::{Error, ErrorKind, Guard, Guards, Holding, Locks, Mutex, RwLock, Semaphore, Token, blocking};

#[test]
fn everything_moves_between_threads() {
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Locks>();
    sendable::<Mutex>();
    sendable::<RwLock>();
    sendable::<Semaphore>();
    sendable::<Guard>();
    sendable::<Guards>();
    sendable::<Holding>();
    sendable::<Token>();
    sendable::<Error>();
    sendable::<blocking::Locks>();
    sendable::<blocking::Guard>();

    fn future<T: Send>(_: T) {}
    let _ = |locks: Locks| {
        let mutex = locks.mutex("x");
        future(async move {
            let guard = mutex.lock().await?;
            tokio::select! {
                _ = guard.lost() => {}
                _ = std::future::ready(()) => {}
            }
            guard.release().await
        });
    };
    let _ = |locks: Locks| {
        future(async move {
            locks.mutex("x").run(|held| async move { held.token() }).await?;
            locks.rw_lock("x").run_read(|held| async move { held.token() }).await?;
            locks.semaphore("x", 2).run(1, |held| async move { held.token() }).await?;
            locks.multi(["x"]).run(|held| async move { held.len() }).await
        });
    };
}

fn one_sentence(error: &Error) {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() > 20 && !text.ends_with('.'), "{text}");
}

#[tokio::test]
async fn bad_input_gets_a_typed_error_with_one_clear_sentence() {
    let locks = Locks::connect("memory:").await.unwrap();
    let long = "x".repeat(10_240);
    for name in ["", long.as_str(), "a\0b", "a\u{7f}"] {
        for error in [
            locks.mutex(name).lock().await.unwrap_err(),
            locks.rw_lock(name).try_read().await.unwrap_err(),
            locks.semaphore(name, 2).acquire(1).await.unwrap_err(),
            locks.lock_all(["fine", name]).await.unwrap_err(),
            locks.look(&[name]).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            one_sentence(&error);
        }
    }
    for odd in ["..", ".", "{}", "{a}", "🔒", "/", "a b"] {
        assert!(locks.mutex(odd).try_lock().await.unwrap().is_some(), "{odd:?} is a name like any other");
    }
    let day = Duration::from_secs(24 * 3_600);
    for error in [
        locks.mutex("x").ttl(Duration::ZERO).lock().await.unwrap_err(),
        locks.mutex("x").ttl(Duration::from_millis(1)).lock().await.unwrap_err(),
        locks.mutex("x").ttl(day * 2).lock().await.unwrap_err(),
        locks.mutex("x").max_hold(Duration::ZERO).lock().await.unwrap_err(),
        locks.mutex("x").owner("").lock().await.unwrap_err(),
        locks.mutex("x").label("a\nb").lock().await.unwrap_err(),
        locks.semaphore("x", 0).acquire(1).await.unwrap_err(),
        locks.semaphore("x", 3).acquire(0).await.unwrap_err(),
        locks.semaphore("x", 3).acquire(4).await.unwrap_err(),
        Locks::builder("memory:").label("").connect().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        one_sentence(&error);
    }
    assert_eq!(locks.lock_all([""; 0]).await.unwrap_err().kind(), ErrorKind::InvalidName);
}

#[tokio::test]
async fn bad_urls_get_a_typed_error_that_never_shows_a_password() {
    for url in ["", "memory", "nonsense://x", "other://user:s3cret@host/0", "memory://x", "memory:?a=s3cret"]
    {
        let error = Locks::connect(url).await.unwrap_err();
        assert!(error.is_invalid_url(), "{url}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
        one_sentence(&error);
    }
}

#[tokio::test]
async fn clients_of_one_memory_store_exclude_each_other() {
    let a = Locks::connect("memory:shared-by-test").await.unwrap();
    let b = Locks::connect("memory:shared-by-test").await.unwrap();
    let alone = Locks::connect("memory:").await.unwrap();
    let held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(alone.mutex("x").try_lock().await.unwrap().is_some());
    held.release().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
}
