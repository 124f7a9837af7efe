//! Turns: a task that looks at how a claim stands, or replaces its nodes, does so alone.
//!
//! There is a turn only while somebody has it or waits for it: a process may hold very many locks.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex},
};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::{backend::ClaimId, backends::shared::mutex::lock};

/// The turns of a client.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<ClaimId, Wanted>>);

/// A turn, and how many have it or wait for it.
type Wanted = (Arc<AsyncMutex<()>>, usize);

/// A turn that [comes](Turn::comes) when those before it have ended.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    id: ClaimId,
    alone: Arc<AsyncMutex<()>>,
}

impl Turns {
    pub(super) fn of(&self, id: ClaimId) -> Turn<'_> {
        let mut turns = lock(&self.0);
        let (alone, wanted) = turns.entry(id).or_default();
        *wanted += 1;
        Turn { turns: self, id, alone: Arc::clone(alone) }
    }

    /// The first turn of a claim that enters now. It does not wait for those who look at an earlier life of the claim.
    pub(super) fn of_new(&self, id: ClaimId) -> Turn<'_> {
        let alone = Arc::default();
        lock(&self.0).insert(id, (Arc::clone(&alone), 1));
        Turn { turns: self, id, alone }
    }
}

impl Turn<'_> {
    /// Waits for it. It ends when what this returns is dropped.
    pub(super) async fn comes(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = lock(&self.turns.0);
        let Entry::Occupied(mut turn) = turns.entry(self.id) else { return };
        let (alone, wanted) = turn.get_mut();
        if !Arc::ptr_eq(alone, &self.alone) {
            // Of an earlier life.
            return;
        }
        *wanted -= 1;
        if *wanted == 0 {
            turn.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_has_the_turn_and_none_is_kept_that_nobody_wants() {
        let (turns, id) = (Turns::default(), ClaimId::from_u128(1));
        let (first, second) = (turns.of(id), turns.of(id));
        let alone = first.comes().await;
        assert!(second.alone.try_lock().is_err());
        // Another life of the claim does not wait for this one.
        let new = turns.of_new(id);
        drop(new.comes().await);
        drop(alone);
        drop(second.comes().await);
        drop((first, second));
        assert_eq!(lock(&turns.0).len(), 1);
        drop(new);
        assert!(lock(&turns.0).is_empty());
    }
}
