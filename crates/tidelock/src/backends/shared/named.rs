//! Stores in memory that a process shares by name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use super::mutex::lock;

/// Stores by name. One that nobody uses any more is forgotten.
#[derive(Debug)]
pub(crate) struct Named<T>(Mutex<Option<HashMap<String, Weak<T>>>>);

impl<T> Named<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The store of this name, made if nobody uses one.
    pub(crate) fn get(&self, name: &str, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut stores = lock(&self.0);
        let stores = stores.get_or_insert_default();
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return store;
        }
        stores.retain(|_, store| store.strong_count() > 0);
        let store = make();
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_lasts_as_long_as_it_is_used() {
        let stores = Named::new();
        let first = stores.get("a", || Arc::new(1));
        assert!(Arc::ptr_eq(&first, &stores.get("a", || Arc::new(2))));
        assert_eq!(*stores.get("b", || Arc::new(3)), 3);
        drop(first);
        assert_eq!(*stores.get("a", || Arc::new(4)), 4);
    }
}
