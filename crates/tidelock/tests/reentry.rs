//! Re-entry with options of its own, and names that nobody asks for again.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

use std::{sync::Arc, time::Duration};

use tidelock::{
    Locks, Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Leave, Share, Standing},
    backends::memory::{MemoryBackend, MemoryStore},
    testing::{Clock, defect::Defects},
};

fn store() -> (Clock, Arc<MemoryStore>) {
    let clock = Clock::driven(0);
    (clock.clone(), MemoryStore::on_clock(clock))
}

fn client(clock: &Clock, store: &Arc<MemoryStore>) -> Locks {
    let id = ClientId::random();
    Locks::on_clock(Arc::new(MemoryBackend::connect(store.clone(), id)), clock.clone(), Defects::NONE)
}

#[tokio::test(start_paused = true)]
async fn max_hold_of_a_guard_that_reenters_is_kept() {
    let (clock, store) = store();
    let locks = client(&clock, &store);
    let first = locks.mutex("a").owner("ann").lock().await.unwrap();
    let second = locks.mutex("a").owner("ann").max_hold(Duration::from_millis(100)).lock().await.unwrap();
    first.release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!second.is_held(), "held for a minute, allowed are 100 ms");
}

#[tokio::test(start_paused = true)]
async fn max_hold_of_one_of_several_that_hold_together_is_kept() {
    let (clock, store) = store();
    let (one, other) = (client(&clock, &store), client(&clock, &store));
    let held = other.mutex("a").lock().await.unwrap();
    let limited = one.mutex("a").owner("ann").max_hold(Duration::from_millis(100));
    let free = one.mutex("a").owner("ann");
    let limited = tokio::spawn(async move { limited.lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(10)).await;
    let free = tokio::spawn(async move { free.lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(10)).await;
    held.release().await.unwrap();
    let (limited, free) = (limited.await.unwrap(), free.await.unwrap());
    drop(free);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!limited.is_held(), "held for a minute, allowed are 100 ms");
}

#[tokio::test(start_paused = true)]
async fn guard_that_reenters_with_renewal_is_renewed() {
    let (clock, store) = store();
    let locks = client(&clock, &store);
    let ttl = Duration::from_millis(300);
    let first = locks.mutex("a").owner("ann").ttl(ttl).auto_renew(false).lock().await.unwrap();
    let second = locks.mutex("a").owner("ann").ttl(ttl).lock().await.unwrap();
    first.release().await.unwrap();
    tokio::time::sleep(ttl * 3).await;
    assert!(second.is_held(), "auto_renew is on");
}

#[tokio::test(start_paused = true)]
async fn writer_that_goes_on_reading_lets_readers_in_within_a_client() {
    let (clock, store) = store();
    let (one, other) = (client(&clock, &store), client(&clock, &store));
    let writes = one.rw_lock("a").owner("ann").write().await.unwrap();
    let reads = one.rw_lock("a").owner("ann").read().await.unwrap();
    writes.release().await.unwrap();
    assert!(other.rw_lock("a").try_read().await.unwrap().is_some(), "{:?} only reads", reads.name());
}

#[tokio::test(start_paused = true)]
async fn claim_that_waits_rides_when_its_owner_gets_the_lock() {
    let (_clock, store) = store();
    let id = ClientId::random();
    let backend = MemoryBackend::connect(store, id);
    let claim = |serial, owner: Option<&str>| {
        Arc::new(
            Claim::new(
                ClaimId::new(id, serial),
                Name::new("a").unwrap(),
                Share::Exclusive,
                Duration::from_secs(30),
            )
            .owner(owner.map(|owner| tidelock::Owner::new(owner).unwrap()))
            .label("x"),
        )
    };
    let (holds, first, second) = (claim(1, None), claim(2, Some("ann")), claim(3, Some("ann")));
    for claim in [&holds, &first, &second] {
        backend.enter(claim, Ask::Queue).await.unwrap();
    }
    backend.leave(&holds.name, holds.id, Leave::Done).await.unwrap();
    let third = backend.enter(&claim(4, Some("ann")), Ask::Queue).await.unwrap();
    assert!(matches!(third, Entered::Held(_)));
    let standings = backend.renew(&[first, second]).await.unwrap();
    assert!(matches!(standings[0], Standing::Held(_)));
    assert!(matches!(standings[1], Standing::Held(_)), "it waits for its own owner: {:?}", standings[1]);
}

#[tokio::test(start_paused = true)]
async fn names_whose_claims_lapsed_are_forgotten() {
    let (_clock, store) = store();
    let id = ClientId::random();
    let backend = MemoryBackend::connect(store.clone(), id);
    let mut serial = 0;
    let mut claim = |name: String| {
        serial += 1;
        Arc::new(
            Claim::new(
                ClaimId::new(id, serial),
                Name::new(&name).unwrap(),
                Share::Exclusive,
                Duration::from_millis(50),
            )
            .label("x"),
        )
    };
    for i in 0..5_000 {
        backend.enter(&claim(format!("dead/{i}")), Ask::Queue).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    for i in 0..50_000 {
        let claim = claim(format!("living/{i}"));
        backend.enter(&claim, Ask::Queue).await.unwrap();
        backend.leave(&claim.name, claim.id, Leave::Done).await.unwrap();
    }
    let kept = format!("{store:?}").matches("\"dead/").count();
    assert!(kept < 100, "{kept} times a name is kept that lapsed an hour ago");
}
