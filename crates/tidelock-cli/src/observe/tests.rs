//! The observer on a real store in this process.

use tidelock::Locks;

use super::{Duration, News, Observer, Options, Subscription, What};

const OPTIONS: Options = Options { interval: None, history: Duration::from_secs(60), always: false };

/// Two clients of one store.
async fn clients(store: &str) -> [Locks; 2] {
    let connect = || async { Locks::connect(&format!("memory:{store}")).await.unwrap() };
    [connect().await, connect().await]
}

/// Waits for news that fit.
async fn until(viewer: &mut Subscription, fits: impl Fn(&News) -> bool) -> News {
    loop {
        let news = viewer.next().await;
        if fits(&news) {
            return news;
        }
    }
}

#[tokio::test]
async fn a_lock_appears_a_waiter_moves_up_and_it_goes() {
    let [locks, other] = clients("observer-moves-up").await;
    let observer = Observer::start(locks, OPTIONS);
    let mut viewer = observer.subscribe();
    assert!(viewer.next().await.locks.is_all);
    let first = other.mutex("orders/42").lock().await.unwrap();
    let appeared = until(&mut viewer, |news| !news.locks.changed.is_empty()).await;
    assert_eq!(appeared.locks.changed[0].name, "orders/42");
    assert_eq!(appeared.events[0].what, What::Granted { token: Some(first.token()), waited: None });
    viewer.focus([appeared.locks.changed[0].name.clone()]);
    let waiter = Locks::connect("memory:observer-moves-up").await.unwrap();
    let mutex = waiter.mutex("orders/42");
    let second = async {
        let guard = mutex.lock().await.unwrap();
        until(&mut viewer, |news| news.locks.changed.iter().any(|lock| lock.waiters.is_empty())).await;
        guard.release().await.unwrap();
        let gone = until(&mut viewer, |news| !news.locks.gone.is_empty()).await;
        assert_eq!(gone.locks.gone, ["orders/42"]);
    };
    let release = async {
        let mut seen = observer.subscribe();
        until(&mut seen, |news| news.locks.changed.iter().any(|lock| lock.waiters.len() == 1)).await;
        first.release().await.unwrap();
    };
    tokio::join!(second, release);
    let words: Vec<_> =
        observer.history(|history| history.after(0).0.iter().map(|event| event.what.word()).collect());
    assert_eq!(words, ["granted", "queued", "gone", "granted", "gone"]);
    assert!(observer.snapshot().locks.is_empty() && observer.snapshot().health.is_well());
}

#[tokio::test]
async fn nothing_is_asked_while_nobody_views() {
    let [locks, other] = clients("observer-idle").await;
    let observer = Observer::start(locks, OPTIONS);
    let _guard = other.mutex("a").lock().await.unwrap();
    tokio::task::yield_now().await;
    assert!(observer.snapshot().health.all.is_none());
    let mut viewer = observer.subscribe();
    assert_eq!(viewer.next().await.locks.changed.len(), 1);
    drop(viewer);
    // The next viewer is told that nobody looked for a while.
    let mut viewer = observer.subscribe();
    viewer.next().await;
    assert!(observer.history(|history| history.gaps().count()) <= 1);
}
