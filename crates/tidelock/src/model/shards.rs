//! A map from names to what is kept for them, in shards so that unrelated names do not meet.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::model::name::Name;

const SHARDS: usize = 32;

/// The map.
#[derive(Debug)]
pub(crate) struct Shards<V> {
    shards: Box<[Mutex<Shard<V>>]>,
}

/// One shard, to be locked for a moment.
#[derive(Debug)]
pub(crate) struct Shard<V> {
    by_name: HashMap<Name, V, BuildHasherDefault<KnownHash>>,
    sweep_at: usize,
}

impl<V: Default> Shards<V> {
    pub(crate) fn new() -> Self {
        let shard = || Mutex::new(Shard { by_name: HashMap::default(), sweep_at: 64 });
        Self { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    /// The shard of a name.
    pub(crate) fn lock(&self, name: &Name) -> MutexGuard<'_, Shard<V>> {
        // Other bits than those that the map itself uses.
        lock(&self.shards[(name.hash_code() >> 32) as usize % SHARDS])
    }

    /// Whether this is so for anything that is kept.
    pub(crate) fn any(&self, mut is_so: impl FnMut(&V) -> bool) -> bool {
        self.shards.iter().any(|shard| lock(shard).by_name.values().any(&mut is_so))
    }

    /// Each name and what is kept for it, in the order of the names.
    pub(crate) fn collect<T>(&self, mut each: impl FnMut(&Name, &V) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            found.extend(
                shard.by_name.iter().filter_map(|(name, value)| Some((name.clone(), each(name, value)?))),
            );
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.into_iter().map(|(_, value)| value).collect()
    }
}

impl<V: Default> Shard<V> {
    /// What is kept for a name, if anything is.
    pub(crate) fn get(&mut self, name: &Name) -> Option<&mut V> {
        self.by_name.get_mut(name)
    }

    /// What is kept for a name, made if there is nothing.
    ///
    /// Names come by the million: those that `is_idle` are swept out now and then, not at once,
    /// because the next claim on the same name usually comes soon.
    pub(crate) fn get_or_make(&mut self, name: &Name, is_idle: impl Fn(&V) -> bool) -> &mut V {
        // Looked up twice, because an entry would need a copy of a name that is mostly there already.
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= self.sweep_at {
                self.by_name.retain(|_, value| !is_idle(value));
                // Twice as many as are needed, so that sweeping costs each newcomer a constant.
                self.sweep_at = (self.by_name.len() * 2).max(64);
            }
            self.by_name.insert(name.clone(), V::default());
        }
        self.by_name.get_mut(name).expect("it is there, or was just put there")
    }
}

/// A name knows its hash.
#[derive(Debug, Default)]
struct KnownHash(u64);

impl Hasher for KnownHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("names write their hash as a number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_names_do_not_pile_up_and_used_ones_stay() {
        let shards = Shards::<bool>::new();
        for i in 0..100_000 {
            let name = Name::new(&format!("orders/{i}")).unwrap();
            *shards.lock(&name).get_or_make(&name, |used| !used) = i % 1_000 == 0;
        }
        let kept = shards.collect(|_, used| Some(*used));
        assert_eq!(kept.iter().filter(|used| **used).count(), 100);
        assert!(kept.len() < 10_000, "{} kept", kept.len());
    }
}
