//! Holds of which the stream of watches would have said that they ended.
//!
//! A hold is *covered* once its key was read at a revision that its watch tells everything after. The stream tells
//! all events of all its watches up to a revision before it tells its progress to that revision. So a covered hold
//! whose end was not told is there at the revision of the last progress, and need not be read.
//!
//! The key is read after the watch was made, and not before: some servers lose the end of a key that is compacted at
//! the very revision that a watch begins with. On a new stream all watches are new ones, and each key is read again.

use std::sync::Arc;

use super::{Claims, Phase, standing::grant};
use crate::{
    backend::{Claim, ClaimId, Standing},
    backends::etcd::proto::{WatchProgressRequest, WatchRequest, WatchResponse},
    model::name::Name,
};

/// What the stream of watches said last about its own progress; of none, zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::backends::etcd) struct Progress {
    /// The member that said it.
    pub(in crate::backends::etcd) member: u64,
    /// All events up to this revision have been told.
    pub(in crate::backends::etcd) revision: i64,
}

/// The watch of progress: it tells of all others.
const OF_ALL: i64 = -1;

impl Claims {
    /// The key of a claim was read at a revision: notes whether its end will be told from there on.
    pub(super) fn cover(&mut self, name: &Name, id: ClaimId, at: i64, waiting: u32) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let Some(own) = line.claims.get(id) else { return };
        let watch = line.whole.or_else(|| line.single_of(&own.key(&self.space)));
        let made = |watch: &i64| self.watches.get(watch).and_then(|watch| watch.made_at);
        let watch = watch.filter(|watch| made(watch).is_some_and(|made_at| made_at.get() <= at));
        if let Some(own) = line.claims.get_mut(id) {
            (own.covered_by, own.waiting) = (watch.unwrap_or(0), waiting);
        }
    }

    /// How many of these claims are covered holds.
    pub(in crate::backends::etcd) fn covered(&self, claims: &[Arc<Claim>]) -> usize {
        claims.iter().filter(|claim| self.covered_hold(claim, i64::MAX).is_some()).count()
    }

    /// How a claim stands that is known to be there at this revision, as the stream has told all up to it, and under
    /// which lease.
    pub(in crate::backends::etcd) fn confirmed(
        &self,
        claim: &Claim,
        told: Progress,
        at: i64,
    ) -> Option<(Standing, i64)> {
        // Of another stream than the one that the claim is covered on now.
        if *self.progress.borrow() != told || told.revision < at {
            return None;
        }
        self.covered_hold(claim, at)
    }

    fn covered_hold(&self, claim: &Claim, at: i64) -> Option<(Standing, i64)> {
        let own = self.lines.get(&claim.name)?.claims.get(claim.id)?;
        let Phase::Held(epoch) = own.phase else { return None };
        // A revision before the last reading is of another life of the cluster.
        let is_covered = own.known_at <= at && self.watches.get(&own.covered_by)?.made_at.is_some();
        is_covered.then(|| (Standing::Held(grant(claim, epoch, own.waiting)), own.lease))
    }

    /// Asks the stream for its progress. Says whether there is a stream.
    pub(in crate::backends::etcd) fn ask_for_progress(&self) -> bool {
        self.send(WatchRequest { progress: Some(WatchProgressRequest {}), ..WatchRequest::default() });
        self.stream.is_some()
    }

    /// The stream may have told its progress.
    pub(super) fn note_progress(&mut self, response: &WatchResponse) {
        let is_progress = response.watch_id == OF_ALL
            && !response.created
            && !response.canceled
            && response.events.is_empty();
        if let (true, Some(header)) = (is_progress, &response.header) {
            self.progress.send_replace(Progress { member: header.member_id, revision: header.revision });
        }
    }
}
