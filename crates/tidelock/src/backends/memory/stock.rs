//! Stock in this process: the model itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use crate::{
    backend::Call,
    backends::shared::{mutex::lock, named::Named},
    clock::wall_micros,
    model::name::Name,
    stock::{Answer, Ledger, SegmentId, Step, StockStore},
};

/// Stock in the memory of this process.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// # use std::sync::Arc;
/// use tidelock::{backends::memory::MemoryStock, stock::Stocks};
///
/// let stocks = Stocks::with_stores(vec![Arc::new(MemoryStock::new())])?;
/// assert_eq!(stocks.open("10001", 1000).await?.remaining().await?, 1000);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct MemoryStock {
    plans: Mutex<HashMap<Name, Plan>>,
    segments: Mutex<HashMap<SegmentId, Arc<Mutex<Option<Ledger>>>>>,
}

#[derive(Debug)]
struct Plan {
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
        static STORES: Named<MemoryStock> = Named::new();
        STORES.get(name, || Arc::new(Self::new()))
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

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        let plans = self.plans();
        Call::now(Ok(plans.get(item).map(|plan| plan.text.clone())))
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        let mut plans = self.plans();
        let fits = plans.get(item).map(|plan| &*plan.text) == before;
        if fits {
            let over = keep.map(|keep| wall_micros().saturating_add(crate::stock::micros(keep)));
            plans.insert(item.clone(), Plan { text: text.to_owned(), over });
        }
        Call::now(Ok(fits))
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
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
        Call::now(Ok(Ledger::apply(&mut ledger, sale, step, wall_micros())))
    }
}
