//! The claims of this client in one line, by id: nearly always one, which then needs no list.

use std::slice;

use super::OwnClaim;
use crate::backend::ClaimId;

#[derive(Debug, Default)]
pub(super) enum Few {
    #[default]
    None,
    One(OwnClaim),
    Several(Vec<OwnClaim>),
}

impl Few {
    fn all(&self) -> &[OwnClaim] {
        match self {
            Self::None => &[],
            Self::One(own) => slice::from_ref(own),
            Self::Several(several) => several,
        }
    }

    fn all_mut(&mut self) -> &mut [OwnClaim] {
        match self {
            Self::None => &mut [],
            Self::One(own) => slice::from_mut(own),
            Self::Several(several) => several,
        }
    }

    fn position(&self, id: ClaimId) -> Result<usize, usize> {
        self.all().binary_search_by_key(&id, |own| own.claim.id)
    }

    pub(super) fn get(&self, id: ClaimId) -> Option<&OwnClaim> {
        self.position(id).ok().map(|index| &self.all()[index])
    }

    pub(super) fn get_mut(&mut self, id: ClaimId) -> Option<&mut OwnClaim> {
        self.position(id).ok().map(|index| &mut self.all_mut()[index])
    }

    /// Adds a claim that is not there. Ids grow, so it is mostly the last.
    pub(super) fn insert(&mut self, own: OwnClaim) {
        let Err(index) = self.position(own.claim.id) else { return };
        let mut several = match std::mem::take(self) {
            Self::None => {
                *self = Self::One(own);
                return;
            }
            Self::One(other) => vec![other],
            Self::Several(several) => several,
        };
        several.insert(index, own);
        *self = Self::Several(several);
    }

    pub(super) fn remove(&mut self, id: ClaimId) -> Option<OwnClaim> {
        let index = self.position(id).ok()?;
        match std::mem::take(self) {
            Self::None => None,
            Self::One(own) => Some(own),
            Self::Several(mut several) => {
                let own = several.remove(index);
                if !several.is_empty() {
                    *self = Self::Several(several);
                }
                Some(own)
            }
        }
    }

    pub(super) fn iter(&self) -> slice::Iter<'_, OwnClaim> {
        self.all().iter()
    }

    pub(super) fn iter_mut(&mut self) -> slice::IterMut<'_, OwnClaim> {
        self.all_mut().iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}
