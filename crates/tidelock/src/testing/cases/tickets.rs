//! What is left behind is held until its ticket or its lease says otherwise.

use std::time::Duration;

use crate::{Locks, Ticket, testing::suite::World};

super::cases! { "tickets":
    left_lock_is_held_when_its_client_is_gone,
    left_lock_is_given_back_by_its_ticket,
    left_lock_is_kept_by_renewing_its_ticket,
    left_lock_lapses_unless_it_is_renewed,
    left_lock_can_be_taken_away_by_force,
    left_reader_keeps_writers_out_and_lets_readers_in,
    ticket_of_a_line_that_lapsed_neither_renews_nor_releases_what_another_holds,
    lock_that_was_not_asked_for_so_cannot_be_left,
    detached_lock_is_given_back_when_its_guard_is_dropped,
    detached_waiter_that_goes_leaves_nothing,
    lock_with_a_shortest_time_is_kept_after_its_release_and_free_then,
    lock_with_a_shortest_time_is_kept_when_its_client_is_gone,
}

/// Takes a lock with a client of its own and leaves it behind when that is gone.
async fn left_by_another(world: &World, name: &str, ttl: Duration) -> Ticket {
    let client = world.client().await;
    let ticket = left(&client, name, ttl).await;
    client.shutdown(Duration::from_secs(1)).await;
    drop(client);
    world.settle().await;
    // As text, the way it gets to another process.
    ticket.to_string().parse().unwrap()
}

async fn left(client: &Locks, name: &str, ttl: Duration) -> Ticket {
    let guard = client.mutex(name).ttl(ttl).detached(true).lock().await.unwrap();
    let token = guard.token();
    let ticket = guard.leave_behind().unwrap();
    assert_eq!((ticket.name().as_str(), ticket.token(), ticket.ttl()), (name, token, ttl));
    ticket
}

async fn left_lock_is_held_when_its_client_is_gone(world: World) {
    let other = world.client().await;
    let name = world.name("lock");
    left_by_another(&world, &name, crate::DEFAULT_TTL).await;
    assert!(other.mutex(&name).try_lock().await.unwrap().is_none());
    assert_eq!(world.holding(&name).await, 1);
}

async fn left_lock_is_given_back_by_its_ticket(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let ticket = left_by_another(&world, &name, crate::DEFAULT_TTL).await;
    let waits = world.lock_later(&one, &name);
    world.until_waiting(&name, 1).await;
    other.release(&ticket).await.unwrap();
    let guard = waits.await;
    assert!(guard.token() > ticket.token());
    assert!(other.release(&ticket).await.unwrap_err().is_lost(), "it was given back before");
    assert!(guard.is_held(), "a used ticket gave back what another holds");
}

async fn left_lock_is_kept_by_renewing_its_ticket(world: World) {
    let other = world.client().await;
    let name = world.name("lock");
    let ticket = left_by_another(&world, &name, world.short_ttl()).await;
    for _ in 0..6 {
        other.renew(&ticket).await.unwrap();
        world.sleep(0.4).await;
        assert!(other.mutex(&name).try_lock().await.unwrap().is_none(), "it lapsed");
    }
    other.release(&ticket).await.unwrap();
    assert_eq!(world.seen(&name).await, None);
}

async fn left_lock_lapses_unless_it_is_renewed(world: World) {
    let other = world.client().await;
    let name = world.name("lock");
    let ticket = left_by_another(&world, &name, world.short_ttl()).await;
    // One that waits gets it by the lease alone.
    let guard = other.mutex(&name).lock().await.unwrap();
    assert!(guard.token() > ticket.token());
    assert!(other.renew(&ticket).await.unwrap_err().is_lost());
    assert!(guard.is_held());
}

async fn left_lock_can_be_taken_away_by_force(world: World) {
    let other = world.client().await;
    let name = world.name("lock");
    let ticket = left_by_another(&world, &name, crate::DEFAULT_TTL).await;
    world.evict_holder(&name).await;
    assert!(other.renew(&ticket).await.unwrap_err().is_lost());
    assert!(other.mutex(&name).try_lock().await.unwrap().is_some());
}

async fn left_reader_keeps_writers_out_and_lets_readers_in(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.rw_lock(&name).detached(true).read().await.unwrap();
    let ticket = guard.leave_behind().unwrap();
    assert!(other.rw_lock(&name).try_write().await.unwrap().is_none());
    assert!(other.rw_lock(&name).try_read().await.unwrap().is_some());
    world.settle().await;
    other.release(&ticket).await.unwrap();
    assert!(other.rw_lock(&name).try_write().await.unwrap().is_some());
}

async fn ticket_of_a_line_that_lapsed_neither_renews_nor_releases_what_another_holds(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let mut tickets = Vec::new();
    for client in [&one, &other] {
        let reader = client.rw_lock(&name).ttl(world.short_ttl()).detached(true).read().await.unwrap();
        tickets.push(reader.leave_behind().unwrap());
    }
    // All of them lapse, and one that was not in line enters.
    let guard = other.rw_lock(&name).write().await.unwrap();
    for ticket in &tickets {
        assert!(one.renew(ticket).await.unwrap_err().is_lost(), "it renewed what it had lost");
        assert!(one.release(ticket).await.unwrap_err().is_lost(), "it gave back what it had lost");
    }
    assert!(guard.is_held());
    assert!(one.rw_lock(&name).try_read().await.unwrap().is_none(), "it gave back what another holds");
    guard.release().await.unwrap();
}

async fn lock_that_was_not_asked_for_so_cannot_be_left(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let error = client.mutex(&name).lock().await.unwrap().leave_behind().unwrap_err();
    assert!(error.is_invalid_option(), "{error}");
    world.until_idle(&name).await;
    let error = client.mutex(&name).owner("ann").detached(true).lock().await.unwrap_err();
    assert!(error.is_invalid_option(), "{error}");
}

async fn detached_lock_is_given_back_when_its_guard_is_dropped(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let mutex = client.mutex(&name).detached(true);
    drop(mutex.lock().await.unwrap());
    world.until_idle(&name).await;
    mutex.lock().await.unwrap().release().await.unwrap();
    assert_eq!(world.seen(&name).await, None);
}

async fn detached_waiter_that_goes_leaves_nothing(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    let mutex = other.mutex(&name).detached(true);
    let waits = world.spawn(async move { mutex.lock().await.map(drop) });
    world.until_waiting(&name, 1).await;
    waits.cancel();
    world.until_waiting(&name, 0).await;
    held.release().await.unwrap();
    assert_eq!(world.seen(&name).await, None);
}

async fn lock_with_a_shortest_time_is_kept_after_its_release_and_free_then(world: World) {
    let [one, other] = world.clients().await;
    let (name, time) = (world.name("lock"), 2 * world.short_ttl());
    let began = world.clock().now();
    let guard = one.mutex(&name).hold_at_least(time).lock().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    // Long before its lease ends.
    let next = other.mutex(&name).lock().await.unwrap();
    let kept = world.clock().now().since(began);
    assert!(kept >= time && next.token() > token, "kept for {kept:?} of {time:?}");
}

async fn lock_with_a_shortest_time_is_kept_when_its_client_is_gone(world: World) {
    let [client, other] = world.clients().await;
    let name = world.name("lock");
    let job = client.mutex(&name).ttl(world.short_ttl()).hold_at_least(crate::DEFAULT_TTL);
    job.lock().await.unwrap().release().await.unwrap();
    drop(job);
    client.shutdown(Duration::from_secs(1)).await;
    drop(client);
    world.settle().await;
    assert!(other.mutex(&name).try_lock().await.unwrap().is_none());
    assert_eq!(world.holding(&name).await, 1);
}
