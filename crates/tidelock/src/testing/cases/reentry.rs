//! An owner that holds a lock may acquire it again.

use crate::{
    backend::{Entered, Refusal, Share, Standing},
    testing::suite::{LONG_TTL, Raw, World},
};

super::cases! { "reentry":
    owner_reenters_within_a_client,
    owner_reenters_from_another_client(reentry),
    owner_reenters_though_others_wait,
    owner_reenters_from_another_client_though_others_wait(reentry),
    lock_is_free_after_the_last_of_its_guards(reentry),
    lock_of_one_client_is_free_after_the_last_of_its_guards,
    another_owner_waits,
    nobody_in_particular_does_not_reenter,
    reader_that_asks_to_write_is_refused(reentry),
    owner_that_asks_for_more_permits_is_refused(reentry, permits),
    owner_that_asks_for_as_many_permits_takes_no_more_of_them(reentry, permits),
    writer_may_read(reentry),
    writer_that_goes_on_reading_lets_readers_in(reentry),
    hold_goes_on_when_the_first_claim_lapses(reentry),
    hold_goes_on_when_the_second_claim_lapses(reentry),
    owner_of_one_lock_waits_for_another,
}

async fn owner_reenters_within_a_client(world: World) {
    let mutex = world.client().await.mutex(world.name("lock")).owner("ann");
    let first = mutex.lock().await.unwrap();
    let second = mutex.lock().await.unwrap();
    assert_eq!(second.token(), first.token());
    assert!(mutex.try_lock().await.unwrap().is_some());
}

async fn owner_reenters_from_another_client(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let first = one.mutex(&name).owner("ann").lock().await.unwrap();
    let second = other.mutex(&name).owner("ann").lock().await.unwrap();
    assert_eq!(second.token(), first.token());
    assert!(first.is_held() && second.is_held());
}

async fn owner_reenters_though_others_wait(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let first = one.mutex(&name).owner("ann").lock().await.unwrap();
    let waits = world.lock_later(&other, &name);
    world.until_waiting(&name, 1).await;
    let second = one.mutex(&name).owner("ann").lock().await.unwrap();
    drop((first, second));
    assert!(waits.await.is_held());
}

async fn owner_reenters_from_another_client_though_others_wait(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    let ann = |client: &Raw| client.claim_for(&name, Share::Exclusive, Some("ann"), LONG_TTL);
    let (first, second) = (ann(&one), ann(&two));
    let waits = three.claim(&name, Share::Exclusive);
    let grant = one.hold(&first).await;
    three.stand(&waits).await;
    assert_eq!(two.hold(&second).await.epoch, grant.epoch);
    one.leave(&first).await;
    assert!(matches!(three.stands(&waits).await, Standing::Waiting(_)));
    two.leave(&second).await;
    three.holds(&waits).await;
}

async fn lock_is_free_after_the_last_of_its_guards(world: World) {
    let [one, two, three] = world.clients().await;
    let name = world.name("lock");
    let first = one.mutex(&name).owner("ann").lock().await.unwrap();
    let second = two.mutex(&name).owner("ann").lock().await.unwrap();
    first.release().await.unwrap();
    assert!(three.mutex(&name).try_lock().await.unwrap().is_none(), "one guard is left");
    assert!(second.is_held());
    second.release().await.unwrap();
    assert!(three.mutex(&name).try_lock().await.unwrap().is_some());
}

async fn lock_of_one_client_is_free_after_the_last_of_its_guards(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let mutex = one.mutex(&name).owner("ann");
    let (first, second) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    first.release().await.unwrap();
    assert!(other.mutex(&name).try_lock().await.unwrap().is_none(), "one guard is left");
    second.release().await.unwrap();
    assert!(other.mutex(&name).try_lock().await.unwrap().is_some());
}

async fn another_owner_waits(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).owner("ann").lock().await.unwrap();
    assert!(other.mutex(&name).owner("bob").try_lock().await.unwrap().is_none());
    assert!(one.mutex(&name).owner("bob").try_lock().await.unwrap().is_none());
    assert!(one.mutex(&name).owner("Ann").try_lock().await.unwrap().is_none());
    assert!(held.is_held());
}

async fn nobody_in_particular_does_not_reenter(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let held = client.mutex(&name).owner("ann").lock().await.unwrap();
    assert!(client.mutex(&name).try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    let held = client.mutex(&name).lock().await.unwrap();
    assert!(client.mutex(&name).try_lock().await.unwrap().is_none());
    assert!(held.is_held());
}

async fn reader_that_asks_to_write_is_refused(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let reads = one.rw_lock(&name).owner("ann").read().await.unwrap();
    for client in [&one, &other] {
        let error = client.rw_lock(&name).owner("ann").write().await.unwrap_err();
        assert!(error.is_upgrade() && !error.is_retryable(), "{error}");
    }
    assert!(reads.is_held());
}

async fn owner_that_asks_for_more_permits_is_refused(world: World) {
    let client = world.backend().await;
    let name = world.name("pool");
    let permits = |n| client.claim_for(&name, Share::Permits { n, of: 5 }, Some("ann"), LONG_TTL);
    client.hold(&permits(2)).await;
    let refused = client.queue(&permits(3)).await;
    assert!(matches!(refused, Entered::Refused(Refusal::Upgrade(_))), "{refused:?}");
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (1, 0));
}

async fn owner_that_asks_for_as_many_permits_takes_no_more_of_them(world: World) {
    let client = world.backend().await;
    let name = world.name("pool");
    let permits = |n, owner| client.claim_for(&name, Share::Permits { n, of: 5 }, Some(owner), LONG_TTL);
    client.hold(&permits(3, "ann")).await;
    client.hold(&permits(3, "ann")).await;
    client.hold(&permits(2, "bob")).await;
    client.stand(&permits(1, "cat")).await;
}

async fn writer_may_read(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let writes = one.rw_lock(&name).owner("ann").write().await.unwrap();
    for client in [&one, &other] {
        let reads = client.rw_lock(&name).owner("ann").read().await.unwrap();
        assert!(reads.is_held() && writes.is_held());
    }
}

async fn writer_that_goes_on_reading_lets_readers_in(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    let writes = one.claim_for(&name, Share::Exclusive, Some("ann"), LONG_TTL);
    let reads = two.claim_for(&name, Share::Shared, Some("ann"), LONG_TTL);
    let (reader, writer) = (three.claim(&name, Share::Shared), three.claim(&name, Share::Exclusive));
    let epoch = one.hold(&writes).await.epoch;
    two.hold(&reads).await;
    three.stand(&reader).await;
    one.leave(&writes).await;
    assert!(three.holds(&reader).await.epoch > epoch);
    three.stand(&writer).await;
    three.leave(&reader).await;
    assert!(matches!(three.stands(&writer).await, Standing::Waiting(_)), "the owner still reads");
    two.leave(&reads).await;
    three.holds(&writer).await;
}

/// Two claims of one owner; the one that is renewed keeps the hold when the other lapses.
async fn one_of_two_lapses(world: &World, lapses_first: bool) {
    let [one, two] = world.backends().await;
    let name = world.name("lock");
    let ttl = |short| if short { world.short_ttl() } else { LONG_TTL };
    let first = one.claim_for(&name, Share::Exclusive, Some("ann"), ttl(lapses_first));
    let second = one.claim_for(&name, Share::Exclusive, Some("ann"), ttl(!lapses_first));
    let waits = two.claim(&name, Share::Exclusive);
    let epoch = one.hold(&first).await.epoch;
    one.hold(&second).await;
    two.stand(&waits).await;
    world.let_short_leases_lapse().await;
    let (lapsed, kept) = if lapses_first { (first, second) } else { (second, first) };
    assert_eq!(one.stands(&lapsed).await, Standing::Gone);
    assert_eq!(one.holds(&kept).await.epoch, epoch);
    assert!(matches!(two.stands(&waits).await, Standing::Waiting(_)));
    one.leave(&kept).await;
    two.holds(&waits).await;
}

async fn hold_goes_on_when_the_first_claim_lapses(world: World) {
    one_of_two_lapses(&world, true).await;
}

async fn hold_goes_on_when_the_second_claim_lapses(world: World) {
    one_of_two_lapses(&world, false).await;
}

async fn owner_of_one_lock_waits_for_another(world: World) {
    let [one, other] = world.clients().await;
    let (a, b) = (world.name("a"), world.name("b"));
    let _first = one.mutex(&a).owner("ann").lock().await.unwrap();
    let _second = other.mutex(&b).lock().await.unwrap();
    assert!(one.mutex(&b).owner("ann").try_lock().await.unwrap().is_none());
}
