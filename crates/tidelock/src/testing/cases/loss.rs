//! A holder that loses its lock learns of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    LockState,
    backend::{Leave, Share, Standing, What},
    testing::suite::{PATIENCE, World},
};

super::cases! { "loss":
    evicted_holder_learns_that_its_lock_is_lost,
    evicted_reader_learns_it_and_another_reader_keeps_its_lock,
    release_of_a_lost_lock_is_an_error,
    release_of_a_lock_that_the_store_no_longer_knows_is_a_loss,
    release_of_several_locks_says_that_one_was_gone,
    run_stops_its_work_when_the_lock_is_lost,
    run_gives_the_result_and_the_lock_back,
    loss_of_one_lock_leaves_the_others_alone,
    nothing_is_lost_while_it_is_held_or_after_it_was_released,
    lock_is_lost_when_it_was_held_for_as_long_as_allowed,
    evicted_waiter_gets_the_lock_all_the_same,
    next_task_of_the_client_gets_the_lock_after_a_loss,
    late_renewal_does_not_revive_a_lapsed_claim,
    evicted_claim_is_gone,
    evicted_client_is_told(push),
    client_that_leaves_by_itself_is_not_told,
}

async fn evicted_holder_learns_that_its_lock_is_lost(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).ttl(world.short_ttl()).lock().await.unwrap();
    world.evict_holder(&name).await;
    let error = guard.lost().await;
    assert!(error.is_lost() && error.lock().is_some_and(|lock| lock.as_str() == name), "{error}");
    assert!(!guard.is_held() && guard.state() == LockState::Lost && guard.valid_for().is_zero());
}

async fn evicted_reader_learns_it_and_another_reader_keeps_its_lock(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let first = one.rw_lock(&name).ttl(world.short_ttl()).read().await.unwrap();
    let evicted = world.seen(&name).await.unwrap().holders[0].id;
    let second = other.rw_lock(&name).ttl(world.short_ttl()).read().await.unwrap();
    other.evict(&name, evicted, "").await.unwrap();
    assert!(first.lost().await.is_lost());
    world.sleep(1.5).await;
    assert!(second.is_held());
}

async fn release_of_a_lost_lock_is_an_error(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).ttl(world.short_ttl()).lock().await.unwrap();
    world.evict_holder(&name).await;
    guard.lost().await;
    let error = guard.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
}

async fn release_of_a_lock_that_the_store_no_longer_knows_is_a_loss(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.mutex(&name).detached(true).lock().await.unwrap();
    world.take_out_holder(&name).await;
    // Somebody else holds it meanwhile and is done.
    other.mutex(&name).lock().await.unwrap().release().await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert!(error.is_lost() && error.lock().is_some_and(|lock| lock.as_str() == name), "{error}");
}

async fn release_of_several_locks_says_that_one_was_gone(world: World) {
    let client = world.client().await;
    let names = [world.name("a"), world.name("b")];
    let guards = client.multi(&names).detached(true).lock().await.unwrap();
    world.take_out_holder(&names[0]).await;
    let error = guards.release().await.unwrap_err();
    assert!(error.is_lost() && error.lock().is_some_and(|lock| lock.as_str() == names[0]), "{error}");
    assert_eq!(world.seen(&names[1]).await, None, "the other is given back");
}

async fn run_stops_its_work_when_the_lock_is_lost(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let mutex = client.mutex(&name).ttl(world.short_ttl());
    let beats = Arc::new(AtomicU32::new(0));
    let beat = Arc::clone(&beats);
    let work = world.spawn(async move {
        let endless = |_| async move {
            loop {
                beat.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        mutex.run::<(), _, _>(endless).await
    });
    world.until("the work began", || async { beats.load(Ordering::SeqCst) > 2 }).await;
    world.evict_holder(&name).await;
    let error = work.await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let stopped_at = beats.load(Ordering::SeqCst);
    world.settle().await;
    assert_eq!(beats.load(Ordering::SeqCst), stopped_at, "the work went on");
}

async fn run_gives_the_result_and_the_lock_back(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let token = client.mutex(&name).run(|held| async move { held.is_held().then(|| held.token()) }).await;
    assert!(token.unwrap().is_some());
    assert_eq!(world.seen(&name).await, None);
}

async fn loss_of_one_lock_leaves_the_others_alone(world: World) {
    let client = world.client().await;
    let (a, b) = (world.name("a"), world.name("b"));
    let lost = client.mutex(&a).ttl(world.short_ttl()).lock().await.unwrap();
    let kept = client.mutex(&b).ttl(world.short_ttl()).lock().await.unwrap();
    world.evict_holder(&a).await;
    lost.lost().await;
    world.sleep(2.0).await;
    assert!(kept.is_held());
    kept.release().await.unwrap();
}

async fn nothing_is_lost_while_it_is_held_or_after_it_was_released(world: World) {
    let client = world.client().await;
    let guard = client.mutex(world.name("lock")).ttl(world.short_ttl()).lock().await.unwrap();
    let (lost, holding) = (guard.lost(), guard.holding());
    let lost = world.spawn(lost);
    world.sleep(3.0).await;
    assert!(!lost.is_done(), "lost while it was held");
    guard.release().await.unwrap();
    world.sleep(3.0).await;
    assert!(!lost.is_done(), "lost after it was released");
    assert_eq!(holding.state(), LockState::Released);
    lost.cancel();
}

async fn lock_is_lost_when_it_was_held_for_as_long_as_allowed(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.mutex(&name).max_hold(world.short_ttl()).lock().await.unwrap();
    let next = world.lock_later(&other, &name);
    let error = guard.lost().await;
    assert!(error.is_lost() && error.to_string().contains("max_hold"), "{error}");
    assert!(!guard.is_held());
    // Long before the lease of 30 seconds is over.
    let next = tokio::time::timeout(PATIENCE, next).await.expect("it is given back at once");
    assert!(next.token() > guard.token());
}

async fn evicted_waiter_gets_the_lock_all_the_same(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let waits = world.lock_later(&other, &name);
    world.until_waiting(&name, 1).await;
    let place = world.seen(&name).await.unwrap().waiters[0].id;
    one.evict(&name, place, "by hand").await.unwrap();
    let stands_anew = || async {
        world.seen(&name).await.is_some_and(|view| view.waiters.first().is_some_and(|w| w.id != place))
    };
    world.until("it stands in line again", stands_anew).await;
    held.release().await.unwrap();
    assert!(waits.await.is_held());
}

async fn next_task_of_the_client_gets_the_lock_after_a_loss(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).lock().await.unwrap();
    let next = world.lock_later(&client, &name);
    world.settle().await;
    world.evict_holder(&name).await;
    assert!(guard.lost().await.is_lost());
    let next = next.await;
    assert!(next.is_held() && next.token() > guard.token());
    drop(guard);
    world.settle().await;
    assert!(next.is_held(), "a lost guard gave back what another holds");
    next.release().await.unwrap();
}

async fn late_renewal_does_not_revive_a_lapsed_claim(world: World) {
    let client = world.backend().await;
    let name = world.name("lock");
    let claim = client.claim_for(&name, Share::Exclusive, None, world.short_ttl());
    client.hold(&claim).await;
    world.let_short_leases_lapse().await;
    assert_eq!(client.stands(&claim).await, Standing::Gone);
    assert_eq!(world.seen(&name).await, None);
}

async fn evicted_claim_is_gone(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let (first, second) = (one.claim(&name, Share::Exclusive), other.claim(&name, Share::Exclusive));
    let grant = one.hold(&first).await;
    other.stand(&second).await;
    other.leave_as(&first, Leave::evicted("by hand")).await;
    assert_eq!(one.stands(&first).await, Standing::Gone);
    assert!(other.holds(&second).await.epoch > grant.epoch);
}

async fn evicted_client_is_told(world: World) {
    let [one, other] = world.backends().await;
    let claim = one.claim(&world.name("lock"), Share::Exclusive);
    one.hold(&claim).await;
    other.leave_as(&claim, Leave::evicted("by hand")).await;
    let news = one.news(PATIENCE).await.expect("it is told");
    assert_eq!((news.id, news.what, &news.name), (claim.id, What::Evicted("by hand".into()), &claim.name));
}

async fn client_that_leaves_by_itself_is_not_told(world: World) {
    let client = world.backend().await;
    let claim = client.claim(&world.name("lock"), Share::Exclusive);
    client.hold(&claim).await;
    client.leave(&claim).await;
    while let Some(news) = client.news(world.short_ttl() / 2).await {
        assert!(!matches!(news.what, What::Evicted(_)), "it left by itself");
    }
}
