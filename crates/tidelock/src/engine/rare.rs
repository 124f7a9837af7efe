//! What most claims never have, and what is therefore not kept with each of them.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::backend::Failure;

/// All of it that is known of one claim.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// Told when it is lost or a guard is released. Made for the first that listens.
    pub(super) changed: Option<Arc<Notify>>,
    /// Whether it is left by more than the release of its guard, so that either may find it gone.
    pub(super) left_twice: bool,
    /// Something moved while a question was under way: its answer may be older, so it is worth asking again.
    pub(super) moved: bool,
    /// The reason given for its eviction.
    pub(super) evicted_for: Option<Arc<str>>,
    /// Why the store did not answer the last question, and whether it failed several times.
    pub(super) trouble: Option<(Failure, bool)>,
    /// The number of its grant that other programs compare.
    pub(super) foreign: Option<u64>,
}

impl Rare {
    /// Whether nothing of it is known, so that it need not be kept.
    pub(super) fn is_empty(&self) -> bool {
        let Self { changed, left_twice, moved, evicted_for, trouble, foreign } = self;
        let is_told = changed.is_some() || *left_twice || *moved;
        !is_told && evicted_for.is_none() && trouble.is_none() && foreign.is_none()
    }
}
