//! Guards: a lock that is held, as a value.

use std::{fmt, time::Duration};

use tracing::Instrument;

use crate::{
    api::facade::both,
    api::ticket::Ticket,
    engine::{Held, Holding, LockState},
    error::{Error, Result},
    events,
    model::name::Name,
    model::token::Token,
};

/// A lock that is held. Dropping the guard releases it.
///
/// A guard is owned, `Send` and `'static`: you can move it into a task or keep it in a struct. Dropping it
/// sends the release and never blocks an async task; [`release`](Self::release) waits and returns the outcome.
///
/// There is one guard for each acquisition, so a guard cannot be cloned. Work that only needs to know about
/// the lock gets a [`Holding`] from [`holding`](Self::holding), which can be cloned and holds nothing:
///
/// ```compile_fail,E0599
/// # async fn f() -> tidelock::Result<()> {
/// let locks = tidelock::Locks::connect("memory:").await?;
/// let guard = locks.mutex("orders/42").lock().await?;
/// let second = guard.clone(); // does not compile
/// # Ok(()) }
/// ```
///
/// # At the end of a program
/// Before the runtime ends, call [`release`](Self::release) or [`Locks::shutdown`](crate::Locks::shutdown). If you
/// only drop a guard there:
///
/// | the runtime | what happens |
/// |---|---|
/// | multi-thread: `main` returns or panics | free at once, if the last `Locks` and handle are dropped too (see [`Locks`](crate::Locks)) |
/// | current-thread, or ended before the guard was dropped | free when the lease ends, or earlier |
/// | any, and the program calls `std::process::exit` | free when the lease ends, or earlier |
/// | none: [`blocking::Guard`](crate::blocking::Guard) | free at once: the drop waits up to 2 s for the release |
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct Guard(Held);

impl Guard {
    pub(crate) fn new(held: Held) -> Self {
        Self(held)
    }

    /// Keeps others out for at least this long from the grant on, even if the guard is gone earlier.
    pub(crate) fn kept_for(self, time: Option<Duration>) -> Self {
        Self(self.0.kept_for(time))
    }
}

both! { impl Guard {
    /// Returns a view of the lock for the work under it, which cannot release the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// let holding = guard.holding();
    /// guard.release().await?;
    /// assert!(!holding.is_held());
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn holding(&self) -> Holding {
        self.0.holding().clone()
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &Name {
        self.0.holding().name()
    }

    /// Returns the fencing token, which is larger than that of every earlier holder.
    pub fn token(&self) -> Token {
        self.0.holding().token()
    }

    /// Returns the number that other programs compare as their fencing token, if the store grows one for them:
    /// on Redis with `mode=redisson&fenced=1`, the token of Redisson's `RFencedLock`.
    ///
    /// It is comparable with the tokens of those programs, and not with [`token`](Self::token). An owner that
    /// re-enters a lock keeps its number.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// assert_eq!(guard.foreign_token(), None); // no other programs here
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn foreign_token(&self) -> Option<u64> {
        self.0.holding().foreign_token()
    }

    /// Returns whether the lock is held now. Reads the clock on each call.
    pub fn is_held(&self) -> bool {
        self.0.holding().is_held()
    }

    /// Returns the state of the lock, including how certain it is.
    pub fn state(&self) -> LockState {
        self.0.holding().state()
    }

    /// Returns how long the lock stays valid if no renewal succeeds; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.0.holding().valid_for()
    }

    /// Releases the lock and waits until the release is complete.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost before, or when the store no longer knew it:
    /// others may have held it while the work continued. [`Unavailable`](crate::ErrorKind::Unavailable) when
    /// the store does not answer: the release is retried in the background, and the lease expires after the
    /// ttl at the latest.
    ///
    /// # Cancel safety
    /// The lock is released even if the future is dropped.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    /// Leaves the lock held and returns a ticket for it.
    ///
    /// Any process that has the ticket can use it, now or after this process has ended. From here on, only
    /// [`Locks::renew`](crate::Locks::renew) renews the lock. The lease is counted from the last renewal.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when the lock was not acquired with
    /// `detached(true)`; it is then released. [`Lost`](crate::ErrorKind::Lost) when it was lost before.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("deploy").detached(true).lock().await?;
    /// let ticket = guard.leave_behind()?;
    /// assert!(locks.mutex("deploy").try_lock().await?.is_none());
    /// locks.release(&ticket).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn leave_behind(self) -> Result<Ticket> {
        self.0.leave_behind()
    }
} }

impl Guard {
    /// Resolves with the reason when the lock is lost; see [`Holding::lost`].
    ///
    /// # Cancel safety
    /// Safe to cancel: you can call it again.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        self.0.holding().lost()
    }

    /// Runs work under the lock, stops it when the lock is lost, and releases the lock.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost: the work was dropped at its next await, or
    /// finished too late.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("report").lock().await?;
    /// let pages = guard.run(|held| async move { if held.is_held() { 12 } else { 0 } }).await?;
    /// assert_eq!(pages, 12);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn run<T, F, W>(self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.try_run(async |held| Ok(work(held).await)).await
    }

    /// Runs work that can fail, stops it when the lock is lost, and releases the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// #[derive(Debug)]
    /// enum Failed {
    ///     Lock(tidelock::Error),
    ///     OutOfStock,
    /// }
    ///
    /// impl From<tidelock::Error> for Failed {
    ///     fn from(error: tidelock::Error) -> Self {
    ///         Self::Lock(error)
    ///     }
    /// }
    ///
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("stock").lock().await?;
    /// let sold: Result<u32, Failed> = guard.try_run(|_held| async { Err(Failed::OutOfStock) }).await;
    /// assert!(matches!(sold, Err(Failed::OutOfStock)));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost), converted to `E`, when the lock was lost while the work ran or when
    /// the work succeeded and the release found the lock lost.
    ///
    /// The work's own error, after the lock was released. It is returned even if the release finds the lock
    /// lost: the work has failed either way, and a `tracing` event reports the loss.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    pub async fn try_run<T, E, F, W>(self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Holding) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let done = tokio::select! {
            biased;
            why = self.lost() => return Err(why.into()),
            done = work(self.holding()).instrument(events::running(self.name(), self.token())) => done,
        };
        outcome(done, self.release().await)
    }
}

/// Combines the outcome of work under locks with that of their release.
pub(crate) fn outcome<T, E: From<Error>>(done: Result<T, E>, released: Result<()>) -> Result<T, E> {
    match released {
        Err(error) if error.is_lost() => done.and(Err(error.into())),
        // The work was done under the lock; a store that does not answer frees it by its lease.
        _ => done,
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.holding().show("Guard", f)
    }
}
