//! A recorder that keeps the figures of one test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

type Values = Arc<Mutex<BTreeMap<String, Vec<f64>>>>;

/// All figures, by name and labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Values);

struct Cell {
    values: Values,
    key: String,
}

impl Cell {
    fn change(&self, change: impl FnOnce(&mut Vec<f64>)) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        change(values.entry(self.key.clone()).or_default());
    }

    fn add(&self, by: f64) {
        self.change(|values| {
            let sum = values.pop().unwrap_or_default() + by;
            values.push(sum);
        });
    }
}

impl CounterFn for Cell {
    fn increment(&self, by: u64) {
        self.add(by as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!("counters only grow");
    }
}

impl GaugeFn for Cell {
    fn increment(&self, by: f64) {
        self.add(by);
    }

    fn decrement(&self, by: f64) {
        self.add(-by);
    }

    fn set(&self, _: f64) {
        unreachable!("each value moves its own gauge");
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(|values| values.push(value));
    }
}

impl Figures {
    /// A counter or a gauge, by its name and labels as `name{store=memory}`.
    pub(crate) fn now(&self, key: &str) -> f64 {
        self.all(key).first().copied().unwrap_or_default()
    }

    /// What a histogram was given.
    pub(crate) fn all(&self, key: &str) -> Vec<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned().unwrap_or_default()
    }

    /// All keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Locks held and calls waiting, of a store.
    pub(crate) fn levels_of(&self, store: &str) -> (f64, f64) {
        let level = |name: &str| self.now(&format!("{name}{{store={store}}}"));
        (level("tidelock_locks_held"), level("tidelock_calls_waiting"))
    }

    /// Locks held and calls waiting, of a store in memory.
    pub(crate) fn levels(&self) -> (f64, f64) {
        self.levels_of("memory")
    }

    /// Runs a story on one thread, with these figures as the recorder.
    pub(crate) fn of<F: Future<Output = ()>>(story: impl FnOnce(Self) -> F) -> Self {
        let figures = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        metrics::with_local_recorder(&figures, || {
            runtime.expect("a runtime").block_on(story(figures.clone()))
        });
        figures
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell { values: Arc::clone(&self.0), key: format!("{}{{{}}}", key.name(), labels.join(",")) })
    }
}

impl Recorder for Figures {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}
