//! Stores with something in front: one that counts steps, and one that loses questions and answers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    backend::{Call, Failure},
    model::name::Name,
    stock::{Answer, SegmentId, Step, StockStore},
    testing::rng::Rng,
};

/// Counts the steps of a store.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn StockStore>,
    steps: Arc<AtomicU64>,
}

impl Counted {
    /// Counts here.
    pub fn new(inner: Arc<dyn StockStore>, steps: &Arc<AtomicU64>) -> Self {
        Self { inner, steps: Arc::clone(steps) }
    }
}

impl StockStore for Counted {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.inner.plan(item)
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.inner.replan(item, before, text, keep)
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.inner.apply(segment, sale, step)
    }
}

/// Loses questions and answers, repeats what it was asked long ago, and cannot be reached at times.
#[derive(Debug)]
pub struct Lossy {
    inner: Arc<dyn StockStore>,
    rng: Mutex<Rng>,
    /// What was asked and is asked once more, by a network that delivers late.
    late: Mutex<Vec<(SegmentId, u64, Step)>>,
}

/// What happens to a question, in so many of a thousand cases each.
const LOST: u64 = 60;

impl Lossy {
    /// Faults by a seed.
    pub fn new(inner: Arc<dyn StockStore>, seed: u64) -> Self {
        Self { inner, rng: Mutex::new(Rng::new(seed)), late: Mutex::default() }
    }

    fn chance(&self, per_mille: u64) -> bool {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).chance(per_mille)
    }

    /// Something that was asked before, out of order.
    fn late(&self) -> Option<(SegmentId, u64, Step)> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(late.len() as u64);
        (!late.is_empty()).then(|| late.swap_remove(at as usize))
    }
}

impl StockStore for Lossy {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        if self.chance(LOST) {
            return Call::now(Err(Failure::unreachable("lost on purpose")));
        }
        self.inner.plan(item)
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        if self.chance(LOST) {
            return Call::now(Err(Failure::unknown("the question was lost on purpose")));
        }
        let done = self.inner.replan(item, before, text, keep);
        if !self.chance(LOST) {
            return done;
        }
        Call::later(async move {
            done.await?;
            Err(Failure::unknown("the answer was lost on purpose"))
        })
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        if self.chance(LOST) {
            return Call::now(Err(Failure::unreachable("not reached on purpose")));
        }
        if self.chance(LOST) {
            // Not now: it arrives when nobody expects it any more.
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            late.push((segment.clone(), sale, step.clone()));
            return Call::now(Err(Failure::unknown("the question was held up on purpose")));
        }
        let late = if self.chance(LOST) { self.late() } else { None };
        let late = late.map(|(segment, sale, step)| self.inner.apply(&segment, sale, &step));
        let (inner, lost) = (Arc::clone(&self.inner), self.chance(LOST));
        let (segment, step) = (segment.clone(), step.clone());
        Call::later(async move {
            if let Some(late) = late {
                // The caller has gone.
                let _ = late.await;
            }
            let answer = inner.apply(&segment, sale, &step).await?;
            if lost { Err(Failure::unknown("the answer was lost on purpose")) } else { Ok(answer) }
        })
    }
}
