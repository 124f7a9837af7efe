//! `GET /metrics`: figures for Prometheus, of the locks held through this server, of the process, and of the whole
//! store if it is observed. The library counts the locks; what it counts is in its `events.rs`.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `tidelock_serve_streams_open` | gauge | |
//! | `tidelock_store_locks_held` | gauge | `store`, `group` |
//! | `tidelock_store_claims_waiting` | gauge | `store`, `group` |
//! | `tidelock_store_longest_hold_seconds` | gauge | `store`, `group` |
//! | `tidelock_store_longest_line_length` | gauge | `store`, `group` |
//! | `tidelock_store_oldest_waiter_seconds` | gauge | `store`, `group` |
//! | `tidelock_store_silent_seconds` | gauge | `store` |
//! | `tidelock_store_clock_jumped_total` | counter | `store` |
//!
//! Those of the process have the names that every Prometheus client uses, such as `process_open_fds`.

use std::{collections::BTreeMap, fs, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rustix::process::{Resource, getrlimit};

use super::Server;
use crate::{
    clock::{Moment, unix_ms},
    observe::{Lock, Observer},
    output::Trouble,
};

/// Waits and holds last from a millisecond to hours; a renewal is a round trip.
const BUCKETS: [f64; 17] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// How often what was measured is put into buckets, so that it does not pile up if nobody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Sets a gauge, with those labels that have a value.
macro_rules! level {
    ($name:literal, $value:expr $(, $label:literal => $text:expr)*) => {{
        #[allow(unused_mut, reason = "not every gauge has labels")]
        let mut labels = Vec::<metrics::Label>::new();
        $(
            if let Some(text) = Option::<String>::from($text) {
                labels.push(metrics::Label::new($label, text));
            }
        )*
        metrics::gauge!($name, labels).set($value)
    }};
}

/// Sets a counter to what was counted elsewhere.
macro_rules! count {
    ($name:literal, $value:expr, $label:literal => $text:expr) => {
        metrics::counter!($name, $label => $text).absolute($value)
    };
}

/// What can be asked for at `/metrics`.
#[derive(Debug)]
pub(super) struct Figures {
    handle: PrometheusHandle,
    groups: Vec<String>,
    /// Whether the figures of the whole store are wanted.
    whole_store: bool,
    /// In milliseconds since 1970.
    started: u64,
}

/// The recorder, which has to be there before anything is counted.
#[derive(Debug)]
pub(super) struct Recorder(PrometheusHandle);

impl Recorder {
    /// Counts from now on, in this process.
    pub(super) fn install() -> Result<Self, Trouble> {
        let buckets =
            PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS);
        let handle = buckets.and_then(PrometheusBuilder::install_recorder);
        let handle = handle.map_err(|error| Trouble::Usage(format!("metrics cannot be counted: {error}")))?;
        describe();
        Ok(Self(handle))
    }

    pub(super) fn figures(self, groups: Vec<String>, whole_store: bool) -> Figures {
        Figures { handle: self.0, groups, whole_store, started: unix_ms(Moment::now()) }
    }
}

impl Figures {
    /// All figures as they are now.
    pub(super) fn render(&self, server: &Server) -> String {
        level!("tidelock_serve_streams_open", server.limits.open() as f64);
        self.process();
        if self.whole_store {
            self.store(server.locks.abilities().store, &server.observer);
        }
        self.handle.render()
    }

    /// Runs until it is dropped.
    pub(super) async fn keep_up(&self) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }

    /// The whole store, as it was last seen.
    fn store(&self, store: &str, observer: &Observer) {
        let now = Moment::now();
        let seen = observer.snapshot();
        // A group without locks is at zero, and not where it was.
        let groups =
            self.groups.iter().map(String::as_str).chain((!self.groups.is_empty()).then_some("other"));
        let mut sums: BTreeMap<Option<&str>, Sum> =
            groups.map(|group| (Some(group), Sum::default())).collect();
        if self.groups.is_empty() {
            sums.insert(None, Sum::default());
        }
        for lock in &seen.locks {
            sums.entry(group_of(&self.groups, lock.name.as_str())).or_default().add(lock, now);
        }
        for (group, sum) in sums {
            let group = || group.map(ToOwned::to_owned);
            let store = || store.to_owned();
            level!("tidelock_store_locks_held", sum.held as f64, "store" => store(), "group" => group());
            level!("tidelock_store_claims_waiting", sum.waiting as f64, "store" => store(), "group" => group());
            level!("tidelock_store_longest_hold_seconds", sum.hold.as_secs_f64(), "store" => store(), "group" => group());
            level!("tidelock_store_longest_line_length", sum.line as f64, "store" => store(), "group" => group());
            level!("tidelock_store_oldest_waiter_seconds", sum.wait.as_secs_f64(), "store" => store(), "group" => group());
        }
        let silent =
            seen.health.since.filter(|_| !seen.health.is_well()).map_or(Duration::ZERO, |at| now.since(at));
        level!("tidelock_store_silent_seconds", silent.as_secs_f64(), "store" => store.to_owned());
        count!("tidelock_store_clock_jumped_total", seen.health.jumps, "store" => store.to_owned());
    }

    fn process(&self) {
        metrics::gauge!("process_start_time_seconds").set(self.started as f64 / 1_000.0);
        if let Some(files) = getrlimit(Resource::Nofile).current {
            metrics::gauge!("process_max_fds").set(files as f64);
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            metrics::gauge!("process_open_fds").set(files.count() as f64);
        }
        if let Some(bytes) = resident_bytes() {
            metrics::gauge!("process_resident_memory_bytes").set(bytes as f64);
        }
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        // Whole seconds, as counters have no fractions here.
        metrics::counter!("process_cpu_seconds_total").absolute(used.tv_sec as u64);
    }
}

/// What is known of a group.
#[derive(Debug, Default)]
struct Sum {
    held: usize,
    waiting: usize,
    line: usize,
    hold: Duration,
    wait: Duration,
}

impl Sum {
    fn add(&mut self, lock: &Lock, now: Moment) {
        self.held += usize::from(!lock.holders.is_empty());
        self.waiting += lock.waiters.len();
        self.line = self.line.max(lock.waiters.len());
        let age = |claims: &[crate::observe::Claim]| claims.iter().map(|claim| now.since(claim.since)).max();
        self.hold = self.hold.max(age(&lock.holders).unwrap_or_default());
        self.wait = self.wait.max(age(&lock.waiters).unwrap_or_default());
    }
}

/// The group of a name, as the library chooses it: the first pattern that it matches, else `other`.
fn group_of<'a>(groups: &'a [String], name: &str) -> Option<&'a str> {
    let matches = |pattern: &&String| {
        pattern.strip_suffix('*').map_or(pattern.as_str() == name, |prefix| name.starts_with(prefix))
    };
    let found = groups.iter().find(matches).map(String::as_str);
    found.or((!groups.is_empty()).then_some("other"))
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn describe() {
    use metrics::{describe_counter as counter, describe_gauge as gauge};
    gauge!("tidelock_serve_streams_open", "Streams of clients that are open");
    gauge!("tidelock_store_locks_held", "Locks of the whole store that are held");
    gauge!("tidelock_store_claims_waiting", "Claims that wait for a lock, in the whole store");
    gauge!("tidelock_store_longest_hold_seconds", "How long the lock that is held longest has been held");
    gauge!("tidelock_store_longest_line_length", "How many claims wait for the lock with the longest line");
    gauge!("tidelock_store_oldest_waiter_seconds", "How long the claim that waits longest has waited");
    gauge!("tidelock_store_silent_seconds", "How long the store has not answered looks; 0 if it answers");
    counter!(
        "tidelock_store_clock_jumped_total",
        "Times that the store's clock was seen to jump by more than 1.5 s"
    );
    gauge!("process_start_time_seconds", "When this server was started, in seconds since 1970");
    gauge!("process_max_fds", "How many files this server may have open");
    gauge!("process_open_fds", "How many files this server has open");
    gauge!("process_resident_memory_bytes", "Memory of this server");
    counter!("process_cpu_seconds_total", "Processor time of this server");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_the_group_that_the_library_counts_it_in() {
        let groups = ["orders/vip/*", "orders/*", "report"].map(ToOwned::to_owned);
        for (name, group) in [
            ("orders/vip/1", "orders/vip/*"),
            ("orders/1", "orders/*"),
            ("report", "report"),
            ("reports", "other"),
        ] {
            assert_eq!(group_of(&groups, name), Some(group), "{name}");
        }
        assert_eq!(group_of(&[], "report"), None);
    }
}
