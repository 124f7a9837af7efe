//! Names whose claims cannot go together with others: somebody else is in line, or several claims of this client are.
//!
//! A call for several claims leaves those open, and they are asked once more. So for a while they go alone at once.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::mutex::lock;
use crate::model::name::Name;

/// So many questions for a name go alone before it is tried again with others.
const ALONE: u32 = 64;

/// More names are not remembered: their claims are asked twice.
const MOST: usize = 1_024;

/// The names of a client whose claims go alone.
#[derive(Debug, Default)]
pub(crate) struct Crowded {
    names: Mutex<HashMap<Name, u32>>,
    /// How many there are: mostly none, and then nobody has to look.
    count: AtomicUsize,
}

impl Crowded {
    /// A question for a name was left open.
    pub(crate) fn note(&self, name: &Name) {
        let mut names = lock(&self.names);
        if names.len() < MOST || names.contains_key(name) {
            names.insert(name.clone(), ALONE);
        }
        self.count.store(names.len(), Ordering::Relaxed);
    }

    /// Whether a question for a name goes alone.
    pub(crate) fn goes_alone(&self, name: &Name) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut names = lock(&self.names);
        let Some(left) = names.get_mut(name) else { return false };
        *left -= 1;
        if *left == 0 {
            names.remove(name);
            self.count.store(names.len(), Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_alone_for_a_while_and_others_do_not() {
        let crowded = Crowded::default();
        let (name, other) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        assert!(!crowded.goes_alone(&name));
        crowded.note(&name);
        for _ in 0..ALONE {
            assert!(crowded.goes_alone(&name) && !crowded.goes_alone(&other));
        }
        assert!(!crowded.goes_alone(&name));
        for number in 0..2 * MOST {
            crowded.note(&Name::new(&number.to_string()).unwrap());
        }
        assert_eq!(lock(&crowded.names).len(), MOST);
    }
}
