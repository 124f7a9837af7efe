//! One holder at a time.

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

/// A lock with one holder at a time.
///
/// A mutex and the write half of an [`RwLock`](crate::RwLock) with the same name are the same lock. A holder
/// of either also excludes readers and permits of that name.
#[derive(Clone)]
pub struct Mutex {
    pub(crate) handle: Handle,
}

impl Mutex {
    option_methods!(handle);
}

both! { impl Mutex {
    /// Acquires the lock, waiting in the queue for up to [`wait`](Self::wait).
    ///
    /// It also waits for a store that is not reachable or does not answer; without a limit, until the store
    /// answers. Each failure is a `tracing` event with the reason. With [`fail_fast`](Self::fail_fast), such
    /// a failure is an error instead.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut) after the time set by [`wait`](Self::wait);
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store was failing when that time ended, or with
    /// [`fail_fast`](Self::fail_fast); [`Denied`](crate::ErrorKind::Denied) from the store, at once;
    /// [`InvalidName`](crate::ErrorKind::InvalidName) or [`InvalidOption`](crate::ErrorKind::InvalidOption)
    /// for an invalid name or option.
    ///
    /// # Cancel safety
    /// If the future is dropped at any await, it leaves the queue, and a grant on its way is released.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// println!("token {}", guard.token());
    /// guard.release().await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn lock(&self) -> Result<Guard> {
        self.handle.lock(Share::Exclusive).await
    }

    /// Acquires the lock if it is free; otherwise returns `None`.
    ///
    /// # Errors
    /// As [`lock`](Self::lock) with [`fail_fast`](Self::fail_fast), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::time::Duration;
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let job = locks.mutex("jobs/7");
    /// let guard = job.try_lock().await?.expect("the lock is free");
    /// assert!(job.try_lock().await?.is_none());
    /// assert!(job.try_lock_for(Duration::from_millis(20)).await?.is_none());
    /// # drop(guard);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.handle.try_lock(Share::Exclusive).await
    }

    /// Waits up to `limit`; returns `None` if the lock was not acquired in time.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never `TimedOut`.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(Share::Exclusive, limit).await
    }
} }

impl Mutex {
    /// Acquires the lock, runs the work, stops it when the lock is lost, and releases the lock.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let sold = locks.mutex("stock").run(|held| async move { held.token().get() > 0 }).await?;
    /// assert!(sold);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) when the work was stopped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    pub async fn run<T, F, W>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }

    /// Acquires the lock, runs work that can fail, stops it when the lock is lost, and releases the lock.
    ///
    /// `try` refers to the work: the lock is waited for as in [`lock`](Self::lock).
    ///
    /// The work's error type takes losses too, so one `?` is enough:
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// type Failed = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let amount = locks
    ///     .mutex("orders/42")
    ///     .try_run(|_held| async { Ok::<u32, Failed>("17".parse()?) })
    ///     .await?;
    /// assert_eq!(amount, 17);
    /// # Ok::<(), Failed>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock) and [`Guard::try_run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lock.
    pub async fn try_run<T, E, F, W>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: FnOnce(Holding) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.lock().await?.try_run(work).await
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.show("Mutex", f).finish()
    }
}
