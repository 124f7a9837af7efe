//! Locks that a test takes away from their holders.

use crate::{Locks, Result};

/// Takes a lock away from all its holders and returns how many there were.
///
/// Each holder learns that it lost the lock, with this reason, as if an operator had evicted it. The signal
/// may reach the holder after this returns: await [`Guard::lost`](crate::Guard::lost). Works on every store.
///
/// # Errors
/// As [`Locks::look`] and [`Locks::evict`].
///
/// # Cancel safety
/// If the future is dropped, some holders may have lost the lock.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Locks, testing};
///
/// let locks = Locks::connect("memory:").await?;
/// let guard = locks.mutex("orders/42").lock().await?;
/// assert_eq!(testing::take_away(&locks, "orders/42", "the test says so").await?, 1);
/// guard.lost().await;
/// assert!(!guard.is_held());
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
pub async fn take_away(locks: &Locks, name: &str, reason: &str) -> Result<usize> {
    let mut taken = 0;
    for holder in locks.look([name]).await?.iter().flat_map(|lock| &lock.holders) {
        taken += usize::from(locks.evict(name, holder.id, reason).await?);
    }
    Ok(taken)
}
