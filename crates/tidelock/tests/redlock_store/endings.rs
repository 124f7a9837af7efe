//! Programs and runtimes that end.

use crate::{
    five::Five,
    support::{endings::ENDS, ends::Scene, outlived, worker::Worker},
};

trials! {
    programs_that_drop_a_guard_where_they_end_free_its_lock,
    clients_that_outlive_their_runtime_say_so_and_report_losses,
}

async fn programs_that_drop_a_guard_where_they_end_free_its_lock() {
    let five = Five::durable();
    let url = five.url();
    let start = |what: &str, ttl| Worker::start(&url, what, ttl);
    let scene = Scene { locks: five.connect().await, start, short: ENDS };
    scene.a_guard_dropped_at_the_end_of_main_frees_the_lock_at_once().await;
    scene.a_panic_in_main_frees_the_lock_at_once().await;
    scene.a_blocking_guard_dropped_at_the_end_of_main_frees_the_lock_at_once().await;
    scene.a_lock_released_or_shut_down_on_one_thread_is_free_at_once().await;
    scene.a_wait_given_up_at_the_end_of_main_leaves_no_place_behind().await;
    scene.what_a_program_does_not_release_is_free_when_its_lease_ends().await;
}

async fn clients_that_outlive_their_runtime_say_so_and_report_losses() {
    let five = Five::durable();
    let url = five.url();
    outlived::a_client_that_outlives_its_runtime_says_so_in_every_call(&url, ENDS).await;
    outlived::a_lock_whose_runtime_has_ended_is_lost_when_its_lease_ends(&url, ENDS).await;
    outlived::a_lock_whose_runtime_stands_still_is_lost_when_its_lease_ends(&url, ENDS).await;
    outlived::those_who_wait_when_their_runtime_ends_hear_it(&url, ENDS).await;
}
