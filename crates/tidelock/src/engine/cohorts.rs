//! The cohorts of a name: nearly always one, which then needs no list.

use std::{
    collections::VecDeque,
    ops::{Index, IndexMut},
};

use super::local::Cohort;

/// Cohorts, by id: in the order in which they came.
#[derive(Debug, Default)]
#[allow(
    clippy::box_collection,
    reason = "the pointer fits beside a cohort's own tag, and nearly every name has one cohort"
)]
pub(super) enum Cohorts {
    #[default]
    None,
    One(Cohort),
    /// Those in front leave first.
    Several(Box<VecDeque<Cohort>>),
}

impl Cohorts {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Adds the one that came last.
    pub(super) fn push(&mut self, cohort: Cohort) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(cohort),
            Self::One(first) => Self::Several(Box::new(VecDeque::from([first, cohort]))),
            Self::Several(mut several) => {
                several.push_back(cohort);
                Self::Several(several)
            }
        };
    }

    pub(super) fn remove(&mut self, index: usize) {
        *self = match std::mem::take(self) {
            Self::Several(mut several) if several.len() > 1 || index > 0 => {
                several.remove(index);
                Self::Several(several)
            }
            Self::One(only) if index > 0 => Self::One(only),
            Self::None | Self::One(_) | Self::Several(_) => Self::None,
        };
    }

    pub(super) fn get(&self, index: usize) -> Option<&Cohort> {
        match self {
            Self::None => None,
            Self::One(only) => (index == 0).then_some(only),
            Self::Several(several) => several.get(index),
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Cohort> {
        match self {
            Self::None => None,
            Self::One(only) => (index == 0).then_some(only),
            Self::Several(several) => several.get_mut(index),
        }
    }

    /// Where the cohort with this id is.
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(only) => (only.id == id).then_some(0),
            Self::Several(several) => several.binary_search_by_key(&id, |cohort| cohort.id).ok(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Cohort> {
        let (one, several) = match self {
            Self::None => (None, None),
            Self::One(only) => (Some(only), None),
            Self::Several(several) => (None, Some(several.iter())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cohort> {
        let (one, several) = match self {
            Self::None => (None, None),
            Self::One(only) => (Some(only), None),
            Self::Several(several) => (None, Some(several.iter_mut())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl Index<usize> for Cohorts {
    type Output = Cohort;

    fn index(&self, index: usize) -> &Cohort {
        self.get(index).expect("a cohort is where it was found")
    }
}

impl IndexMut<usize> for Cohorts {
    fn index_mut(&mut self, index: usize) -> &mut Cohort {
        self.get_mut(index).expect("a cohort is where it was found")
    }
}
