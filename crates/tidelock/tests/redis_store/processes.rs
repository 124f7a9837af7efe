//! Holders and waiters that are killed, stopped, evicted, or very many.

use crate::support::{LONG, NAME, Place, eventually, got, processes, shared};

trials! {
    processes::a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends,
    waiters_killed_with_9_delay_nobody,
    processes::a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on,
    processes::an_eviction_is_heard_at_once_with_its_reason,
    two_thousand_waiters_get_the_lock_in_order,
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

async fn two_thousand_waiters_get_the_lock_in_order() {
    processes::Crowd::gather(&Place::shared(), 2_000, 4).await.gets_the_lock_in_order().await;
}
