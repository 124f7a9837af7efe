//! Three servers that vote, and claims that their own client leaves: none of them may hold.
//!
//! Several tasks of a client work on a claim at once, and each sees the servers at another moment. Proxies hold
//! back what the servers said, so that the tasks come to know it in the order that is wrong.

use std::{sync::Arc, time::Duration};

use test_servers::{Proxy, Redis, Server};
use tidelock::{
    Name,
    backend::{
        Ask, Backend, Claim, ClaimId, ClientId, Entered, FailureKind, Leave, News, Scope, Share, Standing,
        What,
    },
    backends::{
        redis::{RedisBackend, RedisConfig},
        redlock::{RedlockBackend, RedlockConfig},
    },
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinHandle,
};

use crate::support::{LONG, NAME, eventually, within};

trials! {
    a_claim_that_came_to_hold_meanwhile_does_not_step_back,
    a_claim_that_stepped_back_does_not_hold_by_votes_from_before,
    a_claim_that_could_not_enter_is_not_left_when_servers_are_back,
    a_release_that_is_given_up_half_way_leaves_nothing_on_a_server_that_says_late_that_the_claim_holds,
}

/// Three servers, and the proxies through which two clients reach them.
struct Three {
    servers: Vec<Server>,
    /// Those of the client that waits.
    near: Vec<Proxy>,
    /// Those of the client that holds before it.
    far: Vec<Proxy>,
}

impl Three {
    fn start() -> Self {
        let servers: Vec<_> = (0..3).map(|_| Redis::new().durable().start().unwrap()).collect();
        let proxies = || servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
        Self { near: proxies(), far: proxies(), servers }
    }

    /// A client of one of the servers alone.
    async fn one(&self, server: usize, client: u64) -> RedisBackend {
        let config = RedisConfig::from_url(self.servers[server].url()).unwrap();
        RedisBackend::connect(config, ClientId::from_u64(client)).await.unwrap()
    }

    /// A client that is not slowed down by anything.
    async fn another(&self, client: u64) -> Arc<RedlockBackend> {
        connect(self.servers.iter().map(|server| server.addr().to_string()), client).await
    }

    /// How many lines each server has read so far.
    fn reads(&self) -> Vec<u64> {
        let reads = |server: &Server| {
            let stats = server.command(&["INFO", "commandstats"]).unwrap().unwrap();
            // A verb reads the beginning of a line, and a look all of it.
            let calls = |command: &str| -> u64 {
                let rest = stats.split_once(&format!("cmdstat_{command}:calls=")).map(|(_, rest)| rest);
                rest.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
            };
            calls("getrange") + calls("get")
        };
        self.servers.iter().map(reads).collect()
    }

    /// Waits until each server has read a line since then.
    async fn all_read_since(&self, before: &[u64]) {
        eventually("all servers were asked", || {
            self.reads().iter().zip(before).all(|(now, then)| now > then)
        })
        .await;
    }

    /// Who holds on a server, by the client.
    async fn holder(&self, server: usize) -> Option<u64> {
        let scope = Scope::Names(vec![Name::new(NAME).unwrap()]);
        let views = self.one(server, 90).await.look(&scope).await.unwrap();
        views.first()?.holders.first().map(|holder| holder.id.client().get())
    }

    async fn until_holder(&self, server: usize, is_so: impl Fn(Option<u64>) -> bool + Send + Sync) {
        within("the holder changes", async {
            while !is_so(self.holder(server).await) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

async fn connect(hosts: impl Iterator<Item = String>, client: u64) -> Arc<RedlockBackend> {
    let hosts: Vec<_> = hosts.collect();
    let url = format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), LONG.as_millis());
    let config = RedlockConfig::from_url(&url).unwrap();
    Arc::new(RedlockBackend::connect(config, ClientId::from_u64(client)).await.unwrap())
}

fn by(proxies: &[Proxy]) -> impl Iterator<Item = String> {
    proxies.iter().map(|proxy| proxy.addr().to_string())
}

fn claim(client: u64, serial: u64) -> Arc<Claim> {
    Arc::new(
        Claim::new(
            ClaimId::new(ClientId::from_u64(client), serial),
            Name::new(NAME).unwrap(),
            Share::Exclusive,
            LONG,
        )
        .label("trial"),
    )
}

/// Hears what a client is told, and lets it do what it does in between.
fn listen(backend: &Arc<RedlockBackend>) -> (JoinHandle<()>, UnboundedReceiver<News>) {
    let (tell, hear) = unbounded_channel();
    let backend = Arc::clone(backend);
    let listening = tokio::spawn(async move {
        while let Ok(news) = backend.wait().await {
            if tell.send(news).is_err() {
                break;
            }
        }
    });
    (listening, hear)
}

/// The client that waits, and the smaller ones whose claims stay when votes are split.
const WAITS: u64 = 50;
const HOLDS: u64 = 10;
const ALONE: u64 = 20;

/// A claim that waits behind one that is being left: it holds on the first server already, on the second it does not
/// yet, and on the third somebody else holds. Its client has looked at all of them to see who stays, and has not heard
/// of the third.
struct Split {
    three: Three,
    waiter: Arc<RedlockBackend>,
    claim: Arc<Claim>,
    news: UnboundedReceiver<News>,
    _listening: JoinHandle<()>,
    _leaving: JoinHandle<()>,
}

impl Split {
    async fn begin() -> Self {
        let three = Three::start();
        let alone = three.one(2, ALONE).await;
        assert!(matches!(alone.enter(&claim(ALONE, 1), Ask::Try).await, Ok(Entered::Held(_))));
        let holder = connect(by(&three.far), HOLDS).await;
        let held = claim(HOLDS, 1);
        assert!(matches!(holder.enter(&held, Ask::Queue).await, Ok(Entered::Held(_))));
        let waiter = connect(by(&three.near), WAITS).await;
        let claim = claim(WAITS, 1);
        assert!(matches!(waiter.enter(&claim, Ask::Queue).await, Ok(Entered::Waiting(_))));
        three.far[1].hold_requests();
        let leaving = tokio::spawn(async move {
            let _ = holder.leave(&held.name, held.id, Leave::Done).await;
        });
        three.until_holder(0, |holder| holder == Some(WAITS)).await;
        three.near[2].hold_replies();
        let before = three.reads();
        // Only now it hears that it holds on the first server, and looks at all of them.
        let (listening, news) = listen(&waiter);
        three.all_read_since(&before).await;
        // What the second server said has arrived when a later conversation with it is over.
        let config = RedisConfig::from_url(&format!("redis://{}", three.near[1].addr())).unwrap();
        let later = RedisBackend::connect(config, ClientId::from_u64(91)).await.unwrap();
        later.look(&Scope::Names(vec![claim.name.clone()])).await.unwrap();
        Self { three, waiter, claim, news, _listening: listening, _leaving: leaving }
    }

    async fn renew(&self) -> Standing {
        match self.waiter.renew(std::slice::from_ref(&self.claim)).await {
            Ok(standings) => standings[0],
            Err(_) => Standing::Unknown,
        }
    }
}

/// Repeats a trial that a slow machine may spoil: a client waits for a server for a second only.
async fn until_it_succeeds<T>(trial: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..20 {
        if let Some(outcome) = trial().await {
            return outcome;
        }
    }
    panic!("the machine is too slow for this trial")
}

/// Without the rule its client would leave it, by what it saw before, and let another in beside it.
async fn a_claim_that_came_to_hold_meanwhile_does_not_step_back() {
    let mut split = until_it_succeeds(async || {
        let mut split = Split::begin().await;
        split.three.far[1].heal().unwrap();
        let news = within("it hears that it may hold", split.news.recv()).await.unwrap();
        assert!(matches!(news.what, What::Ask), "{news:?}");
        // If it stepped back before, it has to be tried again.
        matches!(split.renew().await, Standing::Held(_)).then_some(split)
    })
    .await;
    // Now it hears who was first on the third server when it looked.
    split.three.near[2].heal().unwrap();
    let another = split.three.another(70).await;
    for serial in 0..50 {
        let entered = another.enter(&claim(70, serial), Ask::Try).await.unwrap();
        assert!(!matches!(entered, Entered::Held(_)), "another holds beside it");
        assert!(matches!(split.renew().await, Standing::Held(_)), "its own client left it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while let Ok(news) = split.news.try_recv() {
        assert!(!matches!(news.what, What::Evicted(_)), "{news:?}");
    }
}

/// Without the rule the majority would be counted though the servers have dropped the claim.
async fn a_claim_that_stepped_back_does_not_hold_by_votes_from_before() {
    let standing = until_it_succeeds(async || {
        let split = Split::begin().await;
        // The second server lets it hold, and the client does not hear of it.
        split.three.near[1].hold_replies();
        split.three.far[1].heal().unwrap();
        split.three.until_holder(1, |holder| holder == Some(WAITS)).await;
        let before = split.three.reads();
        let (waiter, claims) = (Arc::clone(&split.waiter), [Arc::clone(&split.claim)]);
        let renewing = tokio::spawn(async move { waiter.renew(&claims).await });
        split.three.all_read_since(&before).await;
        split.three.near[2].heal().unwrap();
        split.three.until_holder(0, |holder| holder != Some(WAITS)).await;
        // It has stepped back. Now it hears the vote of the second server, which was given before.
        if renewing.is_finished() {
            return None;
        }
        split.three.near[1].heal().unwrap();
        let standing = renewing.await.unwrap().map_or(Standing::Unknown, |standings| standings[0]);
        (standing != Standing::Unknown).then_some(standing)
    })
    .await;
    assert_eq!(standing, Standing::Gone, "the first server has dropped it");
}

/// The engine asks again with the same id when it is told that a claim is not in line. Without the rule the client would
/// leave it on servers that come back, though it may have entered there by then.
async fn a_claim_that_could_not_enter_is_not_left_when_servers_are_back() {
    let three = Three::start();
    let backend = connect(by(&three.near), WAITS).await;
    let (_listening, _news) = listen(&backend);
    three.near.iter().for_each(Proxy::cut);
    let mut serial = 0;
    let claim = within("too few servers can be reached", async {
        loop {
            serial += 1;
            let claim = claim(WAITS, serial);
            let failure = backend.enter(&claim, Ask::Queue).await.unwrap_err();
            // The first question may find out that the connections are gone.
            if failure.kind == FailureKind::Unreachable {
                return claim;
            }
            backend.leave(&claim.name, claim.id, Leave::Done).await.unwrap_err();
        }
    })
    .await;
    // It enters there by another way, as it does when it is asked for right after the servers are back.
    let direct = three.one(0, WAITS).await;
    assert!(matches!(direct.enter(&claim, Ask::Queue).await, Ok(Entered::Held(_))));
    three.near.iter().for_each(|proxy| proxy.heal().unwrap());
    let mut other = (*self::claim(WAITS, 0)).clone();
    other.name = Name::new("another").unwrap();
    let other = Arc::new(other);
    within("a majority can be reached", async {
        while !matches!(backend.enter(&other, Ask::Queue).await, Ok(Entered::Held(_))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for _ in 0..50 {
        assert_eq!(three.holder(0).await, Some(WAITS), "its own client left it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The server that is late says that the claim holds while it is being left, and then the release is given up. Without the
/// rule each of the two would rely on the other, and the claim would hold there until its lease ends.
async fn a_release_that_is_given_up_half_way_leaves_nothing_on_a_server_that_says_late_that_the_claim_holds()
{
    const LATE: Duration = Duration::from_millis(200);
    let three = until_it_succeeds(async || {
        let three = Three::start();
        let backend = connect(by(&three.near), WAITS).await;
        let (_listening, _news) = listen(&backend);
        let (claim, before) = (claim(WAITS, 1), three.reads());
        three.near[2].delay(LATE);
        assert!(matches!(backend.enter(&claim, Ask::Queue).await, Ok(Entered::Held(_))));
        three.all_read_since(&before).await;
        // What it said is on its way, and it does not hear of the release.
        three.near[2].hold_requests();
        let (other, left) = (Arc::clone(&backend), Arc::clone(&claim));
        let leaving = tokio::spawn(async move { other.leave(&left.name, left.id, Leave::Done).await });
        tokio::time::sleep(2 * LATE).await;
        if leaving.is_finished() {
            return None;
        }
        leaving.abort();
        assert!(leaving.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(three.holder(2).await, Some(WAITS), "nobody told it yet");
        // What was sent until now is lost.
        three.near[2].delay(Duration::ZERO);
        three.near[2].disconnect();
        three.near[2].heal().unwrap();
        three.until_holder(2, |holder| holder.is_none()).await;
        Some(three)
    })
    .await;
    for server in 0..3 {
        assert_eq!(three.holder(server).await, None, "server {server}");
    }
}
