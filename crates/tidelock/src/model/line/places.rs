//! The claims of a line in order, found by id without walking it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    backend::{Claim, ClaimId},
    clock::Moment,
};

/// From this many claims on an index is kept; below, walking is faster and memory smaller.
const INDEX_FROM: usize = 24;

/// A claim in line.
#[derive(Clone, Debug)]
pub(super) struct Standee {
    pub(super) claim: Arc<Claim>,
    pub(super) since: Moment,
    pub(super) lapses: Moment,
    pub(super) hold: Option<Hold>,
}

/// That it holds, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) epoch: u64,
    pub(super) since: Moment,
    /// On the hold of another claim of the same owner, taking nothing of the capacity.
    pub(super) rides: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    standees: VecDeque<Standee>,
    /// Sort keys of the standees, in the same order: rising, with gaps.
    keys: Option<Box<Index>>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    order: VecDeque<u64>,
    key_of: HashMap<ClaimId, u64>,
    next: u64,
}

/// Room between two neighbours, so that riders can be put between holders and waiters.
const GAP: u64 = 1 << 20;

impl Places {
    pub(super) fn len(&self) -> usize {
        self.standees.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.standees.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Standee> {
        self.standees.iter()
    }

    pub(super) fn at(&self, index: usize) -> &Standee {
        &self.standees[index]
    }

    pub(super) fn at_mut(&mut self, index: usize) -> &mut Standee {
        &mut self.standees[index]
    }

    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        match &self.keys {
            None => self.standees.iter().position(|standee| standee.claim.id == id),
            Some(index) => {
                let key = index.key_of.get(&id)?;
                index.order.binary_search(key).ok()
            }
        }
    }

    pub(super) fn push(&mut self, standee: Standee) {
        let id = standee.claim.id;
        if self.standees.capacity() == 0 {
            // Nearly every line holds one claim: do not make room for four.
            self.standees = VecDeque::with_capacity(1);
        }
        self.standees.push_back(standee);
        match &mut self.keys {
            Some(index) => index.push(id),
            None if self.standees.len() >= INDEX_FROM => self.build_index(),
            None => {}
        }
    }

    pub(super) fn insert(&mut self, at: usize, standee: Standee) {
        self.standees.insert(at, standee);
        // Riders are rare; where they meet a long line the index is simply made again.
        if self.keys.is_some() && !self.key_between(at) {
            self.build_index();
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Standee {
        let gone = if at == 0 { self.standees.pop_front() } else { self.standees.remove(at) };
        let gone = gone.expect("the caller found it there");
        if self.standees.len() < INDEX_FROM / 2 {
            self.keys = None;
        } else if let Some(index) = &mut self.keys {
            index.order.remove(at);
            index.key_of.remove(&gone.claim.id);
        }
        gone
    }

    fn build_index(&mut self) {
        let mut index = Index::default();
        for standee in &self.standees {
            index.push(standee.claim.id);
        }
        self.keys = Some(Box::new(index));
    }

    /// Gives the standee just inserted a key between its neighbours' if there is one.
    fn key_between(&mut self, at: usize) -> bool {
        let Some(index) = &mut self.keys else {
            return true;
        };
        let before = if at == 0 { 0 } else { index.order[at - 1] };
        let after = index.order.get(at).copied().unwrap_or(index.next + GAP);
        let key = before + (after - before) / 2;
        if key == before || key == after {
            return false;
        }
        index.order.insert(at, key);
        index.key_of.insert(self.standees[at].claim.id, key);
        index.next = index.next.max(key + GAP);
        true
    }
}

impl Index {
    fn push(&mut self, id: ClaimId) {
        self.next = self.next.max(GAP);
        self.order.push_back(self.next);
        self.key_of.insert(id, self.next);
        self.next += GAP;
    }
}
