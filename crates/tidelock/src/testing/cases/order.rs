//! Nobody overtakes.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    backend::{Ask, Entered, Share, Standing},
    testing::suite::World,
};

super::cases! { "order":
    claims_of_several_clients_are_granted_in_order_of_arrival(fair),
    locks_of_several_clients_are_granted_in_order_of_arrival(fair),
    tasks_of_one_client_are_served_in_order_of_arrival,
    place_in_line_says_how_many_are_ahead(fair),
    small_permit_claim_does_not_overtake_a_large_one(fair, permits),
    reader_after_a_waiting_writer_waits(fair),
    try_does_not_overtake_waiters(fair),
    readers_between_two_writers_hold_together(fair),
    readers_behind_a_writer_that_gives_up_move_on,
    busy_client_lets_another_in(fair),
}

async fn claims_of_several_clients_are_granted_in_order_of_arrival(world: World) {
    let clients: [_; 4] = world.backends().await;
    let name = world.name("lock");
    let mut claims = Vec::new();
    for client in &clients {
        let claim = client.claim(&name, Share::Exclusive);
        client.queue(&claim).await;
        claims.push(claim);
    }
    let mut last = 0;
    for (client, claim) in clients.iter().zip(&claims) {
        let grant = client.holds(claim).await;
        assert!(grant.epoch > last);
        last = grant.epoch;
        client.leave(claim).await;
    }
}

async fn locks_of_several_clients_are_granted_in_order_of_arrival(world: World) {
    let clients: [_; 5] = world.clients().await;
    let name = world.name("lock");
    let first = clients[0].mutex(&name).lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let (mutex, served) = (client.mutex(&name).label(format!("{number}")), Arc::clone(&served));
        tasks.push(world.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        world.until_waiting(&name, number + 1).await;
    }
    first.release().await.unwrap();
    for task in tasks {
        task.await;
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
}

async fn tasks_of_one_client_are_served_in_order_of_arrival(world: World) {
    let mutex = world.client().await.mutex(world.name("lock"));
    let first = mutex.lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..5 {
        let (mutex, served) = (mutex.clone(), Arc::clone(&served));
        tasks.push(world.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        world.settle().await;
    }
    first.release().await.unwrap();
    for task in tasks {
        task.await;
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
}

async fn place_in_line_says_how_many_are_ahead(world: World) {
    let client = world.backend().await;
    let name = world.name("lock");
    let claims: Vec<_> = (0..4).map(|_| client.claim(&name, Share::Exclusive)).collect();
    client.hold(&claims[0]).await;
    for (ahead, claim) in claims.iter().enumerate().skip(1) {
        assert_eq!(client.stand(claim).await.ahead as usize, ahead);
    }
    client.leave(&claims[0]).await;
    let Standing::Waiting(place) = client.stands(&claims[3]).await else { panic!("two are ahead") };
    assert_eq!(place.ahead, 2, "the line moved by one");
}

async fn small_permit_claim_does_not_overtake_a_large_one(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("pool");
    let permits = |n| Share::Permits { n, of: 5 };
    let (held, large, small) = (one.claim(&name, permits(2)), two.claim(&name, permits(4)), permits(1));
    let small = three.claim(&name, small);
    one.hold(&held).await;
    two.stand(&large).await;
    assert_eq!(three.stand(&small).await.ahead, 2, "three permits are free, and it waits all the same");
    one.leave(&held).await;
    two.holds(&large).await;
    three.holds(&small).await;
}

async fn reader_after_a_waiting_writer_waits(world: World) {
    let [one, two, three] = world.clients().await;
    let name = world.name("lock");
    let reader = one.rw_lock(&name).read().await.unwrap();
    let writer = world.lock_later(&two, &name);
    world.until_waiting(&name, 1).await;
    let late = three.rw_lock(&name);
    let late = world.spawn(async move { late.read().await.unwrap() });
    world.until_waiting(&name, 2).await;
    reader.release().await.unwrap();
    let writer = writer.await;
    assert!(!late.is_done(), "a reader overtook a writer");
    writer.release().await.unwrap();
    assert!(late.await.is_held());
}

async fn try_does_not_overtake_waiters(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    let (reader, writer) = (one.claim(&name, Share::Shared), two.claim(&name, Share::Exclusive));
    one.hold(&reader).await;
    two.stand(&writer).await;
    let tried = three.claim(&name, Share::Shared);
    assert_eq!(three.enter(&tried, Ask::Try).await, Entered::Busy);
}

async fn readers_between_two_writers_hold_together(world: World) {
    let clients: [_; 4] = world.backends().await;
    let name = world.name("lock");
    let shares = [Share::Exclusive, Share::Shared, Share::Shared, Share::Exclusive];
    let claims: Vec<_> =
        clients.iter().zip(shares).map(|(client, share)| client.claim(&name, share)).collect();
    for (client, claim) in clients.iter().zip(&claims) {
        client.queue(claim).await;
    }
    clients[0].leave(&claims[0]).await;
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (2, 1));
    clients[1].leave(&claims[1]).await;
    assert_eq!((world.holding(&name).await, world.waiting(&name).await), (1, 1));
    clients[2].leave(&claims[2]).await;
    clients[3].holds(&claims[3]).await;
}

async fn readers_behind_a_writer_that_gives_up_move_on(world: World) {
    let [one, two, three] = world.backends().await;
    let name = world.name("lock");
    let (reader, writer) = (one.claim(&name, Share::Shared), two.claim(&name, Share::Exclusive));
    let late = three.claim(&name, Share::Shared);
    one.hold(&reader).await;
    two.stand(&writer).await;
    three.queue(&late).await;
    two.leave(&writer).await;
    three.holds(&late).await;
}

async fn busy_client_lets_another_in(world: World) {
    let [busy, other] = world.clients().await;
    let name = world.name("lock");
    let first = busy.mutex(&name).lock().await.unwrap();
    let served = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (mutex, served) = (busy.mutex(&name), Arc::clone(&served));
        tasks.push(world.spawn(async move {
            while !served.load(Ordering::SeqCst) {
                let guard = mutex.lock().await.unwrap();
                tokio::task::yield_now().await;
                guard.release().await.unwrap();
            }
        }));
    }
    world.settle().await;
    // From here on some task of the busy client always wants it.
    first.release().await.unwrap();
    let guard = other.mutex(&name).lock().await.unwrap();
    served.store(true, Ordering::SeqCst);
    guard.release().await.unwrap();
    for task in tasks {
        task.await;
    }
}
