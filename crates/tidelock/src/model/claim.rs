//! Claims: what stands in a line.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    model::name::Name,
    model::owner::{Owner, is_of_done_slot},
};

/// One connection of one process to a store, to which pushes for its claims are sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// Creates a random id.
    pub fn random() -> Self {
        Self(random_u64())
    }

    /// Restores an id from its number.
    pub fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number to send.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The identity of one claim: 128 bits, never used twice.
///
/// The upper half is the [`ClientId`], so that a store knows from the id alone which client to notify.
// Two halves: one number of 128 bits would have every struct with an id padded to a multiple of 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    client: ClientId,
    serial: u64,
}

impl ClaimId {
    /// Creates the id of the client's claim with this serial number.
    pub fn new(client: ClientId, serial: u64) -> Self {
        Self { client, serial }
    }

    /// Restores an id from its number.
    pub fn from_u128(raw: u128) -> Self {
        Self { client: ClientId((raw >> 64) as u64), serial: raw as u64 }
    }

    /// Returns the number to send.
    pub fn get(self) -> u128 {
        u128::from(self.client.0) << 64 | u128::from(self.serial)
    }

    /// Returns the client that made this claim and is notified about it.
    pub fn client(self) -> ClientId {
        self.client
    }

    /// Returns the lower half, which grows in the order in which the client made its claims.
    pub fn serial(self) -> u64 {
        self.serial
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.get())
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How much of a lock a claim asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Share {
    /// All of it, regardless of its capacity: a mutex or a write lock.
    Exclusive,
    /// One of an unlimited number: a read lock.
    Shared,
    /// `n` of `of` permits: a semaphore.
    Permits {
        /// The number that this claim takes.
        n: u32,
        /// The total number.
        of: u32,
    },
}

/// The capacity of a lock, as sharing claims see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Capacity {
    /// Any number of readers.
    Unbounded,
    /// A number of permits.
    Of(u32),
}

impl Share {
    /// Returns the capacity that a sharing claim requires; `None` for an exclusive claim, which fits any.
    pub fn capacity(self) -> Option<Capacity> {
        match self {
            Self::Exclusive => None,
            Self::Shared => Some(Capacity::Unbounded),
            Self::Permits { of, .. } => Some(Capacity::Of(of)),
        }
    }

    /// Returns how many permits a sharing claim takes.
    pub fn weight(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => 1,
            Self::Permits { n, .. } => n,
        }
    }

    /// Returns whether holding `self` includes what `other` asks for.
    pub fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (Self::Shared, Self::Shared) => true,
            (Self::Permits { n: held, of: a }, Self::Permits { n: asked, of: b }) => a == b && asked <= held,
            _ => false,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { n, of } => write!(f, "{n} of {of}"),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbounded => f.write_str("readers"),
            Self::Of(n) => write!(f, "{n} permits"),
        }
    }
}

/// One claim: it is in the line of its name and asks for a share of it.
///
/// ```
/// use std::time::Duration;
/// use tidelock::{Name, backend::{Claim, ClaimId, ClientId, Share}};
///
/// let id = ClaimId::new(ClientId::random(), 1);
/// let claim = Claim::new(id, Name::new("orders/42")?, Share::Exclusive, Duration::from_secs(30));
/// assert!(claim.auto_renew && claim.owner.is_none());
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// Its identity. A verb that is repeated with the same id takes effect once.
    pub id: ClaimId,
    /// The name of its line.
    pub name: Name,
    /// How much it asks for.
    pub share: Share,
    /// The owner for which it re-enters, if any.
    pub owner: Option<Owner>,
    /// How long it lives without being renewed.
    pub ttl: Duration,
    /// The label shown to people.
    pub label: Arc<str>,
    /// Whether a held claim outlives its client: then only its lease ends it. A waiting claim never does.
    pub detached: bool,
    /// Whether an exclusive claim was made as a write lock. The line ignores it; stores that share it with
    /// other programs name it as those programs do.
    pub writes: bool,
    /// Whether a held claim is renewed until it is released. If not, its client asks for no more than one
    /// ttl.
    pub auto_renew: bool,
}

impl Claim {
    /// Creates a claim without an owner, which is renewed and ends with its client.
    pub fn new(id: ClaimId, name: Name, share: Share, ttl: Duration) -> Self {
        Self {
            id,
            name,
            share,
            owner: None,
            ttl,
            label: "".into(),
            detached: false,
            writes: false,
            auto_renew: true,
        }
    }

    /// Returns whether it only says that a slot of a [`Period`](crate::Period) is done.
    ///
    /// Nobody relies on such a claim as on a lock, and its lease may last for months. So its ttl does not count
    /// where a store keeps quiet, after it lost its data, for as long as leases may last.
    pub fn is_record(&self) -> bool {
        self.detached && is_of_done_slot(&self.label)
    }

    /// Sets the owner for which it re-enters.
    #[must_use]
    pub fn owner(mut self, owner: Option<Owner>) -> Self {
        self.owner = owner;
        self
    }

    /// Sets the label shown to people.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets whether it outlives its client while it holds.
    #[must_use]
    pub fn detached(mut self, detached: bool) -> Self {
        self.detached = detached;
        self
    }

    /// Sets whether it was made as a write lock.
    #[must_use]
    pub fn writes(mut self, writes: bool) -> Self {
        self.writes = writes;
        self
    }

    /// Sets whether it is renewed until it is released.
    #[must_use]
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.auto_renew = auto_renew;
        self
    }
}

/// A grant from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Larger than the epoch of every earlier grant of this name.
    pub epoch: u64,
    /// The lease that the store actually gave; it may be longer than requested.
    pub ttl: Duration,
    /// How many claims wait behind this one: the more, the sooner an engine should release.
    pub waiting: u32,
    /// The number that other programs compare, if the store grows one for them. Such a claim is not handed on
    /// within its process, because the number is of one grant.
    pub foreign: Option<u64>,
}

impl Grant {
    /// Creates a grant with this epoch and lease, and this many claims that wait behind it.
    pub fn new(epoch: u64, ttl: Duration, waiting: u32) -> Self {
        Self { epoch, ttl, waiting, foreign: None }
    }
}

/// Returns 64 random bits.
pub(crate) fn random_u64() -> u64 {
    // Without randomness two clients could share an id and free each other's locks: there is
    // nothing sensible to go on with.
    getrandom::u64().expect("the operating system gives random numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_id_names_its_client() {
        let client = ClientId::random();
        let id = ClaimId::new(client, 7);
        assert_eq!((id.client(), id.serial()), (client, 7));
        assert_eq!(ClaimId::from_u128(id.get()), id);
        assert_eq!(id.to_string().len(), 32);
    }

    #[test]
    fn what_covers_what() {
        let permits = |n| Share::Permits { n, of: 5 };
        assert!(Share::Exclusive.covers(Share::Shared) && Share::Exclusive.covers(permits(5)));
        assert!(permits(3).covers(permits(2)) && !permits(2).covers(permits(3)));
        assert!(!Share::Shared.covers(Share::Exclusive) && !Share::Shared.covers(permits(1)));
        assert!(!permits(5).covers(Share::Exclusive));
        assert!(!permits(2).covers(Share::Permits { n: 1, of: 6 }));
    }
}
