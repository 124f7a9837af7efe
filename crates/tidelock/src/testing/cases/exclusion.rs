//! One holder at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    backend::{Ask, Entered, Share},
    testing::suite::{Raw, World},
};

super::cases! { "exclusion":
    second_claim_waits_until_the_first_leaves,
    second_owner_waits_until_first_releases,
    second_task_of_a_client_waits_until_the_first_releases,
    try_on_a_busy_lock_is_none,
    try_on_a_lock_of_the_same_client_is_none,
    try_leaves_nothing_in_line,
    try_for_gives_up_after_its_time_and_leaves_nothing_in_line,
    wait_that_is_over_is_a_timeout_that_names_the_holder,
    tasks_over_several_clients_never_overlap,
    exclusive_claim_waits_for_readers,
    exclusive_claim_waits_for_permits(permits),
    readers_wait_for_an_exclusive_claim,
    permits_wait_for_an_exclusive_claim(permits),
    claim_that_enters_twice_takes_one_place,
    claim_that_leaves_twice_frees_nobody_else,
    claim_that_leaves_from_the_line_frees_nobody,
    several_names_in_opposite_orders_do_not_deadlock,
    try_on_several_names_takes_all_or_none,
}

async fn second_claim_waits_until_the_first_leaves(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let (first, second) = (one.claim(&name, Share::Exclusive), other.claim(&name, Share::Exclusive));
    one.hold(&first).await;
    assert_eq!(other.stand(&second).await.ahead, 1);
    one.leave(&first).await;
    other.holds(&second).await;
}

async fn second_owner_waits_until_first_releases(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let first = one.mutex(&name).lock().await.unwrap();
    let second = world.lock_later(&other, &name);
    world.until_waiting(&name, 1).await;
    assert!(!second.is_done(), "two hold at once");
    first.release().await.unwrap();
    assert!(second.await.is_held());
}

async fn second_task_of_a_client_waits_until_the_first_releases(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let first = client.mutex(&name).lock().await.unwrap();
    let second = world.lock_later(&client, &name);
    world.settle().await;
    assert!(!second.is_done(), "two hold at once");
    first.release().await.unwrap();
    assert!(second.await.is_held());
}

async fn try_on_a_busy_lock_is_none(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    assert!(other.mutex(&name).try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    assert!(other.mutex(&name).try_lock().await.unwrap().is_some());
}

async fn try_on_a_lock_of_the_same_client_is_none(world: World) {
    let client = world.client().await;
    let mutex = client.mutex(world.name("lock"));
    let held = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_some());
}

async fn try_leaves_nothing_in_line(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let first = one.claim(&name, Share::Exclusive);
    one.hold(&first).await;
    let tried = other.claim(&name, Share::Exclusive);
    assert_eq!(other.enter(&tried, Ask::Try).await, Entered::Busy);
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (1, 0));
    one.leave(&first).await;
    assert_eq!(world.seen(&name).await, None);
}

async fn try_for_gives_up_after_its_time_and_leaves_nothing_in_line(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let patience = Duration::from_millis(50);
    assert!(other.mutex(&name).try_lock_for(patience).await.unwrap().is_none());
    world.until_waiting(&name, 0).await;
    assert!(held.is_held());
}

async fn wait_that_is_over_is_a_timeout_that_names_the_holder(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).label("worker-7").lock().await.unwrap();
    // Nobody waits for long to learn a name: it is left out where the store takes its time.
    let names_it = || async {
        let error = other.mutex(&name).wait(Duration::from_millis(50)).lock().await.unwrap_err();
        assert!(error.is_timed_out() && error.is_retryable(), "{error}");
        error.to_string().contains("worker-7")
    };
    world.until("the error names the holder", names_it).await;
    assert!(held.is_held());
}

async fn tasks_over_several_clients_never_overlap(world: World) {
    let clients: [_; 3] = world.clients().await;
    let name = world.name("lock");
    let (inside, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for task in 0..12 {
        let mutex = clients[task % 3].mutex(&name);
        let (inside, count) = (Arc::clone(&inside), Arc::clone(&count));
        tasks.push(world.spawn(async move {
            for _ in 0..10 {
                let guard = mutex.lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two hold at once");
                let before = count.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                count.store(before + 1, Ordering::SeqCst);
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 120);
}

/// Several that share hold; one that does not waits until the last of them has left.
async fn exclusive_waits_for_all(world: &World, share: Share) {
    let [one, two, writer]: [Raw; 3] = world.backends().await;
    let name = world.name("lock");
    let (a, b) = (one.claim(&name, share), two.claim(&name, share));
    one.hold(&a).await;
    two.hold(&b).await;
    let exclusive = writer.claim(&name, Share::Exclusive);
    assert_eq!(writer.stand(&exclusive).await.ahead, 2);
    one.leave(&a).await;
    assert_eq!(world.waiting(&name).await, 1, "one of two left");
    two.leave(&b).await;
    writer.holds(&exclusive).await;
}

async fn exclusive_claim_waits_for_readers(world: World) {
    exclusive_waits_for_all(&world, Share::Shared).await;
}

async fn exclusive_claim_waits_for_permits(world: World) {
    exclusive_waits_for_all(&world, Share::Permits { n: 2, of: 5 }).await;
}

/// One holds alone; two that share wait, and hold together when it has left.
async fn all_wait_for_exclusive(world: &World, share: Share) {
    let [writer, one, two]: [Raw; 3] = world.backends().await;
    let name = world.name("lock");
    let exclusive = writer.claim(&name, Share::Exclusive);
    writer.hold(&exclusive).await;
    let (a, b) = (one.claim(&name, share), two.claim(&name, share));
    one.stand(&a).await;
    two.stand(&b).await;
    writer.leave(&exclusive).await;
    one.holds(&a).await;
    two.holds(&b).await;
}

async fn readers_wait_for_an_exclusive_claim(world: World) {
    all_wait_for_exclusive(&world, Share::Shared).await;
}

async fn permits_wait_for_an_exclusive_claim(world: World) {
    all_wait_for_exclusive(&world, Share::Permits { n: 2, of: 5 }).await;
}

async fn claim_that_enters_twice_takes_one_place(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let (first, second) = (one.claim(&name, Share::Exclusive), other.claim(&name, Share::Exclusive));
    let grant = one.hold(&first).await;
    let again = one.hold(&first).await;
    assert_eq!(again.epoch, grant.epoch, "a question that is asked again is the same question");
    other.stand(&second).await;
    assert_eq!(other.stand(&second).await.ahead, 1);
    one.leave(&first).await;
    other.leave(&second).await;
    assert_eq!(world.seen(&name).await, None);
}

async fn claim_that_leaves_twice_frees_nobody_else(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let (first, second) = (one.claim(&name, Share::Exclusive), other.claim(&name, Share::Exclusive));
    one.hold(&first).await;
    one.leave(&first).await;
    other.hold(&second).await;
    one.leave(&first).await;
    other.holds(&second).await;
    assert_eq!(world.holding(&name).await, 1);
}

async fn claim_that_leaves_from_the_line_frees_nobody(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let (first, second) = (one.claim(&name, Share::Exclusive), other.claim(&name, Share::Exclusive));
    one.hold(&first).await;
    other.stand(&second).await;
    other.leave(&second).await;
    one.holds(&first).await;
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (1, 0));
}

async fn several_names_in_opposite_orders_do_not_deadlock(world: World) {
    let [one, other] = world.clients().await;
    let (a, b, c) = (world.name("a"), world.name("b"), world.name("c"));
    let mut tasks = Vec::new();
    for (client, names) in [(one, [a.clone(), b.clone(), c.clone()]), (other, [c, b, a])] {
        tasks.push(world.spawn(async move {
            for _ in 0..20 {
                let all = client.lock_all(&names).await.unwrap();
                tokio::task::yield_now().await;
                assert!(all.is_held());
                all.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await;
    }
}

async fn try_on_several_names_takes_all_or_none(world: World) {
    let [one, other] = world.clients().await;
    let (a, b) = (world.name("a"), world.name("b"));
    let held = one.mutex(&b).lock().await.unwrap();
    assert!(other.multi([&a, &b]).try_lock().await.unwrap().is_none());
    world.until_idle(&a).await;
    held.release().await.unwrap();
    assert!(other.multi([&a, &b]).try_lock().await.unwrap().is_some());
}
