//! A number of permits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    backend::{Capacity, Share},
    testing::{rng::Rng, suite::World},
};

super::cases! { "permits":
    weights_add_up_to_the_number_of_permits(permits),
    claim_for_all_permits_waits_until_all_are_free(permits),
    claim_for_all_permits_keeps_all_others_out(permits),
    permits_that_come_back_go_to_waiters(permits),
    dropped_guard_gives_its_permits_back(permits),
    try_takes_what_is_free_and_no_more(permits),
    try_for_gives_up_when_too_few_are_free(permits),
    largest_numbers_do_not_overflow(permits),
    number_of_permits_shows_in_line(permits),
    taken_permits_never_exceed_their_number(permits),
}

async fn weights_add_up_to_the_number_of_permits(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("pool");
    let permits = |n| Share::Permits { n, of: 5 };
    one.hold(&one.claim(&name, permits(3))).await;
    two.hold(&two.claim(&name, permits(2))).await;
    assert_eq!(three.stand(&three.claim(&name, permits(1))).await.ahead, 2);
}

async fn claim_for_all_permits_waits_until_all_are_free(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("pool");
    let permits = |n| Share::Permits { n, of: 3 };
    let (a, b, all) = (one.claim(&name, permits(1)), two.claim(&name, permits(1)), permits(3));
    let all = three.claim(&name, all);
    one.hold(&a).await;
    two.hold(&b).await;
    three.stand(&all).await;
    one.leave(&a).await;
    assert_eq!(world.waiting(&name).await, 1);
    two.leave(&b).await;
    three.holds(&all).await;
}

async fn claim_for_all_permits_keeps_all_others_out(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    let all = one.semaphore(&name, 3).acquire(3).await.unwrap();
    assert!(other.semaphore(&name, 3).try_acquire(1).await.unwrap().is_none());
    all.release().await.unwrap();
    assert!(other.semaphore(&name, 3).try_acquire(3).await.unwrap().is_some());
}

async fn permits_that_come_back_go_to_waiters(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    let held = one.semaphore(&name, 2).acquire(2).await.unwrap();
    let mut waiting = Vec::new();
    for client in [&one, &other] {
        let pool = client.semaphore(&name, 2);
        waiting.push(world.spawn(async move { pool.acquire(1).await.unwrap() }));
    }
    world.until_waiting(&name, 2).await;
    held.release().await.unwrap();
    let mut guards = Vec::new();
    for task in waiting {
        guards.push(task.await);
    }
    assert!(guards.iter().all(|guard| guard.is_held()));
}

async fn dropped_guard_gives_its_permits_back(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    drop(one.semaphore(&name, 4).acquire(3).await.unwrap());
    assert!(other.semaphore(&name, 4).acquire(4).await.unwrap().is_held());
}

async fn try_takes_what_is_free_and_no_more(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    let held = one.semaphore(&name, 5).acquire(3).await.unwrap();
    assert!(other.semaphore(&name, 5).try_acquire(3).await.unwrap().is_none());
    assert!(other.semaphore(&name, 5).try_acquire(2).await.unwrap().is_some());
    assert!(held.is_held());
}

async fn try_for_gives_up_when_too_few_are_free(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("pool");
    let held = one.semaphore(&name, 5).acquire(3).await.unwrap();
    let patience = Duration::from_millis(30);
    assert!(other.semaphore(&name, 5).try_acquire_for(3, patience).await.unwrap().is_none());
    assert!(held.is_held());
}

async fn largest_numbers_do_not_overflow(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("pool");
    let permits = |n| Share::Permits { n, of: u32::MAX };
    let (most, rest) = (one.claim(&name, permits(u32::MAX - 1)), one.claim(&name, permits(1)));
    one.hold(&most).await;
    one.hold(&rest).await;
    let all = other.claim(&name, permits(u32::MAX));
    other.stand(&all).await;
    one.leave(&most).await;
    assert_eq!(world.waiting(&name).await, 1);
    one.leave(&rest).await;
    other.holds(&all).await;
}

async fn number_of_permits_shows_in_line(world: World) {
    let client = world.client().await;
    let name = world.name("pool");
    let held = client.semaphore(&name, 5).acquire(3).await.unwrap();
    let view = world.seen(&name).await.unwrap();
    assert_eq!(view.capacity, Some(Capacity::Of(5)));
    assert_eq!(view.holders[0].share, Share::Permits { n: 3, of: 5 });
    assert!(held.is_held());
}

async fn taken_permits_never_exceed_their_number(world: World) {
    const PERMITS: u32 = 7;
    let clients: [_; 3] = world.clients().await;
    let name = world.name("pool");
    let taken = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for task in 0..9 {
        let (pool, taken) = (clients[task % 3].semaphore(&name, PERMITS), Arc::clone(&taken));
        let mut rng = Rng::new(task as u64);
        tasks.push(world.spawn(async move {
            for _ in 0..12 {
                let n = rng.between(1, u64::from(PERMITS)) as u32;
                let guard = pool.acquire(n).await.unwrap();
                let now = taken.fetch_add(n, Ordering::SeqCst) + n;
                assert!(now <= PERMITS, "{now} of {PERMITS} permits are taken");
                tokio::task::yield_now().await;
                taken.fetch_sub(n, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await;
    }
}
