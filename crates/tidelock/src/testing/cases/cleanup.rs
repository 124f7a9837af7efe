//! What is over is gone from the store.

use std::time::Duration;

use crate::{
    LockState,
    backend::Share,
    testing::suite::{PATIENCE, World},
};

super::cases! { "cleanup":
    released_locks_leave_nothing,
    dropped_guards_leave_nothing,
    guard_dropped_on_another_thread_leaves_nothing,
    lost_lock_leaves_nothing,
    contended_locks_leave_nothing,
    guard_outlives_the_client_it_came_from,
    claims_of_a_client_that_went_away_lapse,
    shutdown_waits_for_guards,
    shutdown_gives_back_what_is_still_held,
    shutdown_ends_waiting,
    client_that_was_shut_down_acquires_nothing,
}

async fn released_locks_leave_nothing(world: World) {
    let client = world.client().await;
    client.mutex(world.name("a")).lock().await.unwrap().release().await.unwrap();
    client.rw_lock(world.name("b")).read().await.unwrap().release().await.unwrap();
    client.lock_all([world.name("c"), world.name("d")]).await.unwrap().release().await.unwrap();
    assert_eq!(world.in_use().await, [""; 0]);
}

async fn dropped_guards_leave_nothing(world: World) {
    let client = world.client().await;
    drop(client.mutex(world.name("a")).lock().await.unwrap());
    drop(client.rw_lock(world.name("b")).read().await.unwrap());
    drop(client.lock_all([world.name("c"), world.name("d")]).await.unwrap());
    world.until("nothing is in line", || async { world.in_use().await.is_empty() }).await;
}

async fn guard_dropped_on_another_thread_leaves_nothing(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).lock().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    world.until_idle(&name).await;
}

async fn lost_lock_leaves_nothing(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).max_hold(Duration::from_millis(20)).lock().await.unwrap();
    guard.lost().await;
    world.until_idle(&name).await;
    drop(guard);
    world.settle().await;
    assert_eq!(world.seen(&name).await, None);
}

async fn contended_locks_leave_nothing(world: World) {
    let clients: [_; 3] = world.clients().await;
    let name = world.name("lock");
    let mut tasks = Vec::new();
    for task in 0..12 {
        let lock = clients[task % 3].rw_lock(&name);
        tasks.push(world.spawn(async move {
            for round in 0..5 {
                let guard = if (task + round) % 2 == 0 { lock.write().await } else { lock.read().await };
                tokio::task::yield_now().await;
                drop(guard.unwrap());
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    world.until_idle(&name).await;
}

async fn guard_outlives_the_client_it_came_from(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).ttl(world.short_ttl()).lock().await.unwrap();
    drop(client);
    world.sleep(3.0).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(world.seen(&name).await, None);
}

async fn claims_of_a_client_that_went_away_lapse(world: World) {
    let [one, other] = world.backends().await;
    let (held, waited) = (world.name("held"), world.name("waited"));
    let mine = |name: &str| one.claim_for(name, Share::Exclusive, None, world.short_ttl());
    let in_the_way = other.claim(&waited, Share::Exclusive);
    other.hold(&in_the_way).await;
    one.hold(&mine(&held)).await;
    one.stand(&mine(&waited)).await;
    drop(one);
    world.let_short_leases_lapse().await;
    other.leave(&in_the_way).await;
    assert_eq!(world.in_use().await, [""; 0]);
}

async fn shutdown_waits_for_guards(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let guard = client.mutex(&name).lock().await.unwrap();
    let closing = client.clone();
    let shutdown = world.spawn(async move { closing.shutdown(PATIENCE).await });
    world.settle().await;
    assert!(!shutdown.is_done() && guard.is_held(), "a guard has the time to be released");
    guard.release().await.unwrap();
    assert_eq!(shutdown.await, 0, "nothing was cut off");
    assert_eq!(world.seen(&name).await, None);
}

async fn shutdown_gives_back_what_is_still_held(world: World) {
    let client = world.client().await;
    let guard = client.mutex(world.name("a")).lock().await.unwrap();
    let reader = client.rw_lock(world.name("b")).read().await.unwrap();
    assert_eq!(client.shutdown(Duration::from_millis(20)).await, 2);
    assert_eq!((guard.state(), reader.state()), (LockState::Lost, LockState::Lost));
    assert!(guard.lost().await.is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert_eq!(world.in_use().await, [""; 0]);
    assert_eq!(client.shutdown(Duration::ZERO).await, 0, "once more is harmless");
}

async fn shutdown_ends_waiting(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let mutex = other.mutex(&name);
    let waits = world.spawn(async move { mutex.lock().await.map(drop) });
    world.until_waiting(&name, 1).await;
    assert_eq!(other.shutdown(Duration::from_millis(20)).await, 0);
    let error = waits.await.unwrap_err();
    assert!(error.is_closed(), "{error}");
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (1, 0));
    assert!(held.is_held());
}

async fn client_that_was_shut_down_acquires_nothing(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    client.shutdown(Duration::ZERO).await;
    for error in [
        client.mutex(&name).lock().await.unwrap_err(),
        client.rw_lock(&name).try_read().await.unwrap_err(),
        client.lock_all([&name]).await.unwrap_err(),
    ] {
        assert!(error.is_closed() && error.to_string().contains(&name), "{error}");
    }
    assert_eq!(world.seen(&name).await, None);
}
