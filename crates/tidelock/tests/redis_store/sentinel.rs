//! Sentinels that replace a master, and grants that replicas have to confirm.
//!
//! Redis confirms a write before its replicas have it. So without `?replicas=` a master that dies may take
//! a grant with it, and two may hold at once for the rest of a lease: that is counted, not denied.

use std::time::Duration;

use test_servers::{Redis, Sentinel, Server};

use crate::{
    support::{LONG, NAME, Place, SHORT, eventually, got, report, until_idle, until_waiting, waiter, within},
    witness::{Rush, Storm},
};

trials! {
    a_master_that_is_killed_is_replaced_while_locks_are_held_and_handed_over,
    a_master_that_is_paused_is_replaced_and_nobody_asks_it_when_it_wakes,
    grants_that_a_replica_confirmed_survive_the_death_of_the_master,
    without_enough_replicas_a_lock_is_given_back_with_a_clear_error,
}

/// A lock whose lease outlives a fail-over.
const STEADY: &str = "steady";

/// Lets clients take turns while the master is replaced. Says how often two held at once.
async fn replace(installation: &Sentinel, place: &Place, fault: impl Fn(&Server) + Send + Sync) -> usize {
    let (holder, waits) = (place.connect().await, place.connect().await);
    let steady = holder.mutex(STEADY).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&waits, STEADY, LONG);
    until_waiting(&holder, STEADY, 1).await;
    let storm = Storm::begin(place, NAME, SHORT, 4).await;
    let rush = Rush::begin(&holder, |n| format!("rush {n}"));
    storm.goes_on().await;
    let old = installation.master_server().unwrap();
    fault(old);
    installation.wait_for_successor(old).unwrap();
    storm.goes_on().await;
    let (kept, twice) = rush.end(&waits).await;
    if old.pid().is_some() {
        old.resume().unwrap();
        storm.goes_on().await;
    }
    let grants = kept + storm.witness.grants();
    let doubles = twice + storm.end().await;

    // It was written long before the fault, so the successor knows it.
    until_waiting(&holder, STEADY, 1).await;
    assert!(steady.is_held());
    let token = steady.token();
    within("it is given back", async {
        // The first answer may be that the old master is gone.
        let _ = steady.release().await;
    })
    .await;
    let next = got(waiting).await;
    assert!(next.token() > token);
    let _ = next.release().await;
    report(&format!("{doubles} double grants among {grants} while Sentinels replaced a master{place}"));
    doubles
}

async fn a_master_that_is_killed_is_replaced_while_locks_are_held_and_handed_over() {
    let installation = Redis::new().start_sentinel().unwrap();
    replace(&installation, &Place::on(installation.url()), |master| master.kill().unwrap()).await;
}

async fn a_master_that_is_paused_is_replaced_and_nobody_asks_it_when_it_wakes() {
    let installation = Redis::new().start_sentinel().unwrap();
    replace(&installation, &Place::on(installation.url()), |master| master.pause().unwrap()).await;
}

async fn grants_that_a_replica_confirmed_survive_the_death_of_the_master() {
    let installation = Redis::new().start_sentinel().unwrap();
    let place = Place::on(installation.url()).with("replicas=1");
    let doubles = replace(&installation, &place, |master| master.kill().unwrap()).await;
    assert_eq!(doubles, 0);
}

async fn without_enough_replicas_a_lock_is_given_back_with_a_clear_error() {
    let servers = Redis::new().start_with_replicas(1).unwrap();
    let place = Place::on(servers.master().url());
    let strict = place.with("replicas=1&replicas_timeout_ms=200");
    let (locks, waits, other) = (strict.connect().await, strict.connect().await, place.connect().await);
    let guard = within("a replica that has just started confirms", async {
        loop {
            if let Ok(guard) = locks.mutex(NAME).ttl(LONG).lock().await {
                return guard;
            }
        }
    })
    .await;
    let waiting = waiter(&waits, NAME, LONG);
    until_waiting(&other, NAME, 1).await;

    let replica = &servers.replicas()[0];
    replica.kill().unwrap();
    let error = within("it is refused", locks.mutex("another").fail_fast(true).lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("only 0 of 1 replicas confirmed the grant"), "{error}");
    until_idle(&other, "another").await;

    // A waiter is granted the lock when a replica confirms it, and not before.
    guard.release().await.unwrap();
    eventually("it holds as far as the master knows", || {
        servers.master().command(&["EXISTS", &format!("{}:w", place.key(NAME))]).unwrap().as_deref()
            == Some("0")
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    replica.restart().unwrap();
    got(waiting).await.release().await.unwrap();
}
