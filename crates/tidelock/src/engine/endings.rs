//! What became of this client's claims, for those who watch locks: only their own client knows it of all claims.
//!
//! Nothing that is safe depends on it, and while nobody follows it costs the look at one value per claim.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio::sync::broadcast::{self, error::RecvError};

use super::{Engine, leased::LeasedClaim};
use crate::{
    backend::{Claim, ClaimId},
    error::LossReason,
    model::name::Name,
};

/// How many endings a follower may be behind. Of one that is slower, the oldest are forgotten.
const MOST: usize = 4_096;

/// A claim of this client has ended, or is about to: from [`Endings`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The name of the lock.
    pub name: Name,
    /// The claim, as [`look`](crate::Locks::look) shows it.
    pub claim: ClaimId,
    /// How it ended.
    pub how: HowEnded,
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HowEnded {
    /// It was released, or it waited and is no longer needed. Told when it is sent to the store.
    Released,
    /// It was lost, for this reason. Told after [`Released`](Self::Released) if the store did not know the claim any
    /// more.
    Lost(LossReason),
    /// It was evicted, for this reason.
    Evicted(Arc<str>),
}

/// The endings of this client's claims, from [`Locks::endings`](crate::Locks::endings).
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Endings, HowEnded, Locks};
///
/// async fn report(mut endings: Endings) {
///     while let Some(ended) = endings.next().await {
///         if ended.how != HowEnded::Released {
///             eprintln!("{}: {:?}", ended.name, ended.how);
///         }
///     }
/// }
///
/// let locks = Locks::connect("memory:").await?;
/// tokio::spawn(report(locks.endings()));
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
pub struct Endings(broadcast::Receiver<Ended>);

impl Endings {
    /// Waits for the next claim that ends; `None` if the client is gone.
    ///
    /// If you read slowly, the oldest endings are left out.
    ///
    /// # Cancel safety
    /// Safe to cancel: an ending that was not returned is returned by the next call.
    pub async fn next(&mut self) -> Option<Ended> {
        loop {
            match self.0.recv().await {
                Ok(ended) => return Some(ended),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl fmt::Debug for Endings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endings")
    }
}

/// Who is told. Made for the first who follows.
#[derive(Debug, Default)]
pub(super) struct Told(OnceLock<broadcast::Sender<Ended>>);

impl Told {
    fn tell(&self, claim: &Claim, how: impl FnOnce() -> HowEnded) {
        if let Some(told) = self.0.get().filter(|told| told.receiver_count() > 0) {
            // Fails only if the last follower has gone at this moment.
            let _ = told.send(Ended { name: claim.name.clone(), claim: claim.id, how: how() });
        }
    }
}

impl Engine {
    /// Tells from now on what becomes of this client's claims.
    pub(crate) fn endings(&self) -> Endings {
        Endings(self.endings.0.get_or_init(|| broadcast::Sender::new(MOST)).subscribe())
    }

    /// A claim is about to be given back.
    pub(super) fn tell_release(&self, claim: &Claim) {
        self.endings.tell(claim, || HowEnded::Released);
    }

    /// A claim is lost.
    pub(super) fn tell_loss(&self, leased: &LeasedClaim, reason: LossReason) {
        self.endings.tell(&leased.claim, || {
            match leased.evicted_for().filter(|_| reason == LossReason::Evicted) {
                Some(why) => HowEnded::Evicted(why),
                None => HowEnded::Lost(reason),
            }
        });
    }
}
