//! Which claims are being left, and what servers say of them meanwhile.
//!
//! A server may say that a claim is in line while it is being left: it answered an enter late, or let the claim hold. If
//! the leave finds the claim there, that is all. If not, the claim came behind the leave, and has to be left once more.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::backend::ClaimId;

/// The claims that are being left, until all servers have answered.
#[derive(Debug, Default)]
pub(super) struct Leaves(Mutex<HashMap<ClaimId, Leave>>);

/// A claim that is being left on all servers, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Leave {
    /// Whether the engine waits for the answers of a majority.
    is_awaited: bool,
    /// Servers that have not answered yet.
    unanswered: u16,
    /// Those of them that said that it is in line. What they answer to the leave tells whether it still is.
    told: u16,
    /// Those of the others that said so.
    said: u16,
}

impl Leave {
    fn is_over(self) -> bool {
        !self.is_awaited && self.unanswered == 0
    }
}

impl Leaves {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimId, Leave>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim is about to be left on these servers.
    pub(super) fn begin(&self, id: ClaimId, servers: u16) {
        let mut leaves = self.lock();
        let leave = leaves.entry(id).or_default();
        (leave.is_awaited, leave.unanswered) = (true, servers);
    }

    /// A server says of a claim that nobody stands for that it is in line. Says whether it is being left at this moment.
    /// Then the server has to wait until that has ended: the leave may find it, and a second one would make the first one
    /// find nothing.
    pub(super) fn is_being_left(&self, id: ClaimId, server: usize) -> bool {
        match self.lock().get_mut(&id) {
            Some(leave) if leave.unanswered & 1 << server != 0 => leave.told |= 1 << server,
            Some(leave) if leave.is_awaited => leave.said |= 1 << server,
            _ => return false,
        }
        true
    }

    /// A server answered a leave, or will not, and found the claim or did not. Says whether it has to be left there once
    /// more: the server had said that it is in line, and the leave did not find it.
    pub(super) fn end_at(&self, id: ClaimId, server: usize, found: bool) -> bool {
        let mut leaves = self.lock();
        let Some(leave) = leaves.get_mut(&id) else { return false };
        let was_told = leave.told & 1 << server != 0;
        leave.unanswered &= !(1 << server);
        leave.told &= !(1 << server);
        if leave.is_over() {
            leaves.remove(&id);
        }
        was_told && !found
    }

    /// A majority has answered, or nobody waits for it any more. Says where it may be in line all the same.
    pub(super) fn end(&self, id: ClaimId) -> u16 {
        let mut leaves = self.lock();
        let Some(leave) = leaves.get_mut(&id) else { return 0 };
        leave.is_awaited = false;
        let said = std::mem::take(&mut leave.said);
        if leave.is_over() {
            leaves.remove(&id);
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ClientId;

    fn id() -> ClaimId {
        ClaimId::new(ClientId::from_u64(1), 1)
    }

    #[test]
    fn what_a_server_says_while_a_claim_is_left_waits_until_it_was() {
        let (leaves, id) = (Leaves::default(), id());
        assert!(!leaves.is_being_left(id, 0));
        leaves.begin(id, 0b111);
        // Its answer to the leave is heard before.
        assert!(!leaves.end_at(id, 2, false));
        assert!(leaves.is_being_left(id, 2));
        assert_eq!(leaves.end(id), 0b100);
        assert!(!leaves.is_being_left(id, 2));
    }

    #[test]
    fn a_server_that_said_a_claim_is_in_line_is_asked_once_more_only_if_the_leave_did_not_find_it() {
        let (leaves, id) = (Leaves::default(), id());
        leaves.begin(id, 0b111);
        assert!(!leaves.end_at(id, 0, true));
        assert!(leaves.is_being_left(id, 1) && leaves.is_being_left(id, 2));
        assert_eq!(leaves.end(id), 0);
        // The engine was told, and the last servers answer.
        assert!(leaves.is_being_left(id, 1));
        assert!(!leaves.end_at(id, 1, true), "it was found");
        assert!(leaves.end_at(id, 2, false), "it was not");
        assert!(leaves.lock().is_empty() && !leaves.is_being_left(id, 1));
    }
}
