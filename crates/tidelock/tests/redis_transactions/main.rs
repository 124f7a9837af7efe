//! Redis with `scripting=off`: many processes, dead clients, calls that are dropped, answers that are
//! lost, and clients that use scripts.
//!
//! `TIDELOCK_STORM_SECONDS=60` makes the storm longer.
#![allow(clippy::disallowed_methods, reason = "tests run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[path = "../common/worker.rs"]
mod process;
mod several;
mod worker;

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use test_servers::{Proxy, Redis, Server};
use tidelock::{
    Locks, Name,
    backend::{
        Ask, Backend, Claim, ClaimId, ClientId, Entered, Failure, FailureKind, Grant, Leave, LockView, Scope,
        Share, Standing,
    },
    backends::redis::{RedisBackend, RedisConfig},
    testing::suite::polled,
};
use worker::{NAME, Worker};

const LONG: Duration = Duration::from_secs(60);
/// What takes longer hangs, and is far from the end of a long lease.
const PATIENCE: Duration = Duration::from_secs(15);

/// Not a test of its own: with a job in its environment this process is a worker.
#[test]
fn worker_process() {
    worker::work();
}

fn off(url: &str) -> String {
    format!("{url}?scripting=off")
}

/// A client, as the engine has it.
struct Client {
    backend: RedisBackend,
    id: ClientId,
    serial: std::sync::atomic::AtomicU64,
}

impl Client {
    async fn connect(url: &str) -> Self {
        let id = ClientId::random();
        let backend = RedisBackend::connect(RedisConfig::from_url(url).unwrap(), id).await.unwrap();
        Self { backend, id, serial: Default::default() }
    }

    fn claim(&self, name: &str, ttl: Duration) -> Arc<Claim> {
        let serial = self.serial.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(
            Claim::new(ClaimId::new(self.id, serial), Name::new(name).unwrap(), Share::Exclusive, ttl)
                .label("a test"),
        )
    }

    async fn enter(&self, claim: &Arc<Claim>) -> Result<Entered, Failure> {
        self.backend.enter(claim, Ask::Queue).await
    }

    async fn hold(&self, claim: &Arc<Claim>) -> Grant {
        match self.enter(claim).await.unwrap() {
            Entered::Held(grant) => grant,
            other => panic!("it is not free: {other:?}"),
        }
    }

    async fn stand(&self, claim: &Arc<Claim>) {
        assert!(matches!(self.enter(claim).await.unwrap(), Entered::Waiting(_)));
    }

    async fn renew(&self, claim: &Arc<Claim>) -> Result<Standing, Failure> {
        self.backend.renew(&[Arc::clone(claim)]).await.map(|standings| standings[0])
    }

    async fn leave(&self, claim: &Claim) -> Result<(), Failure> {
        self.backend.leave(&claim.name, claim.id, Leave::Done).await.map(drop)
    }

    async fn look(&self, name: &str) -> Option<LockView> {
        let views = self.backend.look(&Scope::Names(vec![Name::new(name).unwrap()])).await;
        views.unwrap().pop()
    }
}

async fn within<T: Send>(what: &str, work: impl Future<Output = T> + Send) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Renews until there is an answer.
async fn until_answered(client: &Client, claim: &Arc<Claim>) -> Standing {
    loop {
        if let Ok(standing) = client.renew(claim).await {
            return standing;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_waiting(locks: &Locks, waiters: usize) {
    let looks = async {
        while locks.look(&[NAME]).await.unwrap().first().is_none_or(|view| view.waiters.len() != waiters) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("as many wait", looks).await;
}

#[test]
fn clients_in_many_processes_never_hold_at_once() {
    let server = Redis::new().start().unwrap();
    let seconds = std::env::var("TIDELOCK_STORM_SECONDS").map_or(3, |text| text.parse().unwrap());
    let start = |_| Worker::start(&off(server.url()), &format!("rounds {seconds}"), Duration::from_secs(5));
    let workers: Vec<_> = (0..4).map(start).collect();
    let mut holds: Vec<_> = workers.into_iter().flat_map(Worker::holds).collect();
    holds.sort_by_key(|hold| hold.token);
    for pair in holds.windows(2) {
        assert!(pair[0].token < pair[1].token && pair[0].until <= pair[1].from, "{pair:?}");
    }
    println!("{} holds of eight clients in four processes in {seconds} s", holds.len());
    assert!(holds.len() > 50, "{}", holds.len());
}

#[tokio::test]
async fn a_holder_that_was_killed_lets_the_next_in_when_its_lease_is_over() {
    let server = Redis::new().start().unwrap();
    let locks = Locks::connect(&off(server.url())).await.unwrap();
    let mut holder = Worker::start(&off(server.url()), "hold", Duration::from_secs(1));
    let before: u64 = holder.hear("held").parse().unwrap();
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    holder.kill();
    let guard = within("the next holds", locks.mutex(NAME).lock()).await.unwrap();
    assert!(guard.token().get() > before);
}

#[tokio::test]
async fn waiters_that_were_killed_are_passed_over_at_once() {
    let server = Redis::new().start().unwrap();
    let url = off(server.url());
    let [one, other] = [Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap()];
    let held = one.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut dead = Vec::new();
    for waiting in 1..=3 {
        dead.push(Worker::start(&url, "hold", LONG));
        until_waiting(&one, waiting).await;
    }
    let mutex = other.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, 4).await;
    dead.iter_mut().for_each(Worker::kill);
    // Their sockets are closed when the server has noticed.
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.release().await.unwrap();
    let guard = within("the one that lives holds", waiter).await.unwrap();
    assert!(guard.is_held());
    let view = one.look(&[NAME]).await.unwrap().remove(0);
    assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
}

#[tokio::test]
async fn a_try_behind_the_dead_holds_at_once() {
    let server = Redis::new().start().unwrap();
    let url = off(server.url());
    let (dead, alive) = (Client::connect(&url).await, Client::connect(&url).await);
    let mortal = alive.claim(NAME, Duration::from_millis(200));
    alive.hold(&mortal).await;
    for _ in 0..3 {
        dead.stand(&dead.claim(NAME, LONG)).await;
    }
    drop(dead);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let claim = alive.claim(NAME, LONG);
    let entered = alive.backend.enter(&claim, Ask::Try).await.unwrap();
    assert!(matches!(entered, Entered::Held(_)), "{entered:?}");
    assert_eq!(alive.look(NAME).await.unwrap().waiters.len(), 0);
}

/// No connection has a transaction open, and there are not more than a client may have.
fn connections_are_clean(server: &Server, clients: usize) {
    let list = server.ask(&["CLIENT", "LIST"]).unwrap();
    let ours: Vec<_> = list.lines().filter(|line| !line.contains("cmd=client|list")).collect();
    assert!(ours.len() <= clients * 9, "{list}");
    assert!(ours.iter().all(|line| line.contains(" multi=-1 ")), "{list}");
}

#[tokio::test]
async fn a_call_dropped_after_any_number_of_polls_leaves_a_client_that_works() {
    let server = Redis::new().start().unwrap();
    let client = Client::connect(&off(server.url())).await;
    let other = Client::connect(&off(server.url())).await;
    for verb in ["enter", "renew", "leave"] {
        for polls in 0.. {
            let claim = client.claim(NAME, LONG);
            if verb != "enter" {
                client.hold(&claim).await;
            }
            let done = match verb {
                "enter" => polled(polls, client.enter(&claim)).await.is_some(),
                "renew" => polled(polls, client.renew(&claim)).await.is_some(),
                _ => polled(polls, client.leave(&claim)).await.is_some(),
            };
            // On whatever connections are left: another lock is not touched by what was under way.
            let second = client.claim("another", LONG);
            client.hold(&second).await;
            assert!(matches!(client.renew(&second).await, Ok(Standing::Held(_))));
            client.leave(&second).await.unwrap();
            // A call that was dropped may be done late, as by any network; leaving ends that.
            let gone = async {
                loop {
                    client.leave(&claim).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    if other.look(NAME).await.is_none() {
                        break;
                    }
                }
            };
            within("nothing is left", gone).await;
            if done {
                assert!(polls > 2, "{verb} was never cut in the middle");
                break;
            }
        }
    }
    connections_are_clean(&server, 2);
}

#[tokio::test]
async fn many_calls_at_once_share_a_few_connections() {
    let server = Redis::new().start().unwrap();
    let client = Client::connect(&off(server.url())).await;
    let claims: Vec<_> = (0..100).map(|n| client.claim(&format!("{n}"), LONG)).collect();
    let calls: Vec<_> =
        claims.iter().map(|claim| tokio::spawn(client.backend.enter(claim, Ask::Try))).collect();
    for call in calls {
        assert!(matches!(call.await.unwrap().unwrap(), Entered::Held(_)));
    }
    connections_are_clean(&server, 1);
    let standings = client.backend.renew(&claims).await.unwrap();
    assert!(standings.iter().all(|standing| matches!(standing, Standing::Held(_))));
    connections_are_clean(&server, 1);
}

#[tokio::test]
async fn all_of_many_clients_that_come_at_once_get_in_line() {
    let server = Redis::new().start().unwrap();
    let mut clients = Vec::new();
    for _ in 0..60 {
        clients.push(Client::connect(&off(server.url())).await);
    }
    let enter = |client: &Client| tokio::spawn(client.backend.enter(&client.claim(NAME, LONG), Ask::Queue));
    let calls: Vec<_> = clients.iter().map(enter).collect();
    let mut places = Vec::new();
    for call in calls {
        places.push(match within("it is in line", call).await.unwrap().unwrap() {
            Entered::Held(_) => 0,
            Entered::Waiting(place) => place.ahead,
            other => panic!("{other:?}"),
        });
    }
    places.sort_unstable();
    assert_eq!(places, (0..60).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_first_poll_outside_of_the_runtime_does_no_harm() {
    let server = Redis::new().start().unwrap();
    let locks = Locks::connect(&off(server.url())).await.unwrap();
    let mut lock = Box::pin(async move { locks.mutex(NAME).ttl(LONG).lock().await });
    // Nothing is connected for transactions yet.
    let thread = std::thread::spawn(move || {
        assert!(lock.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        lock
    });
    let lock = thread.join().unwrap();
    within("it holds", lock).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_asking_again_tells() {
    const DELAY: Duration = Duration::from_millis(200);
    let server = Redis::new().start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let client = Client::connect(&off(&format!("redis://{}", proxy.addr()))).await;
    let warm = client.claim("warm", LONG);
    client.hold(&warm).await;

    // The first answer is lost: nothing was changed yet, so it is asked again.
    proxy.drop_replies_once();
    let claim = client.claim("early", LONG);
    assert!(matches!(client.enter(&claim).await, Ok(Entered::Held(_))));

    // The answer to EXEC is lost: after one and a half round trips it is under way.
    proxy.delay(DELAY);
    let claim = client.claim(NAME, LONG);
    let call = tokio::spawn(client.backend.enter(&claim, Ask::Queue));
    tokio::time::sleep(DELAY * 5 / 2).await;
    proxy.drop_replies_once();
    let failure = within("it fails", call).await.unwrap().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unknown, "{failure}");
    proxy.delay(Duration::ZERO);
    client.hold(&claim).await;
    assert_eq!(client.look(NAME).await.unwrap().holders.len(), 1);
}

#[tokio::test]
async fn a_server_that_was_away_serves_again() {
    let server = Redis::new().append_only().start().unwrap();
    let client = Client::connect(&off(server.url())).await;
    let claim = client.claim(NAME, LONG);
    let grant = client.hold(&claim).await;
    server.kill().unwrap();
    let failure = client.renew(&claim).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable, "{failure}");
    server.restart().unwrap();
    let standing = within("it answers", until_answered(&client, &claim)).await;
    assert!(matches!(standing, Standing::Held(again) if again.epoch == grant.epoch), "{standing:?}");
}

#[tokio::test]
async fn scripts_and_transactions_see_each_other_and_do_not_mix() {
    let server = Redis::new().start().unwrap();
    let (with, without) = (Client::connect(server.url()).await, Client::connect(&off(server.url())).await);
    let mut last = 0;
    for (one, other) in [(&with, &without), (&without, &with), (&with, &without)] {
        let (first, second) = (one.claim(NAME, LONG), one.claim(NAME, LONG));
        let epoch = one.hold(&first).await.epoch;
        assert!(epoch > last, "an idle lock is taken over with its epoch");
        last = epoch;
        for waiting in [0, 1] {
            if waiting == 1 {
                one.stand(&second).await;
            }
            let failure = other.enter(&other.claim(NAME, LONG)).await.unwrap_err();
            assert!(
                failure.kind == FailureKind::Denied && failure.reason.contains("scripting=off"),
                "{failure}"
            );
            assert_eq!(other.renew(&other.claim(NAME, LONG)).await.unwrap(), Standing::Unknown);
            let view = other.look(NAME).await.expect("it is in use");
            assert_eq!((view.epoch, view.waiters.len()), (epoch, waiting));
            assert_eq!(view.holders.iter().map(|holder| holder.id).collect::<Vec<_>>(), [first.id]);
        }
        one.leave(&second).await.unwrap();
        one.leave(&first).await.unwrap();
        assert_eq!(other.look(NAME).await, None);
    }
}

#[tokio::test]
async fn something_else_at_the_key_is_left_alone() {
    let server = Redis::new().start().unwrap();
    let client = Client::connect(&off(server.url())).await;
    let (good, bad) = (client.claim("good", LONG), client.claim(NAME, LONG));
    client.hold(&good).await;
    for command in [&["SET", "hello"][..], &["LPUSH", "hello"]] {
        let key = format!("tidelock:{{{NAME}}}");
        server.ask(&["DEL", &key]).unwrap();
        server.ask(&[command[0], &key, command[1]]).unwrap();
        assert_eq!(client.enter(&bad).await.unwrap_err().kind, FailureKind::Denied);
        let both = client.backend.renew(&[Arc::clone(&bad), Arc::clone(&good)]).await.unwrap();
        assert!(matches!(both[..], [Standing::Unknown, Standing::Held(_)]), "{both:?}");
    }
}

#[tokio::test]
async fn rights_without_scripts_suffice_and_without_transactions_do_not() {
    let server = Redis::new()
        .user("plain", "plain", "~* &* +@all -@scripting")
        .user("none", "none", "~* &* +@all -multi")
        .start()
        .unwrap();
    let client = Client::connect(&off(&server.url_as("plain", "plain"))).await;
    let claim = client.claim(NAME, LONG);
    client.hold(&claim).await;
    client.leave(&claim).await.unwrap();
    let client = Client::connect(&off(&server.url_as("none", "none"))).await;
    let failure = client.enter(&client.claim("other", LONG)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Denied, "{failure}");
    assert_eq!(server.ask(&["EXISTS", "tidelock:{other}"]).unwrap().trim(), "0");
}
