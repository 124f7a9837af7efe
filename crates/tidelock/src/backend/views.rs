//! Locks and claims as shown to people.

use std::{sync::Arc, time::Duration};

use super::{Capacity, Claim, ClaimId, Share};
use crate::model::{
    name::Name,
    owner::{Owner, split_label},
    token::Token,
};

/// A lock as shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockView {
    /// Its name.
    pub name: Name,
    /// The capacity that sharing claims agreed on, if any is in the queue.
    pub capacity: Option<Capacity>,
    /// The epoch of the latest grant.
    pub epoch: u64,
    /// The claims that hold it.
    pub holders: Vec<ClaimView>,
    /// The claims that wait, in order.
    pub waiters: Vec<ClaimView>,
}

impl LockView {
    /// Creates a view, for backends.
    pub fn new(name: Name, capacity: Option<Capacity>, epoch: u64) -> Self {
        Self { name, capacity, epoch, holders: Vec::new(), waiters: Vec::new() }
    }

    /// Returns the fencing token of the latest grant, if the lock was ever granted.
    ///
    /// See [`ClaimView::token`] for locks that tasks of one process hand over to each other.
    pub fn token(&self) -> Option<Token> {
        (self.epoch > 0).then(|| Token::new(self.epoch, 0))
    }
}

/// A claim as shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimView {
    /// Its identity.
    pub id: ClaimId,
    /// How much it asks for.
    pub share: Share,
    /// Its explicit owner, if any.
    pub owner: Option<Owner>,
    /// The label that its client gave.
    pub label: Arc<str>,
    /// What it advertises, if it is a candidate of an [`Election`](crate::Election) that does.
    pub advertised: Option<Arc<str>>,
    /// The epoch it holds with, if it holds.
    pub epoch: Option<u64>,
    /// How long it has held or waited.
    pub age: Duration,
    /// The time until it expires unless it is renewed.
    pub lapse_in: Duration,
    /// The program of another make that holds, on stores that share locks with such programs. It is not told
    /// when somebody evicts it.
    pub foreign: Option<Foreign>,
}

/// A holder that is a program of another make, such as Redisson with `redis:?mode=redisson`.
///
/// ```
/// use tidelock::backend::Foreign;
///
/// let holder = Foreign::new("redisson", "8743c9c0-0795-4907-87fd-6c719a6b4586:61", 2, true);
/// assert_eq!((&*holder.kind, holder.count), ("redisson", 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Foreign {
    /// What it is: `redisson` or `setnx`.
    pub kind: Arc<str>,
    /// How it names itself, with bytes that are no text as escapes.
    pub id: Arc<str>,
    /// How often it has entered.
    pub count: u64,
    /// Whether its hold expires. If not, it ends only when it is released or evicted.
    pub expires: bool,
}

impl Foreign {
    /// Creates the description of such a holder, for backends.
    pub fn new(kind: &str, id: &str, count: u64, expires: bool) -> Self {
        Self { kind: kind.into(), id: id.into(), count, expires }
    }
}

impl ClaimView {
    /// Creates a view, for backends.
    pub fn new(claim: &Claim, epoch: Option<u64>, age: Duration, lapse_in: Duration) -> Self {
        let (label, advertised) = split_label(&claim.label);
        Self {
            id: claim.id,
            share: claim.share,
            owner: claim.owner.clone(),
            label,
            advertised,
            epoch,
            age,
            lapse_in,
            foreign: None,
        }
    }

    /// Returns the fencing token that the claim was granted with, if it holds.
    ///
    /// A process whose tasks hand the lock over to each other without the store adds the number of
    /// those hand-offs: its guards then have tokens that are up to 1,023 larger.
    pub fn token(&self) -> Option<Token> {
        self.epoch.map(|epoch| Token::new(epoch, 0))
    }
}
