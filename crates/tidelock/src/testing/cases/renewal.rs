//! What is held stays held.

use crate::{
    Name,
    backend::{Share, Standing},
    testing::suite::World,
};

super::cases! { "renewal":
    holder_keeps_its_lock_for_many_leases,
    readers_of_one_client_keep_their_lock_for_many_leases,
    permits_are_kept_for_many_leases(permits),
    many_locks_of_one_client_are_kept_together,
    renewal_keeps_the_token,
    batch_answers_each_claim_in_order,
    batch_of_nothing_answers_nothing,
    batch_of_many_answers_each_claim,
    claim_that_was_never_entered_is_gone,
    renewal_under_another_name_is_gone,
}

async fn holder_keeps_its_lock_for_many_leases(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.mutex(&name).ttl(world.short_ttl()).lock().await.unwrap();
    for _ in 0..10 {
        world.sleep(1.0).await;
        assert!(guard.is_held());
        assert!(other.mutex(&name).try_lock().await.unwrap().is_none(), "it lapsed");
    }
    guard.release().await.unwrap();
}

async fn readers_of_one_client_keep_their_lock_for_many_leases(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let lock = one.rw_lock(&name).ttl(world.short_ttl());
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    world.sleep(2.0).await;
    first.release().await.unwrap();
    world.sleep(3.0).await;
    assert!(second.is_held());
    assert!(other.rw_lock(&name).try_write().await.unwrap().is_none(), "it lapsed");
}

async fn permits_are_kept_for_many_leases(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    let guard = one.semaphore(&name, 5).ttl(world.short_ttl()).acquire(3).await.unwrap();
    world.sleep(5.0).await;
    assert!(guard.is_held());
    assert!(other.semaphore(&name, 5).try_acquire(3).await.unwrap().is_none(), "they lapsed");
}

async fn many_locks_of_one_client_are_kept_together(world: World) {
    let client = world.client().await;
    let mut guards = Vec::new();
    for number in 0..40 {
        let mutex = client.mutex(world.name(&format!("lock-{number}"))).ttl(world.short_ttl());
        guards.push(mutex.lock().await.unwrap());
    }
    world.sleep(5.0).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn renewal_keeps_the_token(world: World) {
    let client = world.backend().await;
    let claim = client.claim(&world.name("lock"), Share::Exclusive);
    let grant = client.hold(&claim).await;
    for _ in 0..3 {
        assert_eq!(client.holds(&claim).await.epoch, grant.epoch);
    }
}

async fn batch_answers_each_claim_in_order(world: World) {
    let [one, other] = world.backends().await;
    let (a, b) = (world.name("a"), world.name("b"));
    let in_the_way = other.claim(&b, Share::Exclusive);
    other.hold(&in_the_way).await;
    let (held, waits) = (one.claim(&a, Share::Exclusive), one.claim(&b, Share::Exclusive));
    let (unknown, left) = (one.claim(&a, Share::Exclusive), one.claim(&world.name("c"), Share::Shared));
    one.hold(&held).await;
    one.stand(&waits).await;
    one.hold(&left).await;
    one.leave(&left).await;
    let standings = one.renew(&[unknown, waits, left, held]).await;
    assert!(
        matches!(standings[..], [Standing::Gone, Standing::Waiting(_), Standing::Gone, Standing::Held(_)]),
        "{standings:?}"
    );
}

async fn batch_of_nothing_answers_nothing(world: World) {
    assert_eq!(world.backend().await.renew(&[]).await, []);
}

async fn batch_of_many_answers_each_claim(world: World) {
    let client = world.backend().await;
    let size = world.abilities().renew_batch.min(200);
    let mut claims = Vec::new();
    for number in 0..size {
        let claim = client.claim(&world.name(&format!("{number}")), Share::Exclusive);
        client.hold(&claim).await;
        claims.push(claim);
    }
    let standings = client.renew(&claims).await;
    assert_eq!(standings.len(), size);
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Held(_))));
    for claim in &claims {
        client.leave(claim).await;
    }
}

async fn claim_that_was_never_entered_is_gone(world: World) {
    let client = world.backend().await;
    let name = world.name("lock");
    assert_eq!(client.stands(&client.claim(&name, Share::Exclusive)).await, Standing::Gone);
    assert_eq!(world.seen(&name).await, None, "asking took a place");
}

async fn renewal_under_another_name_is_gone(world: World) {
    let client = world.backend().await;
    let claim = client.claim(&world.name("lock"), Share::Exclusive);
    client.hold(&claim).await;
    let mut elsewhere = (*claim).clone();
    elsewhere.name = Name::new(&world.name("other")).unwrap();
    assert_eq!(client.stands(&elsewhere.into()).await, Standing::Gone);
    client.holds(&claim).await;
}
