//! Claims that wait as they did when their line was last read.
//!
//! Those ahead of a claim only go away, and nobody comes ahead of it later. So if its own key and the keys of all that
//! were ahead are there, created when they were, it waits as it did. Their values are not needed for that, nor are the
//! claims behind it. What is written into a key that is there only says on which hold of the same owner a claim rides:
//! where there are owners, and far back in a long line, the line is read.

use super::{Claims, Phase, standing::waits};
use crate::{
    backend::{Claim, Standing},
    backends::etcd::proto::{KeyValue, RangeRequest},
};

/// So many may be ahead of a claim. Of a long line more moves than this client hears, and then it is read after all.
const MOST: usize = 16;
/// So few keys are read one by one: all between the first and the last of a line cost a server more.
const FEW: usize = 3;

impl Claims {
    /// What to read to see whether a claim waits as it did; nothing if only its line can tell.
    pub(in crate::backends::etcd) fn unmoved_if(&self, claim: &Claim) -> Option<Vec<RangeRequest>> {
        let own = self.lines.get(&claim.name)?.claims.get(claim.id)?;
        let Phase::Waiting(ahead) = &own.phase else { return None };
        if own.may_be_passed_unheard() || ahead.0.is_empty() || ahead.0.len() > MOST {
            return None;
        }
        if ahead.0.len() >= FEW {
            let (from, to) = self.space.range(&claim.name);
            return Some(vec![RangeRequest::of(from, to).keys().created_until(own.created)]);
        }
        let ahead = ahead.0.iter().map(|other| other.key.clone());
        Some(ahead.chain([own.key(&self.space)]).map(|key| RangeRequest::one(key).keys()).collect())
    }

    /// How a claim stands, and under which lease, if it and all that were ahead of it are among the keys that were found
    /// at a revision.
    pub(in crate::backends::etcd) fn unmoved(
        &mut self,
        claim: &Claim,
        found: &[KeyValue],
        at: i64,
    ) -> Option<(Standing, i64)> {
        let own = self.lines.get_mut(&claim.name)?.claims.get_mut(claim.id)?;
        let Phase::Waiting(ahead) = &own.phase else { return None };
        if own.may_be_passed_unheard() || ahead.0.is_empty() {
            return None;
        }
        let there =
            |key: &[u8], created| found.iter().find(|kv| kv.key == key && kv.create_revision == created);
        let lease = there(&own.key(&self.space), own.created)?.lease;
        if ahead.0.iter().any(|other| there(&other.key, other.created).is_none()) {
            return None;
        }
        let standing = waits(ahead.0.len());
        own.known_at = own.known_at.max(at);
        Some((standing, lease))
    }
}
