//! One holder at a time.

use std::time::Duration;

use crate::{
    backend::Share, engine::Holding, error::Result, guard::Guard, handle::Handle, options::option_methods,
};

/// A lock with one holder at a time.
///
/// A mutex and the write half of an [`RwLock`](crate::RwLock) of the same name are the same lock,
/// and a holder of either keeps out readers and permits of that name too.
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(crate) handle: Handle,
}

impl Mutex {
    option_methods!(handle);

    /// Waits in line until it is held, for as long as [`wait`](Self::wait) allows.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut) after the time set by [`wait`](Self::wait);
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) by
    /// the store; [`InvalidName`](crate::ErrorKind::InvalidName) or
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for what was set.
    ///
    /// # Cancel safety
    /// Dropped at any await, it leaves its place, and a grant on its way is given back.
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

    /// Takes it if it is free: `None` if it is not.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never timed out.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.handle.try_lock(Share::Exclusive).await
    }

    /// Waits at most so long: `None` if it was not enough.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), but never timed out.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(Share::Exclusive, limit).await
    }

    /// Locks, runs the work, stops it when the lock is lost, and gives the lock back.
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
    /// Dropping the future drops the work and gives the lock back.
    pub async fn run<T, F, W>(&self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.lock().await?.run(work).await
    }
}
