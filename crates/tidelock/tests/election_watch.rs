//! Watches of elections on a store that tells of changes, in paused time: what they see when, and how often they ask.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::{
    Leader, Locks, Name, Watch,
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Follow, Follows, Leave, Left,
        LockView, News, Scope, Standing,
    },
    backends::memory::{MemoryBackend, MemoryStore},
    testing::{Clock, defect::Defects},
};
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(30);

/// A client of a store in memory that counts how often it is asked who holds.
#[derive(Debug)]
struct Observed {
    inner: MemoryBackend,
    looks: AtomicUsize,
    /// Names that are followed here, and not in the store: what is told is up to the test.
    own: Option<Follows>,
}

impl Backend for Observed {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn client_id(&self) -> ClientId {
        self.inner.client_id()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        self.inner.enter(claim, ask)
    }

    fn wait(&self) -> Call<News> {
        self.inner.wait()
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        self.inner.renew(claims)
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        self.inner.leave(name, id, why)
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.inner.look(scope)
    }

    fn follow(&self, name: &Name) -> Option<Follow> {
        match &self.own {
            Some(own) => own.follow(name),
            None => self.inner.follow(name),
        }
    }
}

/// A candidate and an observer on one store.
struct World {
    leader: Locks,
    observer: Locks,
    backend: Arc<Observed>,
}

impl World {
    fn new(own: Option<Follows>) -> Self {
        let clock = Clock::driven(0);
        let store = MemoryStore::on_clock(clock.clone());
        let connect = || MemoryBackend::connect(Arc::clone(&store), ClientId::random());
        let leader = Locks::on_clock(Arc::new(connect()), clock.clone(), Defects::NONE);
        let backend = Arc::new(Observed { inner: connect(), looks: AtomicUsize::new(0), own });
        let observer = Locks::on_clock(Arc::clone(&backend) as Arc<dyn Backend>, clock, Defects::NONE);
        Self { leader, observer, backend }
    }

    fn looks(&self) -> usize {
        self.backend.looks.load(Ordering::SeqCst)
    }

    fn watch(&self) -> Watch {
        self.observer.election("scheduler").watch()
    }

    async fn lead(&self) -> tidelock::Guard {
        self.leader.election("scheduler").ttl(TTL).campaign().await.expect("it leads")
    }
}

async fn next(watch: &mut Watch) -> Option<Leader> {
    watch.next().await.expect("it goes on").expect("the store answers")
}

fn name() -> Name {
    Name::new("scheduler").expect("a name")
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_store_tells_of_is_seen_at_once() {
    let world = World::new(None);
    let mut watch = world.watch();
    assert_eq!(next(&mut watch).await, None);
    for _ in 0..20 {
        sleep(Duration::from_millis(700)).await;
        let lead = world.lead().await;
        let led = Instant::now();
        assert_eq!(next(&mut watch).await.map(|leader| leader.token), Some(lead.token()));
        assert!(led.elapsed() <= Duration::from_millis(100), "{:?}", led.elapsed());
        sleep(Duration::from_millis(700)).await;
        lead.release().await.expect("it is released");
        let left = Instant::now();
        assert_eq!(next(&mut watch).await, None);
        assert!(left.elapsed() <= Duration::from_millis(100), "{:?}", left.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn all_watches_of_an_election_ask_once_for_each_change() {
    let world = World::new(None);
    let seen = Arc::new(AtomicUsize::new(0));
    let watches: Vec<_> = (0..50)
        .map(|_| {
            let (mut watch, seen) = (world.watch(), Arc::clone(&seen));
            tokio::spawn(async move {
                while watch.next().await.is_some() {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    sleep(Duration::from_secs(60)).await;
    let idle = world.looks();
    assert!((55..=95).contains(&idle), "{idle} questions in a minute without a change");
    for _ in 0..10 {
        let lead = world.lead().await;
        sleep(Duration::from_millis(200)).await;
        lead.release().await.expect("it is released");
        sleep(Duration::from_millis(200)).await;
    }
    let changes = world.looks() - idle;
    assert!((20..=50).contains(&changes), "{changes} questions for 20 changes");
    assert_eq!(seen.load(Ordering::SeqCst), 50 * 21, "each watch sees each change");
    watches.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_changes_hands_all_the_time_is_looked_at_twenty_times_a_second_at_most() {
    let world = World::new(None);
    let mut watch = world.watch();
    assert_eq!(next(&mut watch).await, None);
    let before = world.looks();
    let watching = tokio::spawn(async move { while watch.next().await.is_some() {} });
    for _ in 0..1_000 {
        world.lead().await.release().await.expect("it is released");
        sleep(Duration::from_millis(10)).await;
    }
    let looks = world.looks() - before;
    assert!((100..=220).contains(&looks), "{looks} questions in ten seconds");
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_not_told_is_seen_all_the_same() {
    let follows = Follows::new();
    let world = World::new(Some(follows.clone()));
    let mut watch = world.watch();
    assert_eq!(next(&mut watch).await, None);
    // It says that it tells of changes, and does not.
    follows.live(&name());
    for _ in 0..20 {
        let lead = world.lead().await;
        let led = Instant::now();
        assert_eq!(next(&mut watch).await.map(|leader| leader.token), Some(lead.token()));
        assert!(led.elapsed() <= Duration::from_millis(2_500), "{:?}", led.elapsed());
        lead.release().await.expect("it is released");
        assert_eq!(next(&mut watch).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn while_changes_are_not_told_the_store_is_asked_twice_a_second() {
    let follows = Follows::new();
    let world = World::new(Some(follows.clone()));
    let mut watch = world.watch();
    assert_eq!(next(&mut watch).await, None);
    let watching = tokio::spawn(async move { while watch.next().await.is_some() {} });
    for (live, looks) in [(false, 90..=160), (true, 55..=95), (false, 90..=160)] {
        if live {
            follows.live(&name())
        } else {
            follows.cut_all()
        }
        let before = world.looks();
        sleep(Duration::from_secs(60)).await;
        let asked = world.looks() - before;
        assert!(looks.contains(&asked), "{asked} questions in a minute, told: {live}");
    }
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dropped_leaves_nothing_behind() {
    let follows = Follows::new();
    let world = World::new(Some(follows.clone()));
    let (mut one, mut other) = (world.watch(), world.watch());
    next(&mut one).await;
    next(&mut other).await;
    // Dropped while it waits, and while it does not.
    assert!(tokio::time::timeout(Duration::from_secs(3), one.next()).await.is_err());
    drop(one);
    assert!(!follows.is_empty());
    drop(other);
    // Its question has a task, which ends when it is next polled.
    tokio::task::yield_now().await;
    assert!(follows.is_empty());
    let looks = world.looks();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.looks(), looks, "nobody asks any more");
}

#[tokio::test(start_paused = true)]
async fn through_a_namespace_changes_are_told_as_well() {
    let world = World::new(None);
    let inner = Arc::clone(&world.backend) as Arc<dyn Backend>;
    let short = tidelock::backend::Namespaced::new(inner, "sched").expect("a namespace");
    let follow = short.follow(&Name::new("uler").expect("a name")).expect("it follows");
    let before = follow.changes();
    let lead = world.lead().await;
    follow.changed_since(before).await;
    drop(lead);
}
