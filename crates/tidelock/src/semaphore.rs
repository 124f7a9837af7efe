//! A number of permits.

use std::time::Duration;

use crate::{backend::Share, error::Result, guard::Guard, handle::Handle, options::option_methods};

/// A lock with a number of permits.
///
/// All that use a name agree on the number while any of them is in line: another number is an
/// error, never a silent mix.
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(crate) handle: Handle,
    pub(crate) permits: u32,
}

impl Semaphore {
    option_methods!(handle);

    fn share(&self, n: u32) -> Share {
        Share::Permits { n, of: self.permits }
    }

    /// Waits for `n` permits, in line: a large claim is not passed by small ones.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock);
    /// [`CapacityMismatch`](crate::ErrorKind::CapacityMismatch) while the name is used with another
    /// number; [`InvalidOption`](crate::ErrorKind::InvalidOption) for 0 permits or more than there are.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let workers = locks.semaphore("workers", 5);
    /// let three = workers.acquire(3).await?;
    /// assert!(workers.try_acquire(3).await?.is_none());
    /// let two = workers.acquire(2).await?;
    /// # drop((two, three));
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire(&self, n: u32) -> Result<Guard> {
        self.handle.lock(self.share(n)).await
    }

    /// Takes `n` permits if they are free: `None` if not.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never timed out.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        self.handle.try_lock(self.share(n)).await
    }

    /// Waits at most so long for `n` permits: `None` if it was not enough.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), but never timed out.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_for(&self, n: u32, limit: Duration) -> Result<Option<Guard>> {
        self.handle.try_lock_for(self.share(n), limit).await
    }
}
