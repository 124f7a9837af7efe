//! What a user asks the engine for: checked, and free of the interface it came through.

use std::{sync::Arc, time::Duration};

use crate::{backend::Share, model::name::Name, model::owner::Owner};

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as it takes.
    Forever,
    /// At most this long.
    For(Duration),
    /// Not at all.
    Try,
}

impl Patience {
    /// What is left of it after this long.
    pub(super) fn after(self, waited: Duration) -> Self {
        match self {
            Self::For(limit) => Self::For(limit.saturating_sub(waited)),
            Self::Forever | Self::Try => self,
        }
    }
}

/// A wish for a lock. It borrows: most wishes are granted before anything has to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) name: &'a Name,
    pub(crate) share: Share,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) ttl: Duration,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: &'a Arc<str>,
    pub(crate) detached: bool,
    /// Whether a store that fails is an error at once.
    pub(crate) fail_fast: bool,
    /// Whether it was asked for as a write lock.
    pub(crate) writes: bool,
    /// Whether its claim is never handed to another task of this process.
    pub(crate) alone: bool,
    /// Whether the store lets an owner re-enter with another claim.
    pub(crate) store_reenters: bool,
}
