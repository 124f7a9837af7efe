//! Every later holder has a larger token.

use std::sync::{Arc, Mutex};

use crate::{
    Token,
    backend::{Leave, Share, What},
    testing::suite::{PATIENCE, World},
};

super::cases! { "fencing":
    token_grows_with_each_release,
    token_grows_from_client_to_client,
    token_grows_over_an_expired_lease,
    token_grows_over_an_eviction,
    token_grows_over_an_idle_time,
    token_grows_with_each_hand_off_inside_a_process,
    token_of_a_writer_is_larger_than_those_of_the_readers_before,
    tokens_of_readers_of_one_client_differ,
    tokens_of_permits_differ(permits),
    epoch_grows_with_each_grant_of_the_store,
    epoch_of_a_pushed_grant_is_the_one_that_renewal_says(push),
    resource_that_checks_tokens_rejects_a_stale_holder,
}

async fn token_grows_with_each_release(world: World) {
    let mutex = world.client().await.mutex(world.name("lock"));
    let mut last = None;
    for _ in 0..20 {
        let guard = mutex.lock().await.unwrap();
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
}

async fn token_grows_from_client_to_client(world: World) {
    let clients: [_; 3] = world.clients().await;
    let name = world.name("lock");
    let mut last = None;
    for round in 0..12 {
        let guard = clients[round % 3].mutex(&name).lock().await.unwrap();
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
}

async fn token_grows_over_an_expired_lease(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.mutex(&name).ttl(world.short_ttl()).auto_renew(false).lock().await.unwrap();
    world.let_short_leases_lapse().await;
    assert!(other.mutex(&name).lock().await.unwrap().token() > guard.token());
}

async fn token_grows_over_an_eviction(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.mutex(&name).lock().await.unwrap();
    world.evict_holder(&name).await;
    assert!(other.mutex(&name).lock().await.unwrap().token() > guard.token());
}

async fn token_grows_over_an_idle_time(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let guard = one.mutex(&name).ttl(world.short_ttl()).lock().await.unwrap();
    let earlier = guard.token();
    guard.release().await.unwrap();
    world.sleep(3.0).await;
    assert!(other.mutex(&name).lock().await.unwrap().token() > earlier);
}

async fn token_grows_with_each_hand_off_inside_a_process(world: World) {
    let client = world.client().await;
    let name = world.name("lock");
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..30 {
        let (mutex, tokens) = (client.mutex(&name), Arc::clone(&tokens));
        tasks.push(world.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            tokens.lock().unwrap().push(guard.token());
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }));
    }
    for task in tasks {
        task.await;
    }
    assert!(tokens.lock().unwrap().is_sorted_by(|earlier, later| earlier < later));
}

async fn token_of_a_writer_is_larger_than_those_of_the_readers_before(world: World) {
    let [one, two, writer] = world.clients().await;
    let name = world.name("lock");
    let readers = [
        one.rw_lock(&name).read().await.unwrap(),
        one.rw_lock(&name).read().await.unwrap(),
        two.rw_lock(&name).read().await.unwrap(),
    ];
    let most = readers.iter().map(|reader| reader.token()).max().unwrap();
    drop(readers);
    let write = writer.rw_lock(&name).write().await.unwrap();
    assert!(write.token() > most);
    let written = write.token();
    write.release().await.unwrap();
    assert!(one.rw_lock(&name).read().await.unwrap().token() > written);
}

async fn tokens_of_readers_of_one_client_differ(world: World) {
    let lock = world.client().await.rw_lock(world.name("lock"));
    let first = lock.read().await.unwrap();
    let second = lock.read().await.unwrap();
    assert!(second.token() > first.token());
}

async fn tokens_of_permits_differ(world: World) {
    let pool = world.client().await.semaphore(world.name("pool"), 3);
    let mut tokens = Vec::new();
    let mut guards = Vec::new();
    for _ in 0..3 {
        let guard = pool.acquire(1).await.unwrap();
        tokens.push(guard.token());
        guards.push(guard);
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

async fn epoch_grows_with_each_grant_of_the_store(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let mut last = 0;
    for round in 0..20 {
        let client = if round % 2 == 0 { &one } else { &other };
        let share = if round % 3 == 0 { Share::Shared } else { Share::Exclusive };
        let claim = client.claim(&name, share);
        let epoch = client.hold(&claim).await.epoch;
        assert!(epoch > last, "{epoch} after {last}");
        last = epoch;
        client.leave_as(&claim, if round % 5 == 0 { Leave::evicted("by hand") } else { Leave::Done }).await;
    }
}

async fn epoch_of_a_pushed_grant_is_the_one_that_renewal_says(world: World) {
    let [one, other] = world.backends().await;
    let name = world.name("lock");
    let (first, second) = (one.claim(&name, Share::Exclusive), other.claim(&name, Share::Exclusive));
    let earlier = one.hold(&first).await.epoch;
    other.stand(&second).await;
    one.leave(&first).await;
    let pushed = loop {
        let news = other.news(PATIENCE).await.expect("it is told");
        if let What::Granted(grant) = news.what {
            assert_eq!(news.id, second.id);
            break grant.epoch;
        }
    };
    assert!(pushed > earlier);
    assert_eq!(other.holds(&second).await.epoch, pushed);
}

/// What the token is for: a resource that remembers the largest it has seen.
#[derive(Default)]
struct Resource(Option<Token>);

impl Resource {
    fn write(&mut self, token: Token) -> bool {
        let fresh = Some(token) >= self.0;
        self.0 = self.0.max(Some(token));
        fresh
    }
}

async fn resource_that_checks_tokens_rejects_a_stale_holder(world: World) {
    let [one, other] = world.clients().await;
    let name = world.name("lock");
    let mut resource = Resource::default();
    let stale = one.mutex(&name).ttl(world.short_ttl()).auto_renew(false).lock().await.unwrap();
    assert!(resource.write(stale.token()));
    // The first holder sleeps through the end of its lease and goes on as if nothing had happened.
    let fresh = other.mutex(&name).lock().await.unwrap();
    assert!(resource.write(fresh.token()));
    assert!(!resource.write(stale.token()), "a stale write went through");
    assert!(resource.write(fresh.token()));
}
