//! Advisory locks that a session holds: lost with it, and not by a lease.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{
    backend::{Claim, ClaimId},
    clock::{Clock, Moment},
    name::Name,
};

/// Which claims of a client hold, in which of its sessions, and until when without being renewed.
#[derive(Debug, Default)]
pub(super) struct Taken {
    clock: Clock,
    claims: Mutex<HashMap<ClaimId, One>>,
    came: Notify,
}

#[derive(Debug)]
struct One {
    name: Name,
    session: u64,
    lapses: Moment,
}

impl Taken {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, One>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session says that a claim holds.
    pub(super) fn note(&self, claim: &Claim, session: u64) {
        let lapses = self.clock.now() + claim.ttl;
        self.claims().insert(claim.id, One { name: claim.name.clone(), session, lapses });
        self.came.notify_one();
    }

    pub(super) fn forget(&self, id: ClaimId) {
        self.claims().remove(&id);
    }

    /// Whether a claim held in another session than this one.
    pub(super) fn is_lost(&self, id: ClaimId, session: u64) -> bool {
        self.claims().get(&id).is_some_and(|one| one.session != session)
    }

    /// The next claim that nobody renewed in time. The server lets its row go by its own clock; the lock is ours to give back.
    pub(super) async fn next_lapse(&self) -> (Name, ClaimId) {
        loop {
            let came = self.came.notified();
            let first = {
                let claims = self.claims();
                let first = claims.iter().min_by_key(|(_, one)| one.lapses);
                first.map(|(id, one)| (one.name.clone(), *id, one.lapses))
            };
            match first {
                Some((name, id, lapses)) if lapses <= self.clock.now() => return (name, id),
                Some((_, _, lapses)) => tokio::select! {
                    () = self.clock.sleep_towards(lapses) => {}
                    () = came => {}
                },
                None => came.await,
            }
        }
    }
}
