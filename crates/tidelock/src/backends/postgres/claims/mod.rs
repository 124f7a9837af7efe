//! The claims of this client that it has to look after: where the server cannot tell that they were granted, and where
//! they hold advisory locks, which no lease ends.

mod advisory;
mod polled;

pub(super) use self::{advisory::Advisory, polled::Polled};
use crate::backend::{Claim, ClaimId};

/// The claims of this client. Of most of them nothing has to be known.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Behind a pooler: those that wait.
    pub(super) polled: Option<Polled>,
    /// With advisory locks: those that hold.
    pub(super) advisory: Option<Advisory>,
}

impl Claims {
    pub(super) fn new(is_pooled: bool, is_advisory: bool) -> Self {
        Self { polled: is_pooled.then(Polled::default), advisory: is_advisory.then(Advisory::default) }
    }

    /// A claim waits.
    pub(super) fn note_waiting(&self, claim: &Claim) {
        if let Some(polled) = &self.polled {
            polled.note(&claim.name, claim.id);
        }
    }

    /// A session says that a claim holds.
    pub(super) fn note_held(&self, claim: &Claim, session: u64) {
        self.note_not_waiting(claim.id);
        if let Some(advisory) = &self.advisory {
            advisory.note(claim, session);
        }
    }

    /// A claim does not wait any more, or never did.
    pub(super) fn note_not_waiting(&self, id: ClaimId) {
        if let Some(polled) = &self.polled {
            polled.forget(id);
        }
    }

    /// The server took a claim out of its line.
    pub(super) fn note_left(&self, id: ClaimId) {
        if let Some(advisory) = &self.advisory {
            advisory.forget(id);
        }
    }
}
