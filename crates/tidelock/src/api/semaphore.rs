//! A number of permits.

use std::{fmt, time::Duration};

use crate::{
    api::facade::both,
    api::guard::Guard,
    api::handle::Handle,
    api::options::option_methods,
    backend::Share,
    engine::Holding,
    error::{Error, Result},
};

/// A lock with a number of permits.
///
/// All claims in the queue of a name must agree on the number of permits. A different number is an error,
/// never a silent mix.
#[derive(Clone)]
pub struct Semaphore {
    pub(crate) handle: Handle,
    pub(crate) permits: u32,
}

impl Semaphore {
    option_methods!(handle);

    fn share(&self, n: u32) -> Share {
        Share::Permits { n, of: self.permits }
    }
}

both! { impl Semaphore {
    /// Acquires `n` permits, waiting in the queue: smaller claims do not overtake a larger one.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`CapacityMismatch`](crate::ErrorKind::CapacityMismatch) while
    /// the name is used with another number; [`InvalidOption`](crate::ErrorKind::InvalidOption) for 0
    /// permits, or for more than the semaphore has.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let workers = locks.semaphore("workers", 5);
    /// let three = workers.acquire(3).await?;
    /// assert!(workers.try_acquire(3).await?.is_none());
    /// let two = workers.try_acquire_for(2, Duration::from_secs(5)).await?;
    /// assert!(two.is_some());
    /// # drop(three);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire(&self, n: u32) -> Result<Guard> {
        self.handle.lock(self.share(n)).await
    }

    /// Acquires `n` permits if they are free; otherwise returns `None`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        self.handle.try_lock(self.share(n)).await
    }

    /// Waits up to `limit` for `n` permits; returns `None` if they were not acquired in time.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_for(&self, n: u32, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(self.share(n), limit).await
    }
} }

impl Semaphore {
    /// Acquires `n` permits, runs the work, stops it when the permits are lost, and releases them.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let workers = locks.semaphore("workers", 5);
    /// let done = workers.run(2, |_held| async { "two of five" }).await?;
    /// assert_eq!(done, "two of five");
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`Lost`](crate::ErrorKind::Lost) when the work was stopped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the permits.
    pub async fn run<T, F, W>(&self, n: u32, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.acquire(n).await?.run(work).await
    }

    /// Acquires `n` permits, runs work that can fail, stops it when the permits are lost, and releases them.
    ///
    /// `try` refers to the work: the lock is waited for as in [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire) and [`Guard::try_run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the permits.
    pub async fn try_run<T, E, F, W>(&self, n: u32, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Holding) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.acquire(n).await?.try_run(work).await
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.show("Semaphore", f).field("permits", &self.permits).finish()
    }
}
