//! What a client runs in the background, counted by the runtime.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use test_servers::Proxy;
use tidelock::{
    Name,
    backend::{Ask, Backend as _, Claim, ClaimId, ClientId, Entered, Leave, Share, Standing, What},
    backends::zookeeper::{ZookeeperBackend, ZookeeperConfig},
};
use tokio::runtime::Handle;

use crate::support::{LONG, Place, eventually, report, shared, within};

trials! {
    two_hundred_waiters_need_no_more_tasks_than_one,
    news_that_nobody_waits_for_are_kept_once_for_each_claim,
    a_client_that_is_dropped_leaves_no_task_behind,
}

/// How many claims wait, each for a lock of its own.
const WAITERS: u64 = 200;

pub(crate) async fn connect(place: &Place) -> ZookeeperBackend {
    let config = ZookeeperConfig::from_url(&place.url()).unwrap();
    within("a client connects", ZookeeperBackend::connect(config, ClientId::random())).await.unwrap()
}

pub(crate) fn claim(client: u64, number: u64) -> Arc<Claim> {
    Arc::new(
        Claim::new(
            ClaimId::new(ClientId::from_u64(client), number),
            Name::new(&format!("lock {number}")).unwrap(),
            Share::Exclusive,
            LONG,
        )
        .label("test"),
    )
}

pub(crate) async fn holds(backend: &ZookeeperBackend, claim: &Arc<Claim>) {
    assert!(matches!(backend.enter(claim, Ask::Queue).await.unwrap(), Entered::Held(_)));
}

pub(crate) async fn waits(backend: &ZookeeperBackend, claim: &Arc<Claim>) {
    assert!(matches!(backend.enter(claim, Ask::Queue).await.unwrap(), Entered::Waiting(_)));
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Looks at how many tasks there are, all the time.
struct Most {
    most: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Most {
    fn look() -> Self {
        let (most, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let metrics = Handle::current().metrics();
        let (seen, is_over) = (Arc::clone(&most), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                seen.fetch_max(metrics.num_alive_tasks(), Ordering::Relaxed);
                thread::yield_now();
            }
        });
        Self { most, stop, thread }
    }

    fn seen(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.most.load(Ordering::Relaxed)
    }
}

async fn two_hundred_waiters_need_no_more_tasks_than_one() {
    let place = Place::shared();
    let proxy = Proxy::start(shared().addr()).unwrap();
    let (holder, waiter) = (connect(&place).await, connect(&place.behind(&proxy)).await);
    let held: Vec<_> = (0..WAITERS).map(|number| claim(1, number)).collect();
    let waiting: Vec<_> = (0..WAITERS).map(|number| claim(2, number)).collect();
    for claim in &held {
        holds(&holder, claim).await;
    }
    waits(&waiter, &waiting[0]).await;
    let with_one = tasks();
    let most = Most::look();
    for claim in &waiting[1..] {
        waits(&waiter, claim).await;
    }
    // All of them are looked at again.
    proxy.disconnect();
    let renewed = async {
        loop {
            if let Ok(standings) = waiter.renew(&waiting).await
                && standings.iter().all(|standing| matches!(standing, Standing::Waiting(_)))
            {
                return;
            }
        }
    };
    within("the session is taken up again", renewed).await;
    for claim in &held {
        holder.leave(&claim.name, claim.id, Leave::Done).await.unwrap();
    }
    let mut granted = HashSet::new();
    while granted.len() < waiting.len() {
        let news = within("it is told", waiter.wait()).await.unwrap();
        assert!(matches!(news.what, What::Granted(_)), "{news:?}");
        granted.insert(news.id);
    }
    let most = most.seen();
    report(&format!("{with_one} tasks with one waiter, {most} at most with {WAITERS}"));
    assert!(most <= with_one, "{most} tasks for {WAITERS} waiters, {with_one} for one");
}

/// Cancelled waits lose nothing, and what nobody asked for in time is told when somebody asks.
async fn news_that_nobody_waits_for_are_kept_once_for_each_claim() {
    let place = Place::shared();
    let (holder, waiter) = (connect(&place).await, connect(&place).await);
    let (held, waiting) = (claim(1, 0), claim(2, 0));
    holds(&holder, &held).await;
    waits(&waiter, &waiting).await;
    // Nothing has happened yet: this wait is dropped while it waits.
    assert!(tokio::time::timeout(std::time::Duration::ZERO, waiter.wait()).await.is_err());
    holder.leave(&held.name, held.id, Leave::Done).await.unwrap();
    // Renewals find out on their own; what the store tells is still there.
    let renewed = async {
        while !matches!(waiter.renew(std::slice::from_ref(&waiting)).await.unwrap()[0], Standing::Held(_)) {}
    };
    within("the claim holds", renewed).await;
    // The same claim is put out before anybody heard that it holds.
    holder.leave(&waiting.name, waiting.id, Leave::evicted("no more")).await.unwrap();
    let news = async {
        loop {
            let news = waiter.wait().await.unwrap();
            assert_eq!(news.id, waiting.id);
            if let What::Evicted(why) = news.what {
                return why;
            }
        }
    };
    assert_eq!(&*within("it is told", news).await, "no more");
}

async fn a_client_that_is_dropped_leaves_no_task_behind() {
    let place = Place::shared();
    let before = tasks();
    let backend = connect(&place).await;
    for number in 0..20 {
        holds(&backend, &claim(1, number)).await;
    }
    drop(backend);
    eventually("the tasks of the client end", || tasks() == before).await;
}
