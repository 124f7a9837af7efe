//! The conformance suite: what every store has to do, as [cases](super::cases) that run on any of them.
//!
//! A backend's author implements [`Store`], and runs each case of [`all`] in a [`World`] of its own:
//!
//! ```
//! # use std::sync::Arc;
//! use tidelock::testing::suite::{self, Store, World};
//!
//! async fn conforms(store: Arc<dyn Store>) {
//!     for case in suite::all() {
//!         let world = World::open(Arc::clone(&store), &case.id()).await;
//!         match (case.needs)(world.abilities()) {
//!             Ok(()) => (case.run)(world).await,
//!             Err(reason) => println!("{} is ignored: {reason}", case.id()),
//!         }
//!     }
//! }
//! ```
//!
//! A case that fails panics. Cases share nothing but the store: each uses names of its own, so they
//! may run at the same time on one server. Under a runtime whose clock is paused, with a store on
//! [`Clock::driven`], none of them takes real time.
#![allow(clippy::disallowed_methods, reason = "cases play many clients at once, outside of any engine")]

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::task::JoinHandle;

use crate::{
    Guard, Locks, Name,
    backend::{Abilities, Backend, ClientId, Leave, Left, LockView, Scope},
    clock::Clock,
};

use super::defect::Defects;
pub use super::{cases::all, raw::Raw};

/// A lease that no case outlives.
pub const LONG_TTL: Duration = Duration::from_secs(120);

/// How long a condition may take to become true before [`World::until`] gives up.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A store under test: how to get clients of it.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What it is called in the names of tests.
    fn name(&self) -> &'static str;

    /// A new client of the same store, listening for this id.
    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>>;

    /// The clock that leases run on: [`Clock::machine`] for servers, one [`Clock::driven`] for all
    /// clients under a paused runtime.
    fn clock(&self) -> Clock;

    /// The ttl where a lease has to run out: long against a round trip, short against a minute.
    fn short_ttl(&self) -> Duration;
}

/// One property of a store.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is about.
    pub group: &'static str,
    /// The property, as a sentence.
    pub name: &'static str,
    /// Whether a store with these abilities can do it, or why not.
    pub needs: fn(&Abilities) -> Result<(), &'static str>,
    /// Shows the property, or panics.
    pub run: fn(World) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Case {
    /// Group and name.
    pub fn id(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

/// What a case has: clients of one store, and names that nobody else uses.
#[derive(Debug)]
pub struct World {
    store: Arc<dyn Store>,
    clock: Clock,
    space: String,
    eyes: Arc<dyn Backend>,
}

impl World {
    /// A world for one run of one case. `what` shows in the names of its locks.
    pub async fn open(store: Arc<dyn Store>, what: &str) -> Self {
        let clock = store.clock();
        let run = ClientId::random();
        let space = format!("{what}/{run:?}");
        let eyes = store.client(run).await;
        Self { store, clock, space, eyes }
    }

    /// What the store can do.
    pub fn abilities(&self) -> &Abilities {
        self.eyes.abilities()
    }

    /// A name that only this run uses.
    pub fn name(&self, text: &str) -> String {
        format!("{}/{text}", self.space)
    }

    /// The clock that leases run on.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A ttl that may be waited for.
    pub fn short_ttl(&self) -> Duration {
        self.store.short_ttl()
    }

    /// A client, as a user has it.
    pub async fn client(&self) -> Locks {
        let id = ClientId::random();
        let backend = self.store.client(id).await;
        Locks::on_clock(backend, self.clock.clone(), Defects::NONE)
    }

    /// Several clients.
    pub async fn clients<const N: usize>(&self) -> [Locks; N] {
        let mut clients = Vec::with_capacity(N);
        for _ in 0..N {
            clients.push(self.client().await);
        }
        clients.try_into().expect("as many as were asked for")
    }

    /// A client, as the engine has it.
    pub async fn backend(&self) -> Raw {
        let id = ClientId::random();
        Raw::listen(self.store.client(id).await, id)
    }

    /// Several clients, as the engine has them.
    pub async fn backends<const N: usize>(&self) -> [Raw; N] {
        let mut backends = Vec::with_capacity(N);
        for _ in 0..N {
            backends.push(self.backend().await);
        }
        backends.try_into().expect("as many as were asked for")
    }

    /// Runs something at the same time.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Task<T> {
        Task(tokio::spawn(work))
    }

    /// Locks a mutex at the same time.
    pub fn lock_later(&self, locks: &Locks, name: &str) -> Task<Guard> {
        let mutex = locks.mutex(name);
        self.spawn(async move { mutex.lock().await.expect("it waits until it holds") })
    }

    /// Polls a condition until it holds; fails when it does not within [`PATIENCE`].
    pub async fn until<F, C>(&self, what: &str, mut condition: F)
    where
        F: FnMut() -> C + Send,
        C: Future<Output = bool> + Send,
    {
        let end = self.clock.now() + PATIENCE;
        while !condition().await {
            assert!(self.clock.now() < end, "not within {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until so many claims wait in line.
    pub async fn until_waiting(&self, name: &str, claims: usize) {
        self.until(
            &format!("{claims} in line of {name}"),
            || async move { self.waiting(name).await == claims },
        )
        .await;
    }

    /// Waits until nothing is in line.
    pub async fn until_idle(&self, name: &str) {
        self.until(&format!("nothing in line of {name}"), || async move { self.seen(name).await.is_none() })
            .await;
    }

    /// What is in line, if anything is.
    pub async fn seen(&self, name: &str) -> Option<LockView> {
        let scope = Scope::Names(vec![checked(name)]);
        let mut views = self.eyes.look(&scope).await.expect("the store answers");
        assert!(views.len() <= 1, "one name, {} views", views.len());
        views.pop()
    }

    /// How many claims hold.
    pub async fn holding(&self, name: &str) -> usize {
        self.seen(name).await.map_or(0, |view| view.holders.len())
    }

    /// How many claims wait.
    pub async fn waiting(&self, name: &str) -> usize {
        self.seen(name).await.map_or(0, |view| view.waiters.len())
    }

    /// All of this run's names that have anything in line.
    pub async fn in_use(&self) -> Vec<Name> {
        let views = self.eyes.look(&Scope::All).await.expect("the store answers");
        views
            .into_iter()
            .map(|view| view.name)
            .filter(|name| name.as_str().starts_with(&self.space))
            .collect()
    }

    /// Puts the first holder out.
    pub async fn evict_holder(&self, name: &str) {
        let view = self.seen(name).await.expect("somebody holds it");
        let call = self.eyes.leave(&view.name, view.holders[0].id, Leave::evicted("by hand"));
        call.await.expect("the store answers");
    }

    /// Takes the first holder out as its own client would: it is not told.
    ///
    /// The lock must be detached, so that another client may do so on every store.
    pub async fn take_out_holder(&self, name: &str) {
        let view = self.seen(name).await.expect("somebody holds it");
        let left = self.eyes.leave(&view.name, view.holders[0].id, Leave::Done).await;
        assert_eq!(left.expect("the store answers"), Left::Removed);
    }

    /// Sleeps until every short lease that was not renewed is over.
    pub async fn let_short_leases_lapse(&self) {
        self.sleep(1.25).await;
    }

    /// Sleeps for so many short ttls.
    pub async fn sleep(&self, short_ttls: f64) {
        tokio::time::sleep(self.short_ttl().mul_f64(short_ttls)).await;
    }

    /// Gives things that must not happen the time to happen.
    pub async fn settle(&self) {
        self.sleep(0.2).await;
    }
}

/// Something that runs at the same time. Awaiting it gives its result; it panics if that did.
#[must_use = "a task that is not awaited proves nothing"]
#[derive(Debug)]
pub struct Task<T>(JoinHandle<T>);

impl<T> Task<T> {
    /// Whether it is done.
    pub fn is_done(&self) -> bool {
        self.0.is_finished()
    }

    /// Ends it at whatever await it is at.
    pub fn cancel(self) {
        self.0.abort();
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context).map(|done| done.expect("a task of the case panicked"))
    }
}

pub(super) fn checked(name: &str) -> Name {
    Name::new(name).expect("cases name proper locks")
}

/// Polls a future at most so many times, then drops it. Says what it gave, if it came so far.
pub async fn polled<T>(times: u32, work: impl Future<Output = T> + Send) -> Option<T> {
    let (mut work, mut left) = (Box::pin(work), times);
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
