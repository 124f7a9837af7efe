//! Holders and waiters that are killed, stopped, evicted, or very many.

use crate::support::{Place, processes};

trials! {
    processes::a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends,
    processes::waiters_killed_with_9_are_passed_over_when_their_leases_end,
    processes::a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on,
    processes::an_eviction_is_heard_at_once_with_its_reason,
    many_waiters_get_the_lock_in_order,
}

/// A client each, so that every one has a place of its own in the line.
async fn many_waiters_get_the_lock_in_order() {
    processes::Crowd::gather(&Place::shared(), 40, 40).await.gets_the_lock_in_order().await;
}
