//! The client: a store, and the locks on it.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::{Abilities, Backend, ClaimId, ClientId, LockView, Scope},
    clock::Clock,
    connect,
    defect::Defects,
    engine::Engine,
    error::Result,
    handle::Handle,
    multi::{Guards, Multi},
    mutex::Mutex,
    name::Name,
    owner,
    rw_lock::RwLock,
    semaphore::Semaphore,
    ticket::Ticket,
};

/// A connection to a store, and the way to its locks.
///
/// Cheap to clone; all clones share one connection and one keeper, which renews every lock that
/// is held. It lives until the last clone and the last guard are gone.
#[derive(Clone, Debug)]
pub struct Locks {
    engine: Arc<Engine>,
    label: Arc<str>,
}

impl Locks {
    /// Connects to the store that a URL names. Must be called within a tokio runtime.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `file:`, `file:/path`, a path | this machine: files in the user's directory or another (feature `file`, on by default, Unix) |
    /// | `memory:` | this process, a store of its own for each connection |
    /// | `memory:NAME` | this process, shared by all connections with this name |
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl) when no store of this build has that scheme.
    ///
    /// # Cancel safety
    /// A connection that is not finished is dropped.
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
        let client = ClientId::random();
        let backend = connect::backend(url, client).await?;
        Ok(Self::with_backend(backend, client))
    }

    /// Locks on a store of your own. Must be called within a tokio runtime.
    ///
    /// `client` is the id that the backend listens for.
    pub fn with_backend(backend: Arc<dyn Backend>, client: ClientId) -> Self {
        Self::on_clock(backend, client, Clock::machine(), Defects::NONE)
    }

    /// Locks whose leases run on another clock than the machine's: for tests.
    #[doc(hidden)]
    pub fn on_clock(backend: Arc<dyn Backend>, client: ClientId, clock: Clock, defects: Defects) -> Self {
        Self { engine: Engine::start(backend, client, clock, defects), label: owner::default_label() }
    }

    /// What others see of the locks held through this client. Default: program and process id.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when the text is empty, longer than 128
    /// bytes or has a control character.
    pub fn label(mut self, label: &str) -> Result<Self> {
        self.label = owner::label(label)?;
        Ok(self)
    }

    /// A lock with one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex { handle: self.handle(name.as_ref()) }
    }

    /// A lock with many readers or one writer.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        let mut handle = self.handle(name.as_ref());
        handle.options.writes = true;
        RwLock { handle }
    }

    /// A lock with a number of permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore { handle: self.handle(name.as_ref()), permits }
    }

    /// Several mutexes to be held together.
    pub fn multi<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Multi {
        let names = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        Multi::new(&self.engine, names, Arc::clone(&self.label))
    }

    /// Waits until several mutexes are held together, without deadlock.
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
    pub async fn lock_all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Guards> {
        let multi = self.multi(names);
        multi.lock().await
    }

    /// Who holds and who waits, for people: these names, or every name in use if there are none.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) by
    /// the store; [`InvalidName`](crate::ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?.label("worker-7")?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// let seen = locks.look(&["orders/42"]).await?;
    /// assert_eq!(&*seen[0].holders[0].label, "worker-7");
    /// # drop(guard);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn look(&self, names: &[&str]) -> Result<Vec<LockView>> {
        let scope = if names.is_empty() {
            Scope::All
        } else {
            Scope::Names(names.iter().map(|name| Name::new(name)).collect::<Result<_>>()?)
        };
        self.engine.look(&scope).await
    }

    /// Puts a claim, seen by [`look`](Self::look), out of line. Its holder learns that the lock is
    /// lost and, where the store can tell it, for which reason; the next holder's token is larger.
    ///
    /// # Errors
    /// As [`look`](Self::look), and [`InvalidOption`](crate::ErrorKind::InvalidOption) when the
    /// reason is longer than 128 bytes or has a control character.
    ///
    /// # Cancel safety
    /// It may or may not have happened.
    pub async fn evict(&self, name: &str, claim: ClaimId, reason: &str) -> Result<()> {
        self.engine.evict(&Name::new(name)?, claim, owner::reason(reason)?).await
    }

    /// Renews a lock that was [left behind](crate::Guard::leave_behind): its ttl begins again.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when it lapsed, was given back or taken away before;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) by the store.
    ///
    /// # Cancel safety
    /// It may or may not have happened.
    pub async fn renew(&self, ticket: &Ticket) -> Result<()> {
        self.engine.renew_left(&ticket.claim()).await
    }

    /// Gives back a lock that was [left behind](crate::Guard::leave_behind).
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    /// It may or may not have happened.
    pub async fn release(&self, ticket: &Ticket) -> Result<()> {
        self.engine.release_left(&ticket.claim()).await
    }

    /// The upper half of the ids of this client's claims, as [`look`](Self::look) shows them.
    pub fn client_id(&self) -> ClientId {
        self.engine.client()
    }

    /// The URL schemes that this build knows, each a store.
    pub fn schemes() -> &'static [&'static str] {
        connect::SCHEMES
    }

    /// What the store can do.
    pub fn abilities(&self) -> &Abilities {
        self.engine.backend().abilities()
    }

    /// What should be mended about the store, one sentence each: what makes locks there less safe
    /// than they could be.
    pub fn concerns(&self) -> Vec<String> {
        self.engine.backend().concerns()
    }

    /// Ends the client: nothing new is acquired, whoever waits gets an error, and calls under way
    /// come to their end. Guards have the time to be released; what is still held after it is
    /// lost and given back. Says how many locks were cut off so.
    ///
    /// # Cancel safety
    /// The client stays closed; what was not yet given back is given back when its guards are dropped.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        self.engine.shutdown(grace).await
    }

    fn handle(&self, name: &str) -> Handle {
        Handle::new(&self.engine, name, Arc::clone(&self.label))
    }
}
