//! Settings that all locks of a client have in common, and namespaces.
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

use std::{sync::Arc, time::Duration};

use tidelock::{
    Builder, DEFAULT_TTL, ErrorKind, Locks, MAX_NAME_BYTES, Ticket,
    backend::{Backend, ClientId, Namespaced},
    backends::memory::{MemoryBackend, MemoryConfig, MemoryStore},
    blocking,
};

const LONG: Duration = Duration::from_secs(20);

/// A store of its own, for several clients.
fn store(name: &'static str) -> impl Fn() -> Builder {
    move || Locks::builder(MemoryConfig::named(name))
}

#[tokio::test(start_paused = true)]
async fn locks_start_with_the_settings_of_their_client_and_override_them() {
    let builder = store("settings");
    let locks = builder().ttl(LONG).wait(Duration::from_secs(1)).label("worker-7").connect().await.unwrap();
    let other = builder().connect().await.unwrap();
    let guard = locks.mutex("a").detached(true).lock().await.unwrap();
    let seen = other.look(["a"]).await.unwrap();
    assert_eq!(&*seen[0].holders[0].label, "worker-7");
    assert!(locks.mutex("a").lock().await.unwrap_err().is_timed_out());
    assert!(locks.multi(["a"]).lock().await.unwrap_err().is_timed_out(), "several at once wait no longer");
    assert_eq!(guard.leave_behind().unwrap().ttl(), LONG);
    let own = locks.mutex("b").ttl(DEFAULT_TTL).label("another").detached(true).lock().await.unwrap();
    let seen = other.look(["b"]).await.unwrap();
    assert_eq!(&*seen[0].holders[0].label, "another");
    assert_eq!(own.leave_behind().unwrap().ttl(), DEFAULT_TTL);
}

#[tokio::test(start_paused = true)]
async fn max_hold_of_a_client_ends_the_hold_of_any_of_its_locks() {
    let locks = store("max hold")().max_hold(Duration::from_secs(1)).connect().await.unwrap();
    let guard = locks.rw_lock("a").write().await.unwrap();
    assert!(guard.lost().await.to_string().contains("max_hold"));
    let unlimited = locks.mutex("b").max_hold(Duration::MAX).lock().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(unlimited.is_held());
}

#[tokio::test]
async fn mistakes_in_settings_are_reported_when_the_client_connects() {
    let builder = store("mistakes");
    let long = "x".repeat(MAX_NAME_BYTES);
    for (mistaken, says) in [
        (builder().ttl(Duration::from_millis(1)), "memory keeps leases of"),
        (builder().ttl(Duration::from_secs(2 * 24 * 3_600)), "too long"),
        (builder().max_hold(Duration::ZERO), "max_hold is zero"),
        (builder().label("a\nb"), "label"),
        (builder().namespace(""), "namespace is empty"),
        (builder().namespace("a\0"), "control character"),
        (builder().namespace(&*long), "at most 512"),
    ] {
        for error in [
            mistaken.clone().connect().await.unwrap_err(),
            mistaken.connect_within(Duration::from_secs(60)).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
    let shown = format!("{:?}", Locks::builder("oracle://me:secret@host"));
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn different_namespaces_of_one_store_have_different_locks() {
    let builder = store("two namespaces");
    let shop = builder().namespace("shop/").connect().await.unwrap();
    let bank = builder().namespace("bank/").connect().await.unwrap();
    let _shop = shop.mutex("a").try_lock().await.unwrap().expect("it is free");
    let _bank = bank.mutex("a").try_lock().await.unwrap().expect("another lock");
    assert!(shop.mutex("a").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn a_name_in_a_namespace_is_the_full_name_without_one() {
    let builder = store("full names");
    let shop = builder().namespace("shop/").connect().await.unwrap();
    let plain = builder().connect().await.unwrap();
    let guard = shop.mutex("a").lock().await.unwrap();
    assert_eq!(guard.name().as_str(), "a");
    assert!(plain.mutex("a").try_lock().await.unwrap().is_some());
    assert!(plain.mutex("shop/a").try_lock().await.unwrap().is_none());
    let next = tokio::spawn(async move { plain.mutex("shop/a").lock().await.unwrap() });
    guard.release().await.unwrap();
    let error = {
        let _next = next.await.unwrap();
        shop.mutex("a").wait(Duration::from_millis(1)).lock().await.unwrap_err()
    };
    assert!(error.to_string().contains("lock \"a\"") && !error.to_string().contains("shop"), "{error}");
}

#[tokio::test]
async fn a_waiter_in_a_namespace_is_told_when_its_turn_has_come() {
    let builder = store("turns");
    let one = builder().namespace("shop/").connect().await.unwrap();
    let two = builder().namespace("shop/").connect().await.unwrap();
    let held = one.mutex("a").ttl(LONG).lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = two.mutex("a").ttl(LONG);
        async move { mutex.lock().await.unwrap() }
    });
    while one.look(["a"]).await.unwrap()[0].waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    let first = held.token();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().token() > first);
}

#[tokio::test]
async fn look_shows_names_of_the_namespace_only_and_as_its_clients_know_them() {
    let builder = store("looks");
    let shop = builder().namespace("shop/").connect().await.unwrap();
    let plain = builder().connect().await.unwrap();
    let names = ["a", "b/c"].map(|name| shop.mutex(name));
    let _held = (names[0].lock().await.unwrap(), names[1].lock().await.unwrap());
    let _others = plain.lock_all(["shop/", "shopping", "a"]).await.unwrap();
    let shown = |views: Vec<tidelock::backend::LockView>| {
        let mut names: Vec<_> = views.iter().map(|view| view.name.as_str().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(shown(shop.look_all().await.unwrap()), ["a", "b/c"]);
    assert_eq!(shown(shop.look(["a", "shopping", "idle"]).await.unwrap()), ["a"]);
    assert_eq!(shown(shop.look([""; 0]).await.unwrap()), [""; 0]);
    assert_eq!(shown(plain.look_all().await.unwrap()), ["a", "shop/", "shop/a", "shop/b/c", "shopping"]);
    assert!(shop.look(["a\0"]).await.unwrap_err().is_invalid_name());
}

#[tokio::test]
async fn a_claim_of_a_namespace_is_evicted_by_its_short_name() {
    let builder = store("evictions");
    let shop = builder().namespace("shop/").connect().await.unwrap();
    let other = builder().namespace("shop/").connect().await.unwrap();
    let guard = shop.mutex("a").ttl(LONG).lock().await.unwrap();
    let holder = other.look(["a"]).await.unwrap()[0].holders[0].id;
    assert!(shop.is_own(holder) && !other.is_own(holder));
    assert!(other.evict("a", holder, "maintenance").await.unwrap());
    let lost = guard.lost().await;
    assert!(lost.to_string().contains("lock \"a\"") && lost.to_string().contains("maintenance"), "{lost}");
    assert!(!other.evict("a", holder, "").await.unwrap());
}

#[tokio::test]
async fn a_ticket_is_for_clients_with_the_same_namespace() {
    let builder = store("tickets");
    let shop = builder().namespace("shop/").connect().await.unwrap();
    let same = builder().namespace("shop/").connect().await.unwrap();
    let bank = builder().namespace("bank/").connect().await.unwrap();
    let written = shop.mutex("a").detached(true).lock().await.unwrap().leave_behind().unwrap().to_string();
    let ticket: Ticket = written.parse().unwrap();
    assert_eq!(ticket.name().as_str(), "a");
    assert!(bank.renew(&ticket).await.unwrap_err().is_lost());
    same.renew(&ticket).await.unwrap();
    same.release(&ticket).await.unwrap();
    assert!(same.release(&ticket).await.unwrap_err().is_lost());
}

#[tokio::test]
async fn namespace_and_name_together_have_the_length_of_a_name() {
    let shop = store("lengths")().namespace("shop/").connect().await.unwrap();
    let longest = "x".repeat(MAX_NAME_BYTES - "shop/".len());
    shop.mutex(&longest).lock().await.unwrap().release().await.unwrap();
    let longer = format!("{longest}x");
    let errors = [
        shop.mutex(&longer).lock().await.unwrap_err(),
        shop.lock_all(["a", &longer]).await.unwrap_err(),
        shop.look([&longer]).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidName);
        assert!(error.to_string().contains("508 bytes, and 507 of 512 are left"), "{error}");
    }
}

#[test]
fn a_namespace_that_leaves_no_room_on_its_store_is_refused() {
    let store = MemoryBackend::connect(MemoryStore::new(), ClientId::random());
    // The outer namespace has what the inner one leaves: five bytes.
    let inner = Arc::new(Namespaced::new(Arc::new(store), &"x".repeat(MAX_NAME_BYTES - 5)).unwrap());
    let error = Namespaced::new(Arc::clone(&inner) as Arc<dyn Backend>, "shop/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("has 5 bytes, and names together with it have at most 5"), "{error}");
    assert_eq!(Namespaced::new(inner, "shop").unwrap().abilities().max_name, 1);
}

#[test]
fn a_client_without_async_has_the_same_builder() {
    let config = || MemoryConfig::named("without async");
    let locks = blocking::Locks::builder(config()).namespace("shop/").label("worker-7").connect().unwrap();
    let plain = blocking::Locks::connect_with(config()).unwrap();
    let _guard = locks.mutex("a").lock().unwrap();
    assert_eq!(&*plain.look(["shop/a"]).unwrap()[0].holders[0].label, "worker-7");
    assert_eq!((locks.look_all().unwrap().len(), plain.look([""; 0]).unwrap().len()), (1, 0));
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_mistake_in_a_typed_config_is_reported_when_the_client_connects() {
    use tidelock::backends::redis::RedisConfig;

    let config = || RedisConfig::new("a b").password("secret");
    for error in [
        Locks::connect_with(config()).await.unwrap_err(),
        Locks::builder(config()).connect_within(Duration::from_secs(60)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains("a host is not of the form"), "{error}");
        assert!(!format!("{error} {:?}", Locks::builder(config())).contains("secret"), "{error}");
    }
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn each_failure_is_reported_while_a_client_retries() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let report = |error: &tidelock::Error| tell.send(error.is_unavailable()).unwrap();
    let connecting = Locks::builder(format!("etcd://{nobody}")).connect_reporting(LONG, report);
    tokio::select! {
        done = connecting => panic!("no server is there: {done:?}"),
        seen = async { [told.recv().await, told.recv().await] } => assert_eq!(seen, [Some(true); 2]),
    }
}
