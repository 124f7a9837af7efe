//! Programs and runtimes that end.

use std::time::Duration;

use super::{
    Place,
    ends::{Scene, endings},
    outlived,
    worker::Worker,
};

/// A lease that ends during a trial, though not while the machine is busy starting processes.
pub(crate) const ENDS: Duration = Duration::from_secs(3);

trials! {
    a_guard_dropped_at_the_end_of_main_frees_the_lock_at_once,
    a_panic_in_main_frees_the_lock_at_once,
    a_blocking_guard_dropped_at_the_end_of_main_frees_the_lock_at_once,
    a_lock_released_or_shut_down_on_one_thread_is_free_at_once,
    a_wait_given_up_at_the_end_of_main_leaves_no_place_behind,
    what_a_program_does_not_release_is_free_when_its_lease_ends,
    a_client_that_outlives_its_runtime_says_so_in_every_call,
    a_lock_whose_runtime_has_ended_is_lost_when_its_lease_ends,
    a_lock_whose_runtime_stands_still_is_lost_when_its_lease_ends,
    those_who_wait_when_their_runtime_ends_hear_it,
}

/// Trials on a scene, or with clients of a place.
macro_rules! forward {
    ($(scene $scene:ident;)* $(outlived $outlived:ident;)*) => {
        $(async fn $scene() {
            let place = Place::shared();
            let (locks, url) = (place.connect().await, place.url());
            let start = |what: &str, ttl| Worker::start(&url, what, ttl);
            Scene { locks, start, short: ENDS }.$scene().await;
        })*
        $(async fn $outlived() {
            outlived::$outlived(&Place::shared().url(), ENDS).await;
        })*
    };
}

endings!(forward);
