//! The client: a connection to a store and the locks on it.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "testing")]
use crate::testing::defect::Defects;
use crate::{
    api::builder::Builder,
    api::election::{Election, observe::Sights},
    api::facade::both,
    api::handle::Handle,
    api::multi::{Guards, Multi},
    api::mutex::Mutex,
    api::once::{Once, slot::Period},
    api::options::{Options, checked_name},
    api::rw_lock::RwLock,
    api::semaphore::Semaphore,
    api::ticket::Ticket,
    backend::{Abilities, Backend, ClaimId, LockView, Scope},
    backends::{Store, Target, registry},
    clock::Clock,
    engine::{Client, Engine, Flaws},
    error::Result,
    events::Groups,
    model::name::Name,
    model::owner,
};

/// A connection to a store, from which you create locks.
///
/// Cheap to clone: all clones share one connection and one background task, which renews every lock that is
/// held. The connection lives until the last clone and the last guard are dropped.
///
/// # Runtimes
/// A client belongs to the tokio runtime on which it was connected, and needs it to run. When that runtime has ended,
/// calls return [`Closed`](crate::ErrorKind::Closed), and locks that are held are lost when their leases end. So do not
/// keep a client in a `static` that several runtimes use, as those of `#[tokio::test]`.
///
/// Before its runtime ends, a program releases its guards or calls [`shutdown`](Self::shutdown). As a safeguard, the
/// last clone, handle or guard of a client that is dropped waits up to 2 s for releases in progress. It does so only on
/// a thread that runs no async task, as `main` of a multi-thread runtime; elsewhere, dropping never blocks.
#[derive(Clone)]
pub struct Locks {
    pub(super) engine: Client,
    /// What locks start with.
    defaults: Arc<Options>,
    /// The elections that this client watches.
    sights: Arc<Sights>,
}

both! { impl Locks {
    /// Connects to the store that the URL names. Must be called within a tokio runtime.
    ///
    /// | URL | store | feature |
    /// |---|---|---|
    /// | `etcd://HOST,HOST,HOST`, `etcds://` | etcd: one server or a cluster | `etcd` |
    /// | `file:`, `file:/path`, a path | this machine (Unix): the user's or another directory | `file` |
    /// | `memory:` | this process, a separate store for each connection | always available |
    /// | `memory:NAME` | this process, shared by all connections with this name | always available |
    /// | `postgres://USER:PASSWORD@HOST/DATABASE`, `postgresql://` | PostgreSQL | `postgres` |
    /// | `mysql://USER@HOST/DATABASE`, `mariadb://` | MySQL and MariaDB | `mysql` |
    /// | `redis://HOST`, `rediss://`, `redis+unix://` | Redis: one server | `redis` |
    /// | `redis+sentinel://`, `rediss+sentinel://` | Redis behind Sentinels | `redis` |
    /// | `redis+cluster://`, `rediss+cluster://` | a Redis cluster | `redis` |
    /// | `redlock://HOST,HOST,HOST`, `redlocks://` | several independent Redis servers that vote | `redis` |
    /// | `zookeeper://HOST,HOST,HOST/path`, `zk://`, `zookeepers://`, `zks://` | ZooKeeper | `zookeeper` |
    ///
    /// The feature `file` is on by default.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl) when no store of this build has that scheme;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the first attempt does not reach the store
    /// ([`connect_within`](Self::connect_within) retries); [`Denied`](crate::ErrorKind::Denied) when the
    /// store refuses; [`NoRuntime`](crate::ErrorKind::NoRuntime) outside of a tokio runtime, or on one without
    /// timers or I/O.
    ///
    /// # Cancel safety
    /// Dropping the future drops an unfinished connection.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// guard.release().await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Connects to the store that a typed config names, as [`connect`](Self::connect) does for a URL.
    ///
    /// A config takes what a URL cannot hold well, such as a password with any characters.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`InvalidOption`](crate::ErrorKind::InvalidOption) when the config
    /// has a mistake.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// use tidelock::{Locks, backends::memory::MemoryConfig};
    ///
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = Locks::connect_with(MemoryConfig::named("tests")).await?;
    /// # drop(locks);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect_with(config: impl Into<Target>) -> Result<Self> {
        Self::builder(config).connect().await
    }

    /// Creates a builder for a client whose locks have settings in common.
    ///
    /// The target is a URL or the typed config of a store.
    pub fn builder(target: impl Into<Target>) -> Builder {
        Builder::new(target.into())
    }

    /// Connects as [`connect`](Self::connect) does, retrying for up to `limit`.
    ///
    /// While the store is not reachable or does not answer, it retries with growing pauses.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). An error that a retry cannot fix, such as a wrong password, is returned
    /// at once. If the store was not reached in time, the error is
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect_within("memory:", Duration::from_secs(60)).await?;
    /// # drop(locks);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect_within(url: &str, limit: Duration) -> Result<Self> {
        Self::builder(url).connect_within(limit).await
    }

    /// Returns a lock with one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex { handle: self.handle(name.as_ref()) }
    }

    /// Returns a lock with many readers or one writer.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        let mut handle = self.handle(name.as_ref());
        handle.options.writes = true;
        RwLock { handle }
    }

    /// Returns a lock with a number of permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore { handle: self.handle(name.as_ref()), permits }
    }

    /// Returns an election, in which one of many candidates leads at a time.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.handle(name.as_ref()), &self.sights)
    }

    /// Returns a job that runs at most once in each slot of a period.
    pub fn once(&self, name: impl AsRef<str>, period: Period) -> Once {
        Once::new(self.handle(name.as_ref()), period)
    }

    /// Returns a handle for several mutexes that are held together.
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Multi {
        let names = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        Multi::new(&self.engine, names, (*self.defaults).clone())
    }

    /// Acquires several mutexes together, without deadlock, waiting until all of them are held.
    ///
    /// # Errors
    /// As [`Multi::lock`].
    ///
    /// # Cancel safety
    /// As [`Multi::lock`].
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let both = locks.lock_all(["accounts/2", "accounts/1"]).await?;
    /// assert!(both.is_held());
    /// both.release().await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Guards> {
        let multi = self.multi(names);
        multi.lock().await
    }

    /// Returns who holds and who waits for these locks, for people to read.
    ///
    /// A lock that nobody holds or waits for is left out.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store;
    /// [`InvalidName`](crate::ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    /// Safe to cancel: nothing is changed.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::builder("memory:").label("worker-7").connect().await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// let seen = locks.look(["orders/42"]).await?;
    /// assert_eq!(&*seen[0].holders[0].label, "worker-7");
    /// # drop(guard);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn look(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<LockView>> {
        let names = names.into_iter().map(|name| self.name(name.as_ref())).collect::<Result<Vec<_>>>()?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.engine.look(&Scope::Names(names)).await
    }

    /// Returns who holds and who waits, for every lock in use in this client's namespace.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store.
    ///
    /// # Cancel safety
    /// Safe to cancel: nothing is changed.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// for lock in locks.look_all().await? {
    ///     println!("{}: {} wait", lock.name, lock.waiters.len());
    /// }
    /// # drop(guard);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn look_all(&self) -> Result<Vec<LockView>> {
        self.engine.look(&Scope::All).await
    }

    /// Evicts a claim that [`look`](Self::look) has shown: removes it from the queue by force.
    ///
    /// The holder learns that the lock is lost and, if the store can deliver it, the reason. The next
    /// holder's token is larger. Returns `false` if the claim was no longer in the queue.
    ///
    /// # Errors
    /// As [`look`](Self::look), and [`InvalidOption`](crate::ErrorKind::InvalidOption) when the reason is
    /// longer than 128 bytes or contains a control character.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call may or may not have taken effect.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    ///
    /// let seen = locks.look(["orders/42"]).await?;
    /// assert!(locks.evict("orders/42", seen[0].holders[0].id, "it hangs").await?);
    /// assert!(guard.lost().await.to_string().contains("it hangs"));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn evict(&self, name: &str, claim: ClaimId, reason: &str) -> Result<bool> {
        self.engine.evict(&self.name(name)?, claim, owner::reason(reason)?).await
    }

    /// Renews a lock that was [left behind](crate::Guard::leave_behind): its ttl starts again.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when it has expired or was released or evicted before;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call may or may not have taken effect.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let ticket = locks.mutex("deploy").detached(true).lock().await?.leave_behind()?;
    /// locks.renew(&ticket).await?;
    /// locks.release(&ticket).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn renew(&self, ticket: &Ticket) -> Result<()> {
        self.engine.renew_left(&ticket.claim()).await
    }

    /// Releases a lock that was [left behind](crate::Guard::leave_behind).
    ///
    /// # Errors
    /// As [`renew`](Self::renew). [`Lost`](crate::ErrorKind::Lost) means that others may have held it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call may or may not have taken effect.
    pub async fn release(&self, ticket: &Ticket) -> Result<()> {
        self.engine.release_left(&ticket.claim()).await
    }

    /// Returns whether a claim that [`look`](Self::look) has shown was made by this client.
    pub fn is_own(&self, claim: ClaimId) -> bool {
        claim.client() == self.engine.client()
    }

    /// Returns the URL schemes that this build knows.
    pub fn schemes() -> &'static [&'static str] {
        registry::schemes()
    }

    /// Returns the stores of this build: their names, schemes and URL options.
    ///
    /// ```
    /// let memory = tidelock::Locks::stores().iter().find(|store| store.name == "memory");
    /// assert!(memory.is_some_and(|store| !store.needs_server && store.options.is_empty()));
    /// ```
    pub fn stores() -> &'static [&'static Store] {
        registry::stores()
    }

    /// Returns what the store can do.
    pub fn abilities(&self) -> &Abilities {
        self.engine.backend().abilities()
    }

    /// Returns the problems found in the store, one sentence each.
    ///
    /// A problem makes locks there less safe than they could be.
    pub fn concerns(&self) -> Vec<String> {
        self.engine.backend().concerns()
    }

    /// Returns useful facts about the store, one sentence each.
    ///
    /// Examples are its version and what that means for locks.
    pub fn notes(&self) -> Vec<String> {
        self.engine.backend().notes()
    }
} }

impl Locks {
    /// Creates a client for a backend of your own. Must be called within a tokio runtime.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tidelock::{
    ///     Locks,
    ///     backend::ClientId,
    ///     backends::memory::{MemoryBackend, MemoryStore},
    /// };
    ///
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let store = MemoryStore::new();
    /// let locks = Locks::with_backend(Arc::new(MemoryBackend::connect(store, ClientId::random())));
    /// locks.mutex("orders/42").lock().await?.release().await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_backend(backend: Arc<dyn Backend>) -> Self {
        let engine = Engine::start(backend, Clock::machine(), Flaws::default(), Groups::default());
        Self::of(engine, Options::new(owner::default_label()))
    }

    /// Creates a client for tests, with leases on another clock than the machine's and with optional defects.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn on_clock(backend: Arc<dyn Backend>, clock: Clock, defects: Defects) -> Self {
        let engine = Engine::start(backend, clock, defects.into(), Groups::default());
        Self::of(engine, Options::new(owner::default_label()))
    }

    pub(crate) fn of(engine: Arc<Engine>, defaults: Options) -> Self {
        Self { engine: Client::new(engine), defaults: Arc::new(defaults), sights: Arc::default() }
    }

    /// Shuts down the client and returns how many locks were still held after `grace`.
    ///
    /// No new lock is acquired, waiters get an error, and calls in progress finish. Guards have up to `grace`
    /// to be released. After that, any lock that is still held is marked lost and released, and is counted.
    ///
    /// # Cancel safety
    /// If the future is dropped, the client stays closed. Locks that are still held are released when their
    /// guards are dropped.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::time::Duration;
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// drop(guard);
    /// assert_eq!(locks.shutdown(Duration::from_secs(5)).await, 0);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.engine.shutdown(grace).await
    }

    fn name(&self, text: &str) -> Result<Name> {
        checked_name(text, self.abilities())
    }

    fn handle(&self, name: &str) -> Handle {
        Handle::new(&self.engine, name, (*self.defaults).clone())
    }
}
