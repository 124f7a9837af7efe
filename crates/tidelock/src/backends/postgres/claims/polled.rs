//! Claims that wait behind a pooler, where nobody can tell a client anything: it asks about them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    backend::{ClaimId, News, What},
    backends::shared::mutex::lock,
    model::name::Name,
};

/// The claims of a client that wait, where nobody can tell it that they do not any more.
///
/// They are asked about in pauses that grow while nothing happens: a lock that goes from hand to hand goes on soon, and one that
/// is held for long costs few questions.
#[derive(Debug, Default)]
pub(in crate::backends::postgres) struct Polled {
    claims: Mutex<HashMap<ClaimId, Name>>,
    came: Notify,
}

/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(128));

impl Polled {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Name>> {
        lock(&self.claims)
    }

    /// A claim waits.
    pub(super) fn note(&self, name: &Name, id: ClaimId) {
        self.claims().insert(id, name.clone());
        self.came.notify_one();
    }

    /// A claim does not wait any more.
    pub(super) fn forget(&self, id: ClaimId) {
        self.claims().remove(&id);
    }

    /// Those to be asked about, as soon as there are any.
    pub(in crate::backends::postgres) async fn some(&self, pause: &mut Duration) -> Vec<(ClaimId, Name)> {
        loop {
            let came = self.came.notified();
            if !self.claims().is_empty() {
                break;
            }
            came.await;
            *pause = PAUSES.0;
        }
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).clamp(PAUSES.0, PAUSES.1);
        self.claims().iter().map(|(id, name)| (*id, name.clone())).collect()
    }

    /// Of these something is new: the engine asks what.
    pub(in crate::backends::postgres) fn changed(&self, changed: Vec<(ClaimId, Name)>) -> Vec<News> {
        let mut claims = self.claims();
        let known = changed.into_iter().filter(|(id, _)| claims.remove(id).is_some());
        known.map(|(id, name)| News { name, id, what: What::Ask }).collect()
    }
}
