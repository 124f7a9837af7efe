//! Three servers that vote, of which one has a clock that steps, or is away when a lock is taken.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use test_servers::{Proxy, Redis, Server};
use tidelock::{
    Locks, Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Scope, Share},
    backends::{
        redis::{RedisBackend, RedisConfig},
        redlock::{RedlockBackend, RedlockConfig},
    },
};

use crate::support::{
    LONG, NAME,
    batches::{all, names, release},
    is_one_sentence, within,
};

trials! {
    a_server_whose_clock_stepped_has_no_vote_for_a_client_that_is_new,
    a_server_whose_clock_stepped_has_no_vote_for_a_client_that_knew_it_before,
    a_server_whose_clock_was_wrong_for_a_while_has_no_vote_until_leases_from_before_have_ended,
    a_server_that_was_restarted_empty_with_its_clock_behind_has_no_vote_until_leases_from_before_have_ended,
    a_server_whose_clock_stepped_has_no_vote_for_claims_that_share_a_call,
    one_wrong_clock_of_three_costs_nobody_a_lock,
    clocks_that_all_differ_are_an_error_that_says_so,
    a_holder_is_put_on_a_server_that_comes_back_before_its_next_renewal,
    a_server_whose_clock_is_absurd_is_refused_by_name,
}

const HOUR: i64 = 3_600;
/// The longest lease of trials in which servers get their vote by waiting.
const LONGEST: Duration = Duration::from_secs(4);

/// Three servers with clocks of their own, and a proxy before each.
struct Three {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    longest: Duration,
}

impl Three {
    fn start(kind: &Redis, longest: Duration) -> Self {
        let servers: Vec<_> = (0..3).map(|_| kind.clone().own_clock().start().unwrap()).collect();
        let proxies = servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
        Self { servers, proxies, longest }
    }

    /// Servers that keep what they confirm: they have a vote at once.
    fn durable() -> Self {
        Self::start(&Redis::new().durable(), 20 * LONG)
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(|server| server.addr().to_string()).collect();
        format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), self.longest.as_millis())
    }

    fn url_by_proxies(&self) -> String {
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), self.longest.as_millis())
    }

    /// A client that nobody listens for: it renews nothing, and puts nothing right.
    async fn backend(&self, client: u64) -> RedlockBackend {
        backend(&self.url(), client).await
    }

    /// A claim that holds on the first two servers: the third cannot be reached.
    async fn held_on_two(&self, ttl: Duration) -> RedlockBackend {
        self.proxies[2].cut();
        let first = backend(&self.url_by_proxies(), 1).await;
        granted(&first, &claim(1, 1, ttl)).await;
        first
    }
}

async fn backend(url: &str, client: u64) -> RedlockBackend {
    let config = RedlockConfig::from_url(url).unwrap();
    RedlockBackend::connect(config, ClientId::from_u64(client)).await.unwrap()
}

fn claim(client: u64, serial: u64, ttl: Duration) -> Arc<Claim> {
    Arc::new(
        Claim::new(
            ClaimId::new(ClientId::from_u64(client), serial),
            Name::new(NAME).unwrap(),
            Share::Exclusive,
            ttl,
        )
        .label("trial"),
    )
}

/// Tries until the claim holds, which it must in the end. Says what it was told before.
async fn granted(backend: &RedlockBackend, claim: &Arc<Claim>) -> Vec<String> {
    let mut told = Vec::new();
    within("it is granted", async {
        loop {
            match backend.enter(claim, Ask::Try).await {
                Ok(Entered::Held(_)) => break,
                Ok(other) => told.push(format!("{other:?}")),
                Err(failure) => told.push(failure.reason.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    told
}

/// Tries some times. None of them may hold.
async fn is_refused(backend: &RedlockBackend, client: u64) {
    for serial in 1..=20 {
        let entered = backend.enter(&claim(client, serial, LONG), Ask::Try).await;
        assert!(!matches!(entered, Ok(Entered::Held(_))), "two hold: {entered:?}");
    }
}

async fn a_server_whose_clock_stepped_has_no_vote_for_a_client_that_is_new() {
    let three = Three::durable();
    let _first = three.held_on_two(LONG).await;
    three.servers[1].set_clock_ahead(HOUR).unwrap();
    is_refused(&three.backend(2).await, 2).await;
}

async fn a_server_whose_clock_stepped_has_no_vote_for_a_client_that_knew_it_before() {
    let three = Three::durable();
    let second = three.backend(2).await;
    let _first = three.held_on_two(LONG).await;
    three.servers[1].set_clock_ahead(HOUR).unwrap();
    is_refused(&second, 2).await;
}

async fn a_server_whose_clock_was_wrong_for_a_while_has_no_vote_until_leases_from_before_have_ended() {
    let three = Three::start(&Redis::new().durable(), LONGEST);
    let since = Instant::now();
    let _first = three.held_on_two(LONGEST).await;
    three.servers[1].set_clock_ahead(HOUR).unwrap();
    // Somebody asks meanwhile, and with the wrong clock the lease of the first is over there.
    is_refused(&three.backend(2).await, 2).await;
    three.servers[1].set_clock_ahead(0).unwrap();
    granted(&three.backend(3).await, &claim(3, 1, LONGEST)).await;
    assert!(since.elapsed() >= LONGEST * 99 / 100, "granted after {:?}", since.elapsed());
}

/// Its uptime follows its wall clock: set right after the start, it says an hour.
async fn a_server_that_was_restarted_empty_with_its_clock_behind_has_no_vote_until_leases_from_before_have_ended()
 {
    let three = Three::start(&Redis::new(), LONGEST);
    granted(&three.backend(9).await, &claim(9, 1, Duration::from_millis(50))).await;
    let first = three.held_on_two(LONGEST).await;
    // Once more, so that it is known when its lease began.
    let since = Instant::now();
    granted(&first, &claim(1, 1, LONGEST)).await;
    three.servers[1].kill().unwrap();
    three.servers[1].set_clock_ahead(-HOUR).unwrap();
    three.servers[1].restart().unwrap();
    three.servers[1].set_clock_ahead(0).unwrap();
    let told = granted(&three.backend(3).await, &claim(3, 1, LONGEST)).await;
    assert!(since.elapsed() >= LONGEST * 99 / 100, "granted after {:?}: {told:?}", since.elapsed());
}

async fn a_server_whose_clock_stepped_has_no_vote_for_claims_that_share_a_call() {
    let three = Three::durable();
    let locks = Locks::connect(&three.url_by_proxies()).await.unwrap();
    release(all(&locks, &names()).await).await;
    for proxy in &three.proxies {
        proxy.delay(Duration::from_millis(10));
    }
    // Two of three grant, and only one of them can be relied on.
    three.servers[1].set_clock_ahead(HOUR).unwrap();
    three.proxies[2].cut();
    let tries: Vec<_> = names()
        .iter()
        .map(|name| {
            let mutex = locks.mutex(name).ttl(LONG);
            tokio::spawn(async move { mutex.try_lock().await })
        })
        .collect();
    for tried in tries {
        let tried = within("each try ends", tried).await.unwrap();
        assert!(!tried.is_ok_and(|guard| guard.is_some()), "held by one server");
    }
    three.proxies[2].heal().unwrap();
    release(all(&locks, &names()).await).await;
}

async fn one_wrong_clock_of_three_costs_nobody_a_lock() {
    let three = Three::durable();
    let (locks, other) =
        (Locks::connect(&three.url()).await.unwrap(), Locks::connect(&three.url()).await.unwrap());
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    for ahead in [HOUR, -HOUR] {
        three.servers[1].set_clock_ahead(ahead).unwrap();
        assert!(other.mutex(NAME).ttl(LONG).try_lock().await.unwrap().is_none());
        for name in ["a", "b", "c"] {
            let next = within("two of three suffice", other.mutex(name).ttl(LONG).lock()).await.unwrap();
            next.release().await.unwrap();
        }
    }
    assert!(guard.is_held());
    assert!(other.concerns().iter().any(|concern| concern.contains("its clock")), "{:?}", other.concerns());
    guard.release().await.unwrap();
}

async fn clocks_that_all_differ_are_an_error_that_says_so() {
    let three = Three::durable();
    for (server, ahead) in [(0, 0), (1, HOUR), (2, 2 * HOUR)] {
        three.servers[server].set_clock_ahead(ahead).unwrap();
    }
    let locks = Locks::connect(&three.url()).await.unwrap();
    let error = within("an answer", locks.mutex(NAME).ttl(LONG).try_lock()).await.unwrap_err();
    is_one_sentence(&error);
    assert!(error.to_string().contains("clock"), "{error}");
}

async fn a_holder_is_put_on_a_server_that_comes_back_before_its_next_renewal() {
    let three = Three::durable();
    three.proxies[2].cut();
    let locks = Locks::connect(&three.url_by_proxies()).await.unwrap();
    // Its next renewal is far beyond the patience of this trial.
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    three.proxies[2].heal().unwrap();
    let config = RedisConfig::from_url(three.servers[2].url()).unwrap();
    let one = RedisBackend::connect(config, ClientId::from_u64(9)).await.unwrap();
    let scope = Scope::Names(vec![Name::new(NAME).unwrap()]);
    within("the holder is known there", async {
        while one.look(&scope).await.unwrap().iter().all(|view| view.holders.is_empty()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    guard.release().await.unwrap();
}

async fn a_server_whose_clock_is_absurd_is_refused_by_name() {
    const DECADES: i64 = 50 * 366 * 24 * HOUR;
    let three = Three::durable();
    for server in &three.servers[..2] {
        server.set_clock_ahead(-DECADES).unwrap();
    }
    for url in [three.servers[0].url().to_owned(), three.url()] {
        let error = within("it is refused", Locks::connect(&url)).await.unwrap_err();
        is_one_sentence(&error);
        let text = error.to_string();
        assert!(text.contains("its clock is wrong") && text.contains("chronyd"), "{error}");
        assert!(text.contains(&three.servers[0].addr().to_string()), "{error}");
    }
}
