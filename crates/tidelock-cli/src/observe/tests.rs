//! The observer on a real store in this process.

use std::sync::Arc;

use tidelock::Locks;

use super::{Duration, Event, History, News, Observer, Options, Subscription, What};

const OPTIONS: Options = Options { interval: None, history: Duration::from_secs(60), always: false };

/// Two clients of one store.
async fn clients(store: &str) -> [Locks; 2] {
    let connect = || async { Locks::connect(&format!("memory:{store}")).await.unwrap() };
    [connect().await, connect().await]
}

/// Waits for news that fit.
async fn until(viewer: &mut Subscription, fits: impl Fn(&News) -> bool) -> Arc<News> {
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
        happened(&observer, &mut viewer, 5).await;
    };
    let release = async {
        let mut seen = observer.subscribe();
        until(&mut seen, |news| news.locks.changed.iter().any(|lock| lock.waiters.len() == 1)).await;
        first.release().await.unwrap();
    };
    tokio::join!(second, release);
    let words = observer.history(words);
    assert_eq!(
        words,
        ["granted", "queued", "gone", "granted", "gone"],
        "other clients did not say how it ended"
    );
    assert!(observer.snapshot().locks.is_empty() && observer.snapshot().health.is_well());
}

/// Waits until this many events are known.
async fn happened(observer: &Observer, viewer: &mut Subscription, events: u64) {
    while observer.history(History::latest) < events {
        viewer.next().await;
    }
}

fn words(history: &History) -> Vec<&'static str> {
    history.after(0).0.iter().map(|event| event.what.word()).collect()
}

#[tokio::test]
async fn what_became_of_the_claims_of_this_client_is_known() {
    let [locks, other] = clients("observer-own").await;
    let observer = Observer::start(locks.clone(), OPTIONS);
    let mut viewer = observer.subscribe();
    viewer.next().await;
    let released = locks.mutex("a").lock().await.unwrap();
    happened(&observer, &mut viewer, 1).await;
    released.release().await.unwrap();
    happened(&observer, &mut viewer, 2).await;
    let evicted = locks.mutex("b").lock().await.unwrap();
    happened(&observer, &mut viewer, 3).await;
    let claim = other.look(["b"]).await.unwrap()[0].holders[0].id;
    assert!(other.evict("b", claim, "it hangs").await.unwrap());
    evicted.lost().await;
    happened(&observer, &mut viewer, 4).await;
    let lost = locks.mutex("c").max_hold(Duration::from_millis(700)).lock().await.unwrap();
    happened(&observer, &mut viewer, 5).await;
    lost.lost().await;
    happened(&observer, &mut viewer, 6).await;
    let reasons: Vec<_> = observer.history(|history| {
        let reason = |event: &Arc<Event>| event.what.reason().map(ToOwned::to_owned);
        history.after(0).0.iter().filter_map(reason).collect()
    });
    assert_eq!(reasons, ["it hangs", "it was held for as long as max_hold allows"]);
    let words = observer.history(words);
    assert_eq!(words, ["granted", "released", "granted", "evicted", "granted", "lost"]);
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

#[tokio::test]
async fn viewers_that_know_the_same_are_told_the_same() {
    let [locks, other] = clients("observer-shared").await;
    let observer = Observer::start(locks, OPTIONS);
    let mut viewers = [observer.subscribe(), observer.subscribe(), observer.subscribe()];
    for viewer in &mut viewers {
        assert!(viewer.next().await.locks.is_all);
    }
    let _guard = other.mutex("a").lock().await.unwrap();
    let mut told = Vec::new();
    for viewer in &mut viewers {
        told.push(viewer.next().await);
    }
    assert_eq!(told[0].locks.changed.len(), 1);
    assert!(told.iter().all(|news| Arc::ptr_eq(news, &told[0])), "it is put together once");
    let mut late = observer.subscribe();
    let all = late.next().await;
    assert!(all.locks.is_all && all.locks.changed.len() == 1 && all.events.is_empty());
}
