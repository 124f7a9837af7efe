//! Claims: what stands in a line.

use std::{fmt, sync::Arc, time::Duration};

use crate::{name::Name, owner::Owner};

/// One connection of one process to a store: where pushes for its claims go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// A random id.
    pub fn random() -> Self {
        Self(random_u64())
    }

    /// An id that was sent before.
    pub fn from_u64(raw: u64) -> Self {
        Self(raw)
    }

    /// The number to send.
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
/// The upper half is the [`ClientId`], so that a store knows whom to tell from the id alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    /// The id with this serial number of this client.
    pub fn new(client: ClientId, serial: u64) -> Self {
        Self(u128::from(client.0) << 64 | u128::from(serial))
    }

    /// An id that was sent before.
    pub fn from_u128(raw: u128) -> Self {
        Self(raw)
    }

    /// The number to send.
    pub fn get(self) -> u128 {
        self.0
    }

    /// The client that made this claim and wants to hear of it.
    pub fn client(self) -> ClientId {
        ClientId((self.0 >> 64) as u64)
    }

    /// The lower half: in the order in which the client made its claims.
    pub fn serial(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How much of a lock a claim asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Share {
    /// All of it, whatever its capacity is: a mutex, a write lock.
    Exclusive,
    /// One of unboundedly many: a read lock.
    Shared,
    /// `n` of `of` permits: a semaphore.
    Permits {
        /// How many this claim takes.
        n: u32,
        /// How many there are.
        of: u32,
    },
}

/// How much of a lock there is, as sharing claims see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Capacity {
    /// Any number of readers.
    Unbounded,
    /// This many permits.
    Of(u32),
}

impl Share {
    /// The capacity that a sharing claim assumes; an exclusive claim fits any.
    pub fn capacity(self) -> Option<Capacity> {
        match self {
            Self::Exclusive => None,
            Self::Shared => Some(Capacity::Unbounded),
            Self::Permits { of, .. } => Some(Capacity::Of(of)),
        }
    }

    /// How many permits a sharing claim takes.
    pub fn weight(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => 1,
            Self::Permits { n, .. } => n,
        }
    }

    /// Whether an owner that holds `self` may do what `other` asks for.
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

/// One claim: it stands in the line of its name and asks for a share of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its identity. Every verb may be repeated with the same id and means the same once.
    pub id: ClaimId,
    /// The line it stands in.
    pub name: Name,
    /// How much it asks for.
    pub share: Share,
    /// Whoever it re-enters for, if anybody.
    pub owner: Option<Owner>,
    /// How long it lives without being renewed.
    pub ttl: Duration,
    /// What people see.
    pub label: Arc<str>,
    /// Whether a hold outlives its client: then only its lease ends it. A place in line never does.
    pub detached: bool,
    /// Whether an exclusive claim was asked for as a write lock. The line does not care; stores that share it
    /// with other programs name it as those do.
    pub writes: bool,
    /// Whether a hold is renewed until it is given back. If not, its client asks for no more than one ttl.
    pub auto_renew: bool,
}

/// The store's yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Larger than the epoch of every earlier grant of this name.
    pub epoch: u64,
    /// The lease the store really gave; it may be longer than the one asked for.
    pub ttl: Duration,
    /// How many claims stand behind this one: the more, the sooner an engine should let go.
    pub waiting: u32,
}

/// 64 random bits.
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
