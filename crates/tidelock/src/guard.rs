//! Guards: what a holder has in its hands.

use std::ops::Deref;

use tracing::Instrument;

use crate::{
    engine::{Held, Holding},
    error::Result,
    events,
    ticket::Ticket,
};

/// A lock that is held. Dropping it gives it back.
///
/// It is owned, `Send` and `'static`: move it into a task, keep it in a struct. Dropping never
/// blocks and needs no runtime; [`release`](Self::release) waits and says how it went. What can be
/// known about the lock (`token`, `is_held`, `lost`, …) are methods of [`Holding`].
#[must_use = "a guard that is dropped at once protects nothing"]
#[derive(Debug)]
pub struct Guard(Held);

impl Deref for Guard {
    type Target = Holding;

    fn deref(&self) -> &Holding {
        self.0.holding()
    }
}

impl Guard {
    pub(crate) fn new(held: Held) -> Self {
        Self(held)
    }

    /// What the work may know about its lock, without being able to give it back.
    pub fn holding(&self) -> Holding {
        Holding::clone(self)
    }

    /// Gives the lock back and waits until it is.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when it was lost before: others may have held it while the
    /// work went on. [`Unavailable`](crate::ErrorKind::Unavailable) when the store does not
    /// answer: it is tried further, and the lease runs out at the latest after the ttl.
    ///
    /// # Cancel safety
    /// The lock is given back even if the future is dropped.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    /// Leaves the lock held and gives it to whoever has the ticket, in this process or another, now
    /// or after this one has ended. From here on nobody renews it but
    /// [`Locks::renew`](crate::Locks::renew): a lease is counted from its last renewal.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when it was not asked for with
    /// `detached(true)`; then it is given back. [`Lost`](crate::ErrorKind::Lost) when it was lost before.
    pub fn leave_behind(self) -> Result<Ticket> {
        self.0.leave_behind()
    }

    /// Runs work under the lock, stops it when the lock is lost, and gives the lock back.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost: the work was dropped at its next await, or had finished too late.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lock back.
    pub async fn run<T, F, W>(self, work: F) -> Result<T>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        let done = tokio::select! {
            biased;
            why = self.lost() => return Err(why),
            done = work(self.holding()).instrument(events::running(self.name(), self.token())) => done,
        };
        match self.release().await {
            Err(error) if error.is_lost() => Err(error),
            // The work was done under the lock; a store that does not answer frees it by its lease.
            _ => Ok(done),
        }
    }
}
