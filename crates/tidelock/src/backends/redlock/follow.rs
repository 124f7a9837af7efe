//! Names that are followed: each server that is connected tells of the next change of its line.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::{quorum::majority, store::RedlockStore};
use crate::{backend::Failure, backends::shared::following::Arms, model::name::Name};

impl Arms for RedlockStore {
    fn key_of(&self, name: &Name) -> String {
        // All servers have the same prefix.
        self.voters[0].key_of(name)
    }

    async fn arm(self: Arc<Self>, key: String) -> Result<(), Failure> {
        let connected: Vec<_> = self.voters.iter().filter(|voter| voter.is_connected()).collect();
        if connected.len() < majority(self.voters.len()) {
            return Err(Failure::unreachable("fewer than a majority of the servers are connected"));
        }
        // All of them: which one makes a majority is not known before.
        try_join_all(connected.iter().map(|voter| self.tracking.arm(voter.server(), &key))).await.map(drop)
    }

    fn disarm(&self, _key: &str) {
        self.tracking.disarm();
    }
}
