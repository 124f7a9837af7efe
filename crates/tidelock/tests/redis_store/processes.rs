//! Holders and waiters that are killed, stopped, evicted, or very many.

use test_servers::Proxy;

use crate::support::{LONG, NAME, Place, SHORT, eventually, got, processes, shared, until_idle};

trials! {
    waiters_killed_with_9_delay_nobody,
    a_line_whose_holders_all_lapsed_takes_the_next_ones,
}

/// Their leases do not end during the trial: that they are dead is seen when nobody can be told.
async fn waiters_killed_with_9_delay_nobody() {
    let place = Place::shared();
    let (locks, guard, waiting) = processes::behind_dead_waiters(&place, 20 * LONG).await;
    eventually("the server knows", || place.listeners(&shared()) == 2).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    assert_eq!(locks.look(&[NAME]).await.unwrap(), []);
}

/// Nobody gives these claims back, so the next one that enters lets them go and takes a place in the same step.
async fn a_line_whose_holders_all_lapsed_takes_the_next_ones() {
    let place = Place::shared();
    let proxy = Proxy::start(shared().addr()).unwrap();
    let mut lapsed = Vec::new();
    for _ in 0..2 {
        let locks = place.behind(&proxy).connect().await;
        lapsed.push(locks.rw_lock(NAME).ttl(SHORT).read().await.unwrap());
        lapsed.push(locks.semaphore("permits", 3).ttl(SHORT).acquire(1).await.unwrap());
    }
    proxy.cut();
    let locks = place.connect().await;
    for name in [NAME, "permits"] {
        until_idle(&locks, name).await;
    }
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(locks.rw_lock(NAME).ttl(LONG).read().await.unwrap());
        held.push(locks.semaphore("permits", 3).ttl(LONG).acquire(1).await.unwrap());
    }
    for guard in held {
        guard.release().await.unwrap();
    }
}
