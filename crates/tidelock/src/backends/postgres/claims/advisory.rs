//! Claims that hold an advisory lock: it is lost with its session, and not by a lease.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::Notify;

use crate::{
    backend::{Claim, ClaimId},
    backends::shared::mutex::lock,
    clock::{Alarm, Clock, Moment},
    model::name::Name,
};

/// Which claims of a client hold, in which of its sessions, and until when without being renewed.
#[derive(Debug, Default)]
pub(in crate::backends::postgres) struct Advisory {
    clock: Clock,
    claims: Mutex<HashMap<ClaimId, Held>>,
    came: Notify,
}

#[derive(Debug)]
struct Held {
    name: Name,
    session: u64,
    lapses: Moment,
}

impl Advisory {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Held>> {
        lock(&self.claims)
    }

    /// A session says that a claim holds.
    pub(super) fn note(&self, claim: &Claim, session: u64) {
        let lapses = self.clock.now() + claim.ttl;
        self.claims().insert(claim.id, Held { name: claim.name.clone(), session, lapses });
        self.came.notify_one();
    }

    pub(in crate::backends::postgres) fn forget(&self, id: ClaimId) {
        self.claims().remove(&id);
    }

    /// Whether a claim held in another session than this one.
    pub(in crate::backends::postgres) fn is_lost(&self, id: ClaimId, session: u64) -> bool {
        self.claims().get(&id).is_some_and(|held| held.session != session)
    }

    /// The next claim that nobody renewed in time. The server lets its row go by its own clock; the lock is ours to give back.
    pub(in crate::backends::postgres) async fn next_lapse(&self) -> (Name, ClaimId) {
        let mut alarm = Alarm::new(&self.clock);
        loop {
            let came = self.came.notified();
            let first = {
                let claims = self.claims();
                let first = claims.iter().min_by_key(|(_, held)| held.lapses);
                first.map(|(id, held)| (held.name.clone(), *id, held.lapses))
            };
            match first {
                Some((name, id, lapses)) if lapses <= self.clock.now() => return (name, id),
                Some((_, _, lapses)) => tokio::select! {
                    () = alarm.sleep_towards(lapses) => {}
                    () = came => {}
                },
                None => came.await,
            }
        }
    }
}
