//! Sharing claims agree on a capacity, and numbers that make no sense are refused.

use std::time::Duration;

use crate::{
    MAX_TTL,
    backend::{Ask, Capacity, Entered, Refusal, Share},
    testing::suite::{Raw, World},
};

super::cases! { "capacity":
    another_number_of_permits_is_refused(permits),
    readers_of_a_semaphore_are_refused(permits),
    permits_of_a_read_lock_are_refused(permits),
    capacity_of_waiters_counts(permits),
    another_capacity_is_allowed_after_all_have_left(permits),
    another_capacity_is_allowed_after_all_have_lapsed(permits),
    refused_claim_leaves_nothing_in_line(permits),
    exclusive_claim_fits_any_capacity(permits),
    numbers_of_permits_that_make_no_sense_are_errors,
    leases_that_make_no_sense_are_errors,
    shortest_lease_works,
}

async fn another_number_of_permits_is_refused(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    let held = one.semaphore(&name, 5).acquire(1).await.unwrap();
    for client in [&one, &other] {
        let error = client.semaphore(&name, 6).acquire(1).await.unwrap_err();
        assert!(error.is_capacity_mismatch() && !error.is_retryable(), "{error}");
        let error = client.semaphore(&name, 6).try_acquire(1).await.unwrap_err();
        assert!(error.is_capacity_mismatch() && error.to_string().contains("5 permits"), "{error}");
    }
    assert!(held.is_held());
}

async fn readers_of_a_semaphore_are_refused(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.semaphore(&name, 5).acquire(1).await.unwrap();
    let error = other.rw_lock(&name).read().await.unwrap_err();
    assert!(error.is_capacity_mismatch(), "{error}");
    assert!(held.is_held());
}

async fn permits_of_a_read_lock_are_refused(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.rw_lock(&name).read().await.unwrap();
    let error = other.semaphore(&name, 5).acquire(1).await.unwrap_err();
    assert!(error.is_capacity_mismatch() && error.to_string().contains("readers"), "{error}");
    assert!(held.is_held());
}

async fn refused(client: &Raw, name: &str, share: Share) -> Capacity {
    match client.queue(&client.claim(name, share)).await {
        Entered::Refused(Refusal::Capacity(agreed)) => agreed,
        other => panic!("{share} should be refused, and is {other:?}"),
    }
}

async fn capacity_of_waiters_counts(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    let holds = one.claim(&name, Share::Exclusive);
    one.hold(&holds).await;
    two.stand(&two.claim(&name, Share::Permits { n: 1, of: 5 })).await;
    assert_eq!(refused(&three, &name, Share::Permits { n: 1, of: 6 }).await, Capacity::Of(5));
    assert_eq!(refused(&three, &name, Share::Shared).await, Capacity::Of(5));
    one.leave(&holds).await;
    assert_eq!(refused(&three, &name, Share::Shared).await, Capacity::Of(5));
}

async fn another_capacity_is_allowed_after_all_have_left(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let claims = [1, 2].map(|n| one.claim(&name, Share::Permits { n, of: 5 }));
    for claim in &claims {
        one.hold(claim).await;
    }
    one.leave(&claims[0]).await;
    assert_eq!(refused(&other, &name, Share::Shared).await, Capacity::Of(5));
    one.leave(&claims[1]).await;
    other.hold(&other.claim(&name, Share::Shared)).await;
}

async fn another_capacity_is_allowed_after_all_have_lapsed(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    one.hold(&one.claim_for(&name, Share::Permits { n: 1, of: 5 }, None, world.short_ttl())).await;
    assert_eq!(refused(&other, &name, Share::Shared).await, Capacity::Of(5));
    world.let_short_leases_lapse().await;
    other.hold(&other.claim(&name, Share::Shared)).await;
}

async fn refused_claim_leaves_nothing_in_line(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let holds = one.claim(&name, Share::Permits { n: 1, of: 5 });
    one.hold(&holds).await;
    refused(&other, &name, Share::Shared).await;
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (1, 0));
    one.leave(&holds).await;
    assert_eq!(world.seen(&name).await, None);
}

async fn exclusive_claim_fits_any_capacity(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    for share in [Share::Shared, Share::Permits { n: 1, of: 5 }, Share::Permits { n: 1, of: 1 }] {
        let (shares, exclusive) = (one.claim(&name, share), other.claim(&name, Share::Exclusive));
        one.hold(&shares).await;
        other.stand(&exclusive).await;
        one.leave(&shares).await;
        other.holds(&exclusive).await;
        assert_eq!(one.enter(&one.claim(&name, share), Ask::Try).await, Entered::Busy);
        other.leave(&exclusive).await;
    }
}

async fn numbers_of_permits_that_make_no_sense_are_errors(world: World) {
    let client = world.client().await;
    let name = world.name("pool");
    for (n, of) in [(0, 5), (6, 5), (1, 0), (0, 0), (u32::MAX, 1)] {
        for error in [
            client.semaphore(&name, of).acquire(n).await.unwrap_err(),
            client.semaphore(&name, of).try_acquire(n).await.unwrap_err(),
        ] {
            assert!(error.is_invalid_option() && !error.is_retryable(), "{n} of {of}: {error}");
            assert!(!error.to_string().contains('\n'), "{n} of {of}: {error}");
        }
    }
    assert_eq!(world.seen(&name).await, None);
}

async fn leases_that_make_no_sense_are_errors(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let mutex = || client.mutex(&name);
    let too_short = world.abilities().min_ttl / 2;
    for bad in [
        mutex().ttl(Duration::ZERO),
        mutex().ttl(too_short),
        mutex().ttl(MAX_TTL + Duration::from_secs(1)),
        mutex().ttl(Duration::MAX),
        mutex().max_hold(Duration::ZERO),
    ] {
        let error = bad.lock().await.unwrap_err();
        assert!(error.is_invalid_option() && !error.to_string().contains('\n'), "{error}");
    }
    assert_eq!(world.seen(&name).await, None);
}

async fn shortest_lease_works(world: World) {
    let client = world.client().await;
    let mutex = client.mutex(world.name("lock")).ttl(world.abilities().min_ttl).auto_renew(false);
    let guard = mutex.lock().await.unwrap();
    assert!(guard.lost().await.is_lost());
}
