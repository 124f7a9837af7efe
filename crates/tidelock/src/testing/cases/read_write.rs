//! Many readers or one writer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use crate::{
    backend::{Capacity, Share},
    testing::suite::World,
};

super::cases! { "read_write":
    readers_of_several_clients_hold_together,
    readers_of_one_client_hold_together,
    writer_waits_for_the_last_reader,
    writer_waits_for_the_last_reader_of_one_client,
    readers_wait_for_the_writer,
    mutex_and_write_lock_of_a_name_are_one_lock,
    try_to_read_what_is_written_is_none,
    try_to_write_what_is_read_is_none,
    try_for_gives_up_beside_a_writer,
    readers_show_in_line_without_a_number_of_permits,
    no_writer_overlaps_a_reader,
}

async fn readers_of_several_clients_hold_together(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let first = one.rw_lock(&name).read().await.unwrap();
    let second = other.rw_lock(&name).read().await.unwrap();
    assert!(first.is_held() && second.is_held());
}

async fn readers_of_one_client_hold_together(world: World) {
    let lock = world.client().await.rw_lock(world.name("lock"));
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    first.release().await.unwrap();
    assert!(second.is_held());
}

async fn writer_waits_for_the_last_reader(world: World) {
    let [one, two, three] = world.clients().await;
    let name = world.name("lock");
    let first = one.rw_lock(&name).read().await.unwrap();
    let second = two.rw_lock(&name).read().await.unwrap();
    let writer = world.lock_later(&three, &name);
    world.until_waiting(&name, 1).await;
    first.release().await.unwrap();
    world.settle().await;
    assert!(!writer.is_done(), "a writer beside a reader");
    second.release().await.unwrap();
    assert!(writer.await.is_held());
}

async fn writer_waits_for_the_last_reader_of_one_client(world: World) {
    let [readers, writer] = world.clients().await;
    let name = world.name("lock");
    let lock = readers.rw_lock(&name);
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let writer = world.lock_later(&writer, &name);
    world.until_waiting(&name, 1).await;
    drop(first);
    world.settle().await;
    assert!(!writer.is_done(), "a writer beside a reader");
    drop(second);
    assert!(writer.await.is_held());
}

async fn readers_wait_for_the_writer(world: World) {
    let [one, two] = world.clients().await;
    let name = world.name("lock");
    let writer = one.rw_lock(&name).write().await.unwrap();
    let lock = two.rw_lock(&name);
    let reader = world.spawn(async move { lock.read().await.unwrap() });
    world.until_waiting(&name, 1).await;
    assert!(!reader.is_done(), "a reader beside a writer");
    writer.release().await.unwrap();
    assert!(reader.await.is_held());
}

async fn mutex_and_write_lock_of_a_name_are_one_lock(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let held = one.mutex(&name).lock().await.unwrap();
    assert!(other.rw_lock(&name).try_write().await.unwrap().is_none());
    assert!(other.rw_lock(&name).try_read().await.unwrap().is_none());
    held.release().await.unwrap();
    let written = other.rw_lock(&name).write().await.unwrap();
    assert!(one.mutex(&name).try_lock().await.unwrap().is_none());
    assert!(written.is_held());
}

async fn try_to_read_what_is_written_is_none(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let writer = one.rw_lock(&name).write().await.unwrap();
    assert!(other.rw_lock(&name).try_read().await.unwrap().is_none());
    writer.release().await.unwrap();
    assert!(other.rw_lock(&name).try_read().await.unwrap().is_some());
}

async fn try_to_write_what_is_read_is_none(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let reader = one.rw_lock(&name).read().await.unwrap();
    assert!(other.rw_lock(&name).try_write().await.unwrap().is_none());
    reader.release().await.unwrap();
    assert!(other.rw_lock(&name).try_write().await.unwrap().is_some());
}

async fn try_for_gives_up_beside_a_writer(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let writer = one.rw_lock(&name).write().await.unwrap();
    let patience = Duration::from_millis(30);
    assert!(other.rw_lock(&name).try_read_for(patience).await.unwrap().is_none());
    assert!(other.rw_lock(&name).try_write_for(patience).await.unwrap().is_none());
    assert!(writer.is_held());
}

async fn readers_show_in_line_without_a_number_of_permits(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let reader = client.rw_lock(&name).read().await.unwrap();
    let view = world.seen(&name).await.unwrap();
    assert_eq!(view.capacity, Some(Capacity::Unbounded));
    assert_eq!(view.holders[0].share, Share::Shared);
    assert!(reader.is_held());
}

async fn no_writer_overlaps_a_reader(world: World) {
    let clients: [_; 3] = world.clients().await;
    let name = world.name("lock");
    // The number of readers, or -1 for a writer.
    let inside = Arc::new(AtomicI32::new(0));
    let mut tasks = Vec::new();
    for task in 0..9 {
        let (lock, inside) = (clients[task % 3].rw_lock(&name), Arc::clone(&inside));
        tasks.push(world.spawn(async move {
            for round in 0..12 {
                let writes = (task + round) % 4 == 0;
                let guard = if writes { lock.write().await } else { lock.read().await }.unwrap();
                let before = inside.fetch_add(if writes { -1 } else { 1 }, Ordering::SeqCst);
                assert!(if writes { before == 0 } else { before >= 0 }, "{before} inside, writes: {writes}");
                tokio::task::yield_now().await;
                inside.fetch_add(if writes { 1 } else { -1 }, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await;
    }
}
