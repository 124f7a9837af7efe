//! Stock in this process: the model itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use crate::{
    backend::Call,
    clock::wall_micros,
    name::Name,
    stock::{Answer, Ledger, SegmentId, Step, StockStore},
};

/// Stock in the memory of this process.
#[derive(Debug, Default)]
pub struct MemoryStock {
    plans: Mutex<HashMap<Name, Plan>>,
    segments: Mutex<HashMap<SegmentId, Arc<Mutex<Option<Ledger>>>>>,
}

#[derive(Debug)]
struct Plan {
    version: u64,
    text: String,
    /// When it is forgotten.
    over: Option<u64>,
}

impl MemoryStock {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The store of this name, shared by the process for as long as anybody uses it.
    pub fn shared(name: &str) -> Arc<Self> {
        static STORES: Mutex<Option<HashMap<String, Weak<MemoryStock>>>> = Mutex::new(None);
        let mut stores = lock(&STORES);
        let stores = stores.get_or_insert_default();
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return store;
        }
        stores.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(Self::new());
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    /// The plans, without those that are over.
    fn plans(&self) -> MutexGuard<'_, HashMap<Name, Plan>> {
        let mut plans = lock(&self.plans);
        if plans.values().any(|plan| plan.over.is_some()) {
            let now = wall_micros();
            plans.retain(|_, plan| plan.over.is_none_or(|over| over > now));
        }
        plans
    }
}

impl StockStore for MemoryStock {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn plan(&self, item: &Name) -> Call<Option<(u64, String)>> {
        let plans = self.plans();
        Call::now(Ok(plans.get(item).map(|plan| (plan.version, plan.text.clone()))))
    }

    fn replan(&self, item: &Name, version: u64, text: &str, keep: Option<Duration>) -> Call<bool> {
        let mut plans = self.plans();
        let fits = plans.get(item).map_or(0, |plan| plan.version) + 1 == version;
        if fits {
            let over = keep.map(|keep| wall_micros().saturating_add(crate::stock::micros(keep)));
            plans.insert(item.clone(), Plan { version, text: text.to_owned(), over });
        }
        Call::now(Ok(fits))
    }

    fn apply(&self, segment: &SegmentId, step: &Step) -> Call<Answer> {
        let ledger = {
            let mut segments = lock(&self.segments);
            match segments.get(segment) {
                Some(ledger) => Arc::clone(ledger),
                None if matches!(step, Step::Fill { .. }) => {
                    Arc::clone(segments.entry(segment.clone()).or_default())
                }
                None => return Call::now(Ok(Answer::Absent)),
            }
        };
        let mut ledger = lock(&ledger);
        Call::now(Ok(Ledger::apply(&mut ledger, step, wall_micros())))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
