//! A caller that goes away leaves nothing behind.

use std::{
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use crate::{
    Guard, Locks, Result,
    testing::suite::{PATIENCE, World, polled},
};

super::cases! { "cancel":
    free_lock_dropped_after_any_number_of_polls_leaves_nothing,
    busy_lock_dropped_after_any_number_of_polls_leaves_nothing,
    try_dropped_after_any_number_of_polls_leaves_nothing,
    lock_dropped_after_any_time_leaves_nothing,
    lock_dropped_at_any_moment_of_a_hand_over_leaves_nothing,
    read_dropped_at_any_moment_of_a_hand_over_leaves_nothing,
    permits_dropped_at_any_moment_of_a_hand_over_leave_nothing(permits),
    lock_dropped_at_any_moment_of_a_hand_off_leaves_nothing,
    time_that_runs_out_at_the_moment_of_the_grant_leaves_nothing,
    late_grant_is_given_back,
    release_dropped_after_any_number_of_polls_gives_the_lock_back,
    run_that_is_dropped_gives_the_lock_back,
    several_locks_dropped_half_way_leave_nothing,
    a_waiter_behind_one_that_goes_away_moves_on,
    task_that_stands_behind_one_that_goes_away_moves_on,
}

type Asking = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

/// For how long something runs before it is dropped: turns of the runtime, then time.
#[derive(Clone, Copy)]
struct Span(u32, Duration);

/// Ever longer: each of the first turns, then fewer, far enough for a server to answer, then for one
/// that has to be asked.
fn ever_longer() -> impl Iterator<Item = Span> {
    let turns = std::iter::successors(Some(0), |turns| Some(turns + 1 + turns / 8));
    let times = (0..13).map(|power| Duration::from_millis(1 << power));
    turns
        .take_while(|turns| *turns < 2_000)
        .map(|turns| Span(turns, Duration::ZERO))
        .chain(times.map(|t| Span(0, t)))
}

/// Runs a future for so long, then drops it.
async fn run_for<T>(Span(turns, time): Span, work: impl Future<Output = T> + Send) -> Option<T> {
    let end = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = end => None,
    }
}

/// A newcomer gets the lock long before any lease could lapse, and then nothing is left.
async fn nothing_is_left(world: &World, newcomer: &Locks, name: &str) {
    let guard = tokio::time::timeout(PATIENCE, newcomer.mutex(name).lock()).await;
    guard.expect("somebody who went away is in the way").unwrap().release().await.unwrap();
    world.until_idle(name).await;
}

async fn free_lock_dropped_after_any_number_of_polls_leaves_nothing(world: World) {
    let [one, newcomer] = world.clients().await;
    let name = world.name("lock");
    for polls in 0.. {
        let mutex = one.mutex(&name);
        let done = polled(polls, mutex.lock()).await.is_some();
        nothing_is_left(&world, &newcomer, &name).await;
        if done {
            return;
        }
    }
}

async fn busy_lock_dropped_after_any_number_of_polls_leaves_nothing(world: World) {
    let [one, other, newcomer] = world.clients().await;
    let name = world.name("lock");
    for polls in 0.. {
        let held = one.mutex(&name).lock().await.unwrap();
        let mutex = other.mutex(&name);
        let waits = world.spawn(async move { polled(polls, mutex.lock()).await.is_some() });
        world.settle().await;
        held.release().await.unwrap();
        let done = waits.await;
        nothing_is_left(&world, &newcomer, &name).await;
        if done {
            return;
        }
    }
}

async fn try_dropped_after_any_number_of_polls_leaves_nothing(world: World) {
    let [one, other, newcomer] = world.clients().await;
    let name = world.name("lock");
    for polls in 0.. {
        let free = polled(polls, one.mutex(&name).try_lock()).await.is_some();
        world.until_idle(&name).await;
        let held = one.mutex(&name).lock().await.unwrap();
        let busy = polled(polls, other.mutex(&name).try_lock()).await.is_some();
        held.release().await.unwrap();
        nothing_is_left(&world, &newcomer, &name).await;
        if free && busy {
            return;
        }
    }
}

async fn lock_dropped_after_any_time_leaves_nothing(world: World) {
    let [one, other, newcomer] = world.clients().await;
    let name = world.name("lock");
    for patience in 0..16 {
        for released_after in [0, 5, 10] {
            let held = one.mutex(&name).lock().await.unwrap();
            let mutex = other.mutex(&name);
            let patience = Duration::from_millis(patience);
            let waits =
                world.spawn(async move { tokio::time::timeout(patience, mutex.lock()).await.map(drop) });
            tokio::time::sleep(Duration::from_millis(released_after)).await;
            held.release().await.unwrap();
            // Whether it came in time is not the question.
            drop(waits.await);
            nothing_is_left(&world, &newcomer, &name).await;
        }
    }
}

/// A lock changes hands, and the task that should get it goes away at every moment of that.
async fn hand_over(world: &World, waits_in_store: bool, ask: fn(&Locks, &str) -> Asking) {
    let [one, other, newcomer] = world.clients().await;
    let name = world.name("lock");
    let waiter = if waits_in_store { &other } else { &one };
    for span in ever_longer() {
        let held = one.mutex(&name).lock().await.unwrap();
        let mut asking = ask(waiter, &name);
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        if waits_in_store {
            world.until_waiting(&name, 1).await;
        }
        held.release().await.unwrap();
        let done = run_for(span, asking).await.is_some();
        nothing_is_left(world, &newcomer, &name).await;
        if done {
            return;
        }
    }
    panic!("the lock was never handed over");
}

fn lock(locks: &Locks, name: &str) -> Asking {
    let mutex = locks.mutex(name);
    Box::pin(async move { mutex.lock().await })
}

fn read(locks: &Locks, name: &str) -> Asking {
    let lock = locks.rw_lock(name);
    Box::pin(async move { lock.read().await })
}

fn permits(locks: &Locks, name: &str) -> Asking {
    let pool = locks.semaphore(name, 5);
    Box::pin(async move { pool.acquire(3).await })
}

async fn lock_dropped_at_any_moment_of_a_hand_over_leaves_nothing(world: World) {
    hand_over(&world, true, lock).await;
}

async fn read_dropped_at_any_moment_of_a_hand_over_leaves_nothing(world: World) {
    hand_over(&world, true, read).await;
}

async fn permits_dropped_at_any_moment_of_a_hand_over_leave_nothing(world: World) {
    hand_over(&world, true, permits).await;
}

async fn lock_dropped_at_any_moment_of_a_hand_off_leaves_nothing(world: World) {
    hand_over(&world, false, lock).await;
}

async fn time_that_runs_out_at_the_moment_of_the_grant_leaves_nothing(world: World) {
    let [one, other, newcomer] = world.clients().await;
    let name = world.name("lock");
    let limit = Duration::from_millis(20);
    for released_after in 17..=23 {
        for waiter in [&other, &one] {
            let held = one.mutex(&name).lock().await.unwrap();
            let mutex = waiter.mutex(&name);
            let waits = world.spawn(async move {
                if let Some(guard) = mutex.try_lock_for(limit).await.unwrap() {
                    assert!(guard.is_held());
                    guard.release().await.unwrap();
                }
            });
            tokio::time::sleep(Duration::from_millis(released_after)).await;
            held.release().await.unwrap();
            waits.await;
            nothing_is_left(&world, &newcomer, &name).await;
        }
    }
}

async fn late_grant_is_given_back(world: World) {
    let [one, other, newcomer] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let mut asking = lock(&other, &name);
    assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    world.until_waiting(&name, 1).await;
    held.release().await.unwrap();
    // The store has made it a holder, and its client has not yet looked.
    assert_eq!(world.holding(&name).await, 1);
    drop(asking);
    let guard = tokio::time::timeout(PATIENCE, newcomer.mutex(&name).lock()).await;
    assert!(guard.expect("nobody else wants it").unwrap().is_held());
}

async fn release_dropped_after_any_number_of_polls_gives_the_lock_back(world: World) {
    let [one, newcomer] = world.clients().await;
    let name = world.name("lock");
    for polls in 0.. {
        let held = one.mutex(&name).lock().await.unwrap();
        let done = polled(polls, held.release()).await.is_some();
        nothing_is_left(&world, &newcomer, &name).await;
        if done {
            return;
        }
    }
}

async fn run_that_is_dropped_gives_the_lock_back(world: World) {
    let [one, newcomer] = world.clients().await;
    let name = world.name("lock");
    let mutex = one.mutex(&name);
    let work = world.spawn(async move { mutex.run(|_| std::future::pending::<()>()).await });
    world.until("the work began", || async { world.holding(&name).await == 1 }).await;
    work.cancel();
    nothing_is_left(&world, &newcomer, &name).await;
}

async fn several_locks_dropped_half_way_leave_nothing(world: World) {
    let [one, other, newcomer] = world.clients().await;
    let (a, b) = (world.name("a"), world.name("b"));
    let held = one.mutex(&b).lock().await.unwrap();
    let both = other.multi([&a, &b]);
    let waits = world.spawn(async move { both.lock().await.map(drop) });
    world.until_waiting(&b, 1).await;
    assert_eq!(world.holding(&a).await, 1);
    waits.cancel();
    nothing_is_left(&world, &newcomer, &a).await;
    held.release().await.unwrap();
    nothing_is_left(&world, &newcomer, &b).await;
}

async fn a_waiter_behind_one_that_goes_away_moves_on(world: World) {
    let [one, two, three] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let goes_away = world.lock_later(&two, &name);
    world.until_waiting(&name, 1).await;
    let behind = world.lock_later(&three, &name);
    world.until_waiting(&name, 2).await;
    goes_away.cancel();
    world.until_waiting(&name, 1).await;
    held.release().await.unwrap();
    assert!(behind.await.is_held());
}

async fn task_that_stands_behind_one_that_goes_away_moves_on(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let held = client.mutex(&name).lock().await.unwrap();
    let goes_away = world.lock_later(&client, &name);
    world.settle().await;
    let behind = world.lock_later(&client, &name);
    world.settle().await;
    goes_away.cancel();
    held.release().await.unwrap();
    behind.await.release().await.unwrap();
    world.until_idle(&name).await;
}
