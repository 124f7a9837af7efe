//! What an operator sees: spans, events and metrics, under the names of `events.rs`.
#![cfg(feature = "metrics")]

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata as About, Recorder, SharedString, Unit,
};
use tidelock::Locks;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Writes down what it is told.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn note(&self, line: String) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(line);
    }

    fn has(&self, line: &str) -> bool {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().any(|seen| seen.contains(line))
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Seen {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target() == "tidelock"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(format!("span {}", span.metadata().name()));
        span.record(&mut fields);
        self.note(fields.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(format!("{}", event.metadata().level()));
        event.record(&mut fields);
        self.note(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Count(Seen, String, AtomicU64);

impl CounterFn for Count {
    fn increment(&self, by: u64) {
        let now = self.2.fetch_add(by, Ordering::SeqCst) + by;
        self.0.note(format!("{} {now}", self.1));
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &About<'_>) -> Counter {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Counter::from_arc(Arc::new(Count(self.clone(), name, AtomicU64::new(0))))
    }

    fn register_gauge(&self, _: &Key, _: &About<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &About<'_>) -> Histogram {
        self.note(key.name().to_owned());
        Histogram::noop()
    }
}

#[test]
fn an_operator_sees_waiting_losing_and_counting() {
    let seen = Seen::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let story = async {
        let locks = Locks::connect("memory:").await.unwrap();
        let limit = Duration::from_millis(50);
        let held = locks.mutex("orders/42").max_hold(limit).lock().await.unwrap();
        assert!(locks.mutex("orders/42").try_lock().await.unwrap().is_none());
        let mutex = locks.mutex("orders/42");
        let (next, why) = tokio::join!(mutex.lock(), held.lost());
        assert!(why.is_lost());
        next.unwrap().run(|_| async {}).await.unwrap();
    };
    tracing::subscriber::with_default(seen.clone(), || {
        metrics::with_local_recorder(&seen, || runtime.block_on(story));
    });
    for expected in [
        "span wait store=\"memory\" lock=orders/42",
        "span run lock=orders/42 token=",
        "ERROR message=lost store=\"memory\" lock=orders/42 reason=\"max_hold\"",
        "tidelock_acquired_total{store=memory,outcome=held}",
        "tidelock_acquired_total{store=memory,outcome=busy}",
        "tidelock_lost_total{store=memory,reason=max_hold} 1",
        "tidelock_wait_seconds",
    ] {
        assert!(seen.has(expected), "{expected} is not in {seen:?}");
    }
}

#[cfg(feature = "testing")]
#[test]
fn an_operator_sees_that_a_dropped_guard_had_lost_its_lock_and_what_is_waited_for() {
    use tidelock::{
        backend::ClientId,
        testing::{
            Clock,
            defect::Defects,
            faulty::{Faults, FaultyStore},
        },
    };

    let seen = Seen::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let story = async {
        let faults = Faults { delay_ms: 1, ..Faults::default() };
        let store = FaultyStore::new(1, faults, Clock::driven(0), Defects::NONE);
        let id = ClientId::from_u64(1);
        let locks = Locks::on_clock(store.connect(id), Clock::driven(0), Defects::NONE);
        let held = locks.mutex("orders/42").lock().await.unwrap();
        store.forget("orders/42");
        drop(held);
        tokio::time::sleep(Duration::from_secs(1)).await;
        store.stop();
        assert!(locks.mutex("orders/7").wait(Duration::from_secs(5)).lock().await.is_err());
    };
    tracing::subscriber::with_default(seen.clone(), || {
        metrics::with_local_recorder(&seen, || runtime.unwrap().block_on(story));
    });
    for expected in [
        "ERROR message=lost store=\"faulty\" lock=orders/42 reason=\"gone\"",
        "tidelock_lost_total{store=faulty,reason=gone} 1",
        "WARN message=waiting for the store store=\"faulty\" lock=orders/7 failure=the store is down",
        "tidelock_store_failed_total{store=faulty}",
    ] {
        assert!(seen.has(expected), "{expected} is not in {seen:?}");
    }
}
