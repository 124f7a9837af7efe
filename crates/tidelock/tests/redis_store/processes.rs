//! Holders and waiters that are killed, stopped, evicted, or very many.

use crate::support::{LONG, NAME, Place, eventually, got, processes, shared};

trials! {
    waiters_killed_with_9_delay_nobody,
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
