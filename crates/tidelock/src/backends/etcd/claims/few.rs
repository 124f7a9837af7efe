//! The claims of this client in one line, by id: nearly always one, for which a map would have room for four.

use super::OwnClaim;
use crate::backend::ClaimId;

#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "of several, some come and go: they stay where they are")]
pub(super) struct Few(Vec<Box<OwnClaim>>);

impl Few {
    fn position(&self, id: ClaimId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |own| own.claim.id)
    }

    pub(super) fn get(&self, id: ClaimId) -> Option<&OwnClaim> {
        self.position(id).ok().map(|index| &*self.0[index])
    }

    pub(super) fn get_mut(&mut self, id: ClaimId) -> Option<&mut OwnClaim> {
        self.position(id).ok().map(|index| &mut *self.0[index])
    }

    /// Adds a claim that is not there. Ids grow, so it is mostly the last.
    pub(super) fn insert(&mut self, own: Box<OwnClaim>) {
        if let Err(index) = self.position(own.claim.id) {
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(index, own);
        }
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Box<OwnClaim>> {
        self.position(id).ok().map(|index| self.0.remove(index))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OwnClaim> {
        self.0.iter().map(|own| &**own)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OwnClaim> {
        self.0.iter_mut().map(|own| &mut **own)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
