//! Questions that nobody answered. Such an `enter` may still be on its way, in a queue or on a connection that was
//! given up, and arrive after its claim was left. So whoever leaves shuts it out first.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    backend::{ClaimId, FailureKind},
    clock::{Clock, Moment},
};

/// How long it is remembered here that a question may arrive. The stores remember for as long who was shut out: longer
/// than any network tries to deliver what a sender that has gone left behind.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// The claims of a client for which a question may still arrive.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    clock: Clock,
    claims: Mutex<HashMap<ClaimId, Moment>>,
}

impl Unanswered {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Moment>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim is about to be asked for.
    pub(super) fn asking(&self, id: ClaimId) -> Asking<'_> {
        Asking { all: self, id, is_sent: false, is_lost: false }
    }

    /// Whether a question for a claim may still arrive.
    pub(super) fn has(&self, id: ClaimId) -> bool {
        self.claims().contains_key(&id)
    }

    /// Whatever arrives for a claim finds that it is too late.
    pub(super) fn forget(&self, id: ClaimId) {
        self.claims().remove(&id);
    }

    fn note(&self, id: ClaimId) {
        let now = self.clock.now();
        let mut claims = self.claims();
        // Those that nobody could leave have lapsed long ago.
        claims.retain(|_, since| now.since(*since) < REMEMBERED);
        claims.insert(id, now);
    }
}

/// A question under way. Dropped before its answer came it may still arrive.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    all: &'a Unanswered,
    id: ClaimId,
    is_sent: bool,
    is_lost: bool,
}

impl Asking<'_> {
    /// It is sent, maybe not for the first time.
    pub(super) fn sent(&mut self) {
        self.is_sent = true;
    }

    /// What was sent last was answered, or failed in this way.
    pub(super) fn ended(&mut self, failed: Option<FailureKind>) {
        self.is_sent = false;
        self.is_lost |= failed == Some(FailureKind::Unknown);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_sent || self.is_lost {
            self.all.note(self.id);
        }
    }
}
