//! The claims of this client that wait, and whom it watches for them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{order::ahead_of, store::FileStore};
use crate::{
    backend::{Claim, ClaimId, ClientId},
    backends::shared::mutex::lock,
    model::line::Line,
};

/// The claims of this client that wait, and whom it watches for them.
#[derive(Debug, Default)]
pub(super) struct Claims {
    waiting: HashMap<ClaimId, Waiter>,
    watched: HashSet<ClientId>,
    unwatched: Vec<ClientId>,
}

#[derive(Debug)]
struct Waiter {
    claim: Arc<Claim>,
    /// Whose death would move this claim on.
    ahead: Vec<ClientId>,
}

impl Claims {
    /// A claim that waits.
    pub(super) fn get(&self, id: ClaimId) -> Option<Arc<Claim>> {
        self.waiting.get(&id).map(|waiter| Arc::clone(&waiter.claim))
    }

    /// All claims that wait.
    pub(super) fn ids(&self) -> Vec<ClaimId> {
        self.waiting.keys().copied().collect()
    }

    /// A client is dead. The claims that waited behind it.
    pub(super) fn died(&mut self, client: ClientId) -> Vec<Arc<Claim>> {
        self.watched.remove(&client);
        let behind = self.waiting.values().filter(|waiter| waiter.ahead.contains(&client));
        behind.map(|waiter| Arc::clone(&waiter.claim)).collect()
    }
}

impl FileStore {
    /// A claim does not wait any more. Says whether it did.
    pub(super) fn forget(&self, id: ClaimId) -> bool {
        let mut claims = lock(&self.claims);
        // Mostly nothing waits: then there is nothing to look up.
        !claims.waiting.is_empty() && claims.waiting.remove(&id).is_some()
    }

    /// Whom to watch from now on.
    pub(super) fn take_unwatched(&self) -> Vec<ClientId> {
        let mut claims = lock(&self.claims);
        let unwatched = std::mem::take(&mut claims.unwatched);
        claims.watched.extend(&unwatched);
        unwatched
    }

    /// Who need not be watched any more.
    pub(super) fn take_unneeded(&self) -> Vec<ClientId> {
        let mut claims = lock(&self.claims);
        let needed: HashSet<_> = claims.waiting.values().flat_map(|waiter| waiter.ahead.clone()).collect();
        let unneeded: Vec<_> = claims.watched.difference(&needed).copied().collect();
        claims.watched.retain(|client| needed.contains(client));
        unneeded
    }

    /// Notes that a claim waits, and behind whom.
    pub(super) fn note(&self, claim: &Arc<Claim>, line: &Line) {
        self.note_behind(claim, ahead_of(line, claim.id));
    }

    /// The same, where it is known whose death would move it on.
    pub(super) fn note_behind(&self, claim: &Arc<Claim>, mut ahead: Vec<ClientId>) {
        ahead.retain(|client| *client != self.client);
        let mut claims = lock(&self.claims);
        let Claims { waiting, watched, unwatched } = &mut *claims;
        let before = unwatched.len();
        unwatched.extend(ahead.iter().filter(|client| !watched.contains(client)));
        let more = unwatched.len() > before;
        waiting.insert(claim.id, Waiter { claim: Arc::clone(claim), ahead });
        drop(claims);
        if more {
            self.nudge.notify_one();
        }
    }
}
