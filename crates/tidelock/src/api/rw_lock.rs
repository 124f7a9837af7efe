//! Many readers or one writer.

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

/// A lock with any number of readers or one writer.
///
/// Waiters queue in order: a reader that arrives after a writer waits for it, so writers do not starve.
#[derive(Clone)]
pub struct RwLock {
    pub(crate) handle: Handle,
}

impl RwLock {
    option_methods!(handle);
}

both! { impl RwLock {
    /// Acquires a shared (read) lock, waiting in the queue until it is granted.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock), and
    /// [`CapacityMismatch`](crate::ErrorKind::CapacityMismatch) while the name is used as a semaphore.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let prices = locks.rw_lock("prices");
    /// let (one, other) = (prices.read().await?, prices.read().await?);
    /// assert!(prices.try_read().await?.is_some());
    /// assert!(prices.try_write().await?.is_none());
    /// # drop((one, other));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn read(&self) -> Result<Guard> {
        self.handle.lock(Share::Shared).await
    }

    /// Acquires a read lock if it can be granted at once; otherwise returns `None`.
    ///
    /// # Errors
    /// As [`read`](Self::read), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.handle.try_lock(Share::Shared).await
    }

    /// Waits up to `limit` for a read lock; returns `None` if it was not acquired in time.
    ///
    /// # Errors
    /// As [`read`](Self::read), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(Share::Shared, limit).await
    }

    /// Acquires an exclusive (write) lock, waiting in the queue until it is granted.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::time::Duration;
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let prices = locks.rw_lock("prices");
    /// let writer = prices.write().await?;
    /// assert!(prices.try_read_for(Duration::from_millis(20)).await?.is_none());
    /// writer.release().await?;
    /// assert!(prices.try_write_for(Duration::from_secs(5)).await?.is_some());
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn write(&self) -> Result<Guard> {
        self.handle.lock(Share::Exclusive).await
    }

    /// Acquires the write lock if it can be granted at once; otherwise returns `None`.
    ///
    /// # Errors
    /// As [`write`](Self::write), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        self.handle.try_lock(Share::Exclusive).await
    }

    /// Waits up to `limit` for the write lock; returns `None` if it was not acquired in time.
    ///
    /// # Errors
    /// As [`write`](Self::write), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(Share::Exclusive, limit).await
    }
} }

impl RwLock {
    /// Acquires a read lock, runs the work, stops it when the lock is lost, and releases the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let limit = locks.rw_lock("prices").run_read(|_held| async { 100 }).await?;
    /// assert_eq!(limit, 100);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Lost`](crate::ErrorKind::Lost) when the work was stopped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    pub async fn run_read<T, F, W>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.read().await?.run(work).await
    }

    /// Acquires a read lock, runs work that can fail, stops it when the lock is lost, and releases the lock.
    ///
    /// `try` refers to the work: the lock is waited for as in [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read) and [`Guard::try_run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    pub async fn try_run_read<T, E, F, W>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Holding) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.read().await?.try_run(work).await
    }

    /// Acquires the write lock, runs the work, stops it when the lock is lost, and releases the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let prices = locks.rw_lock("prices");
    /// let token = prices.run_write(|held| async move { held.token() }).await?;
    /// println!("written with token {token}");
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`Lost`](crate::ErrorKind::Lost) when the work was stopped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    pub async fn run_write<T, F, W>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.write().await?.run(work).await
    }

    /// Acquires the write lock, runs work that can fail, stops it when the lock is lost, and releases the lock.
    ///
    /// `try` refers to the work: the lock is waited for as in [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`Guard::try_run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// type Failed = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let prices = locks.rw_lock("prices");
    /// let old = prices.try_run_read(|_held| async { Ok::<u32, Failed>("17".parse()?) }).await?;
    /// prices.try_run_write(|_held| async move { Ok::<_, Failed>(println!("{old} becomes 18")) }).await?;
    /// # Ok::<(), Failed>(()) }).unwrap();
    /// ```
    pub async fn try_run_write<T, E, F, W>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Holding) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.write().await?.try_run(work).await
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.show("RwLock", f).finish()
    }
}
