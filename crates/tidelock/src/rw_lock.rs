//! Many readers or one writer.

use std::time::Duration;

use crate::{backend::Share, error::Result, guard::Guard, handle::Handle, options::option_methods};

/// A lock with any number of readers or one writer.
///
/// In line: a reader that comes after a writer waits for it, so no writer starves.
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(crate) handle: Handle,
}

impl RwLock {
    option_methods!(handle);

    /// Waits until it may read.
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
    /// assert!(prices.try_write().await?.is_none());
    /// # drop((one, other));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn read(&self) -> Result<Guard> {
        self.handle.lock(Share::Shared).await
    }

    /// Reads if it may at once: `None` if not.
    ///
    /// # Errors
    /// As [`read`](Self::read), but never timed out.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.handle.try_lock(Share::Shared).await
    }

    /// Waits at most so long to read: `None` if it was not enough.
    ///
    /// # Errors
    /// As [`read`](Self::read), but never timed out.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(Share::Shared, limit).await
    }

    /// Waits until it may write.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write(&self) -> Result<Guard> {
        self.handle.lock(Share::Exclusive).await
    }

    /// Writes if it may at once: `None` if not.
    ///
    /// # Errors
    /// As [`write`](Self::write), but never timed out.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        self.handle.try_lock(Share::Exclusive).await
    }

    /// Waits at most so long to write: `None` if it was not enough.
    ///
    /// # Errors
    /// As [`write`](Self::write), but never timed out.
    ///
    /// # Cancel safety
    /// As [`write`](Self::write).
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(Share::Exclusive, limit).await
    }
}
