//! A claim lives for its ttl unless it is renewed.

use crate::{
    backend::{Entered, Share, Standing},
    clock::Moment,
    testing::suite::World,
};

super::cases! { "lease":
    unrenewed_claim_lapses_and_the_next_holds,
    lock_of_a_dead_client_goes_to_the_next_waiter,
    lock_of_a_silent_client_is_kept_until_its_lease_ends,
    lapsed_waiter_is_passed_over,
    lapsed_claims_are_not_shown,
    a_waiter_behind_an_expired_claim_is_shown,
    repeated_enter_begins_the_lease_anew,
    renewal_begins_the_lease_anew,
    becoming_a_holder_does_not_prolong_the_lease,
    long_lease_outlives_a_short_one,
    reader_that_dies_does_not_end_the_others(fair),
    first_in_line_holds_when_it_asks_after_the_lease_ahead,
    guard_without_renewal_is_lost_at_its_deadline,
    guard_is_valid_for_less_than_its_ttl,
    a_waiter_keeps_its_place_for_longer_than_its_ttl,
}

async fn unrenewed_claim_lapses_and_the_next_holds(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let dies = one.claim_for(&name, Share::Exclusive, None, world.short_ttl());
    let next = other.claim(&name, Share::Exclusive);
    let grant = one.hold(&dies).await;
    other.stand(&next).await;
    world.let_short_leases_lapse().await;
    assert!(other.holds(&next).await.epoch > grant.epoch);
}

async fn lock_of_a_dead_client_goes_to_the_next_waiter(world: World) {
    let (dead, living) = (world.backend().await, world.client().await);
    let name = world.name("lock");
    dead.hold(&dead.claim_for(&name, Share::Exclusive, None, world.short_ttl())).await;
    // After its lease at the latest; a store that notices the end may let go at once.
    drop(dead);
    assert!(living.mutex(&name).lock().await.unwrap().is_held());
}

async fn lock_of_a_silent_client_is_kept_until_its_lease_ends(world: World) {
    let (silent, living) = (world.backend().await, world.client().await);
    let name = world.name("lock");
    silent.hold(&silent.claim_for(&name, Share::Exclusive, None, world.short_ttl())).await;
    let began = world.clock().now();
    assert!(living.mutex(&name).lock().await.unwrap().is_held());
    assert!(world.clock().now().since(began) > world.short_ttl() / 2, "the lease was not respected");
    drop(silent);
}

async fn lapsed_waiter_is_passed_over(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    let holds = one.claim(&name, Share::Exclusive);
    let dies = two.claim_for(&name, Share::Exclusive, None, world.short_ttl());
    let next = three.claim(&name, Share::Exclusive);
    one.hold(&holds).await;
    two.stand(&dies).await;
    three.stand(&next).await;
    world.let_short_leases_lapse().await;
    one.leave(&holds).await;
    three.holds(&next).await;
    assert_eq!(two.stands(&dies).await, Standing::Gone);
}

async fn lapsed_claims_are_not_shown(world: World) {
    let client = world.backend().await;
    let name = world.name("lock");
    client.hold(&client.claim_for(&name, Share::Exclusive, None, world.short_ttl())).await;
    world.let_short_leases_lapse().await;
    assert_eq!(world.seen(&name).await, None);
}

async fn a_waiter_behind_an_expired_claim_is_shown(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    one.hold(&one.claim_for(&name, Share::Exclusive, None, world.short_ttl())).await;
    let next = other.claim(&name, Share::Exclusive);
    other.stand(&next).await;
    world.let_short_leases_lapse().await;
    // A store moves the line by itself or when it is asked: as a holder or as one who waits.
    let view = world.seen(&name).await.expect("one is in line");
    let shown: Vec<_> = view.holders.iter().chain(&view.waiters).map(|claim| claim.id).collect();
    assert_eq!(shown, [next.id]);
}

/// Waits for a part of a lease that is renewed every time. Says whether it came in time: on a busy machine, a lease can
/// expire before it is asked about again, and nothing follows from that.
async fn came_in_time(world: &World, renewed: &mut Moment) -> bool {
    let before = *renewed;
    world.sleep(0.6).await;
    *renewed = world.clock().now();
    // What is left is for the question to reach the store.
    renewed.since(before) < world.short_ttl().mul_f64(0.75)
}

async fn repeated_enter_begins_the_lease_anew(world: World) {
    let client = world.backend().await;
    for attempt in 0.. {
        let name = world.name(&format!("lock-{attempt}"));
        let claim = client.claim_for(&name, Share::Exclusive, None, world.short_ttl());
        let mut asked = world.clock().now();
        let grant = client.hold(&claim).await;
        if !came_in_time(&world, &mut asked).await {
            continue;
        }
        client.hold(&claim).await;
        if came_in_time(&world, &mut asked).await {
            return assert_eq!(client.hold(&claim).await.epoch, grant.epoch);
        }
    }
}

async fn renewal_begins_the_lease_anew(world: World) {
    let [one, other] = world.backends().await;
    'anew: for attempt in 0.. {
        let name = world.name(&format!("lock-{attempt}"));
        let (holds, waits) = (
            one.claim_for(&name, Share::Exclusive, None, world.short_ttl()),
            other.claim_for(&name, Share::Exclusive, None, world.short_ttl()),
        );
        let mut asked = world.clock().now();
        one.hold(&holds).await;
        other.stand(&waits).await;
        for _ in 0..4 {
            if !came_in_time(&world, &mut asked).await {
                continue 'anew;
            }
            let standings = (one.stands(&holds).await, other.stands(&waits).await);
            if world.clock().now().since(asked) > world.short_ttl().mul_f64(0.2) {
                continue 'anew;
            }
            assert!(matches!(standings, (Standing::Held(_), Standing::Waiting(_))), "{standings:?}");
        }
        return;
    }
}

async fn becoming_a_holder_does_not_prolong_the_lease(world: World) {
    let [one, other] = world.backends().await;
    for attempt in 0.. {
        let name = world.name(&format!("lock-{attempt}"));
        let first = one.claim(&name, Share::Exclusive);
        let second = other.claim_for(&name, Share::Exclusive, None, world.short_ttl());
        one.hold(&first).await;
        let asked = world.clock().now();
        other.stand(&second).await;
        world.sleep(0.7).await;
        one.leave(&first).await;
        let holding = world.holding(&name).await;
        // On a machine that is busy, its lease may have ended before that was seen.
        if world.clock().now().since(asked) > world.short_ttl().mul_f64(0.9) {
            continue;
        }
        assert_eq!(holding, 1);
        world.sleep(0.55).await;
        return assert_eq!(other.stands(&second).await, Standing::Gone);
    }
}

async fn long_lease_outlives_a_short_one(world: World) {
    let client = world.backend().await;
    let name = world.name("lock");
    let dies = client.claim_for(&name, Share::Shared, None, world.short_ttl());
    let lives = client.claim(&name, Share::Shared);
    client.hold(&dies).await;
    client.hold(&lives).await;
    world.let_short_leases_lapse().await;
    let standings = client.renew(&[dies, lives]).await;
    assert_eq!(standings[0], Standing::Gone);
    assert!(matches!(standings[1], Standing::Held(_)));
}

async fn reader_that_dies_does_not_end_the_others(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    one.hold(&one.claim_for(&name, Share::Shared, None, world.short_ttl())).await;
    let reader = two.claim(&name, Share::Shared);
    two.hold(&reader).await;
    let writer = three.claim(&name, Share::Exclusive);
    three.stand(&writer).await;
    world.let_short_leases_lapse().await;
    let Standing::Waiting(place) = three.stands(&writer).await else { panic!("one reader lives") };
    assert_eq!(place.ahead, 1);
    two.leave(&reader).await;
    three.holds(&writer).await;
}

async fn first_in_line_holds_when_it_asks_after_the_lease_ahead(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    one.hold(&one.claim_for(&name, Share::Exclusive, None, world.short_ttl())).await;
    let claim = other.claim(&name, Share::Exclusive);
    let lapse_in = other.stand(&claim).await.lapse_in;
    assert!(lapse_in.is_none_or(|lapse_in| lapse_in <= world.short_ttl()), "{lapse_in:?}");
    world.let_short_leases_lapse().await;
    assert!(matches!(other.queue(&claim).await, Entered::Held(_)));
}

async fn guard_without_renewal_is_lost_at_its_deadline(world: World) {
    let client = world.client().await;
    let mutex = client.mutex(world.name("lock")).ttl(world.short_ttl()).auto_renew(false);
    let guard = mutex.lock().await.unwrap();
    let began = world.clock().now();
    let error = guard.lost().await;
    assert!(error.is_lost(), "{error}");
    assert!(!guard.is_held() && guard.valid_for().is_zero());
    let lived = world.clock().now().since(began);
    assert!(lived > world.short_ttl() / 2, "lost after {lived:?}");
}

async fn guard_is_valid_for_less_than_its_ttl(world: World) {
    let client = world.client().await;
    let guard = client.mutex(world.name("lock")).ttl(world.short_ttl()).lock().await.unwrap();
    let valid = guard.valid_for();
    assert!(!valid.is_zero() && valid < world.short_ttl(), "{valid:?}");
}

async fn a_waiter_keeps_its_place_for_longer_than_its_ttl(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let mutex = other.mutex(&name).ttl(world.short_ttl());
    let waits = world.spawn(async move { mutex.lock().await.unwrap() });
    world.until_waiting(&name, 1).await;
    let place = world.seen(&name).await.unwrap().waiters[0].id;
    world.sleep(5.0).await;
    assert_eq!(world.seen(&name).await.unwrap().waiters[0].id, place, "it lost its place");
    held.release().await.unwrap();
    assert!(waits.await.is_held());
}
