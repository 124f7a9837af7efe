//! Every event, span field and metric has its name here; nothing else logs.
//!
//! | metric (feature `metrics`) | kind | labels |
//! |---|---|---|
//! | `tidelock_locks_held` | gauge | `store`, `group` |
//! | `tidelock_calls_waiting` | gauge | `store`, `group` |
//! | `tidelock_acquired_total` | counter | `store`, `group`, `outcome` = `held`, `busy`, `failed` |
//! | `tidelock_wait_seconds` | histogram | `store`, `group` |
//! | `tidelock_hold_seconds` | histogram | `store`, `group` |
//! | `tidelock_handed_off_total` | counter | `store`, `group` |
//! | `tidelock_renewed_total` | counter | `store` |
//! | `tidelock_renewed_late_total` | counter | `store` |
//! | `tidelock_renewal_failed_total` | counter | `store` |
//! | `tidelock_renewal_seconds` | histogram | `store` |
//! | `tidelock_lost_total` | counter | `store`, `group`, `reason` = `expired`, `gone`, `evicted`, `max_hold`, `closed` |
//! | `tidelock_store_failed_total` | counter | `store` |
//! | `tidelock_listening_failed_total` | counter | `store` |
//! | `tidelock_clock_jumped_total` | counter | `store` |
//!
//! The label `group` is there if the client was given groups: see [`groups`].
//!
//! Spans and events go to `tracing` with the target `tidelock`: losses as errors; failed renewals, failed
//! listening, clocks that jump and a store that waiting goes on for as warnings, the rest at the level `debug` or `trace`.
//!
//! | span | around |
//! |---|---|
//! | `wait` (`store`, `lock`) | waiting in line |
//! | `run` (`lock`, `token`) | the work of `run` |

mod groups;
#[cfg(feature = "metrics")]
mod labels;
#[cfg_attr(not(feature = "metrics"), path = "events/no_meters.rs")]
mod meters;

use std::{sync::Arc, time::Duration};

use tracing::Span;

#[cfg(feature = "metrics")]
use self::labels::labels;
pub(crate) use self::{
    groups::Groups,
    meters::{HoldMeter, WaitMeter},
};
use crate::{
    backend::Failure,
    clock::Clock,
    error::{Error, LossReason},
    model::name::Name,
    model::token::Token,
};

const TARGET: &str = "tidelock";

/// A counter grows.
#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $by:expr, $($labels:tt)*) => {
        metrics::counter!($name, labels!($($labels)*)).increment($by)
    };
}

/// A histogram gets a value.
#[cfg(feature = "metrics")]
macro_rules! measure {
    ($name:literal, $value:expr, $($labels:tt)*) => {
        metrics::histogram!($name, labels!($($labels)*)).record($value)
    };
}

/// A gauge, to be moved by who has it.
#[cfg(feature = "metrics")]
macro_rules! level {
    ($name:literal, $($labels:tt)*) => {
        metrics::gauge!($name, labels!($($labels)*))
    };
}

#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($($ignored:tt)*) => {};
}

#[cfg(not(feature = "metrics"))]
macro_rules! measure {
    ($($ignored:tt)*) => {};
}

/// What one client tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<About>);

/// Of whom it is told.
#[derive(Debug)]
struct About {
    store: &'static str,
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics have groups"))]
    groups: Groups,
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics measure holds"))]
    clock: Clock,
}

impl Events {
    pub(crate) fn new(store: &'static str, groups: Groups, clock: Clock) -> Self {
        let events = Self(Arc::new(About { store, groups, clock }));
        #[cfg(feature = "metrics")]
        events.begin_at_zero();
        events
    }

    fn store(&self) -> &'static str {
        self.0.store
    }

    /// Waiting in line.
    pub(crate) fn waiting(&self, name: &Name) -> Span {
        tracing::debug_span!(target: TARGET, "wait", store = self.store(), lock = %name)
    }

    /// An acquire came to its end: it holds, it does not, or it failed.
    pub(crate) fn acquired(&self, name: &Name, held: Option<bool>, waited: impl Fn() -> Duration) {
        let store = self.store();
        let outcome = match held {
            Some(true) => "held",
            Some(false) => "busy",
            None => "failed",
        };
        count!("tidelock_acquired_total", 1, "store" => store, "group" => self.group(name), "outcome" => outcome);
        measure!("tidelock_wait_seconds", waited(), "store" => store, "group" => self.group(name));
        tracing::debug!(target: TARGET, store, lock = %name, outcome, waited = ?waited(), "acquired");
    }

    /// A lock went to the next task of this process.
    pub(crate) fn handed_off(&self, #[allow(unused_variables, reason = "for metrics")] name: &Name) {
        count!("tidelock_handed_off_total", 1, "store" => self.store(), "group" => self.group(name));
        tracing::trace!(target: TARGET, store = self.store(), "handed off");
    }

    /// A batch of claims was renewed; the answer took this long.
    pub(crate) fn renewed(&self, claims: usize, took: impl Fn() -> Duration) {
        let store = self.store();
        count!("tidelock_renewed_total", claims as u64, "store" => store);
        measure!("tidelock_renewal_seconds", took(), "store" => store);
        tracing::trace!(target: TARGET, store, claims, took = ?took(), "renewed");
    }

    /// A claim that holds was renewed when most of its lease had passed.
    pub(crate) fn renewed_late(&self, name: &Name, left: Duration) {
        let store = self.store();
        count!("tidelock_renewed_late_total", 1, "store" => store);
        tracing::warn!(target: TARGET, store, lock = %name, ?left, "renewed late");
    }

    /// A batch of claims was not renewed; it is tried again.
    pub(crate) fn renewal_failed(&self, claims: usize, failure: &Failure) {
        let store = self.store();
        count!("tidelock_renewal_failed_total", claims as u64, "store" => store);
        tracing::warn!(target: TARGET, store, claims, %failure, "renewal failed");
    }

    /// A lock that was held is lost.
    pub(crate) fn lost(&self, name: &Name, reason: LossReason) {
        let store = self.store();
        let reason = match reason {
            LossReason::Expired => "expired",
            LossReason::Gone => "gone",
            LossReason::Evicted => "evicted",
            LossReason::MaxHold => "max_hold",
            LossReason::Closed => "closed",
        };
        count!("tidelock_lost_total", 1, "store" => store, "group" => self.group(name), "reason" => reason);
        tracing::error!(target: TARGET, store, lock = %name, reason, "lost");
    }

    /// The store does not answer a claim that is to enter its line; it is asked again.
    pub(crate) fn store_failed(&self, name: &Name, failure: &Failure) {
        let store = self.store();
        count!("tidelock_store_failed_total", 1, "store" => store);
        tracing::warn!(target: TARGET, store, lock = %name, %failure, "waiting for the store");
    }

    /// Pushes may have been missed; every claim in line is asked about.
    pub(crate) fn listening_failed(&self, failure: &Failure) {
        let store = self.store();
        count!("tidelock_listening_failed_total", 1, "store" => store);
        tracing::warn!(target: TARGET, store, %failure, "listening failed");
    }

    /// A shutdown did not wait for all calls under way.
    pub(crate) fn shutdown_incomplete(&self) {
        tracing::warn!(target: TARGET, store = self.store(), "calls were still under way at the end of a shutdown");
    }
}

/// The levels and the time that the meters of claims and callers report.
#[cfg(feature = "metrics")]
impl Events {
    /// A counter that alerts watch is there before it counts: an increase from nothing to one is none for Prometheus.
    fn begin_at_zero(&self) {
        meters::describe();
        let store = self.store();
        for group in self.0.groups.all() {
            for reason in ["expired", "gone", "evicted", "max_hold", "closed"] {
                count!("tidelock_lost_total", 0, "store" => store, "group" => group.clone(), "reason" => reason);
            }
        }
        count!("tidelock_renewed_late_total", 0, "store" => store);
        count!("tidelock_renewal_failed_total", 0, "store" => store);
    }

    fn group(&self, name: &Name) -> Option<Arc<str>> {
        self.0.groups.of(name)
    }

    fn locks_held(&self, group: Option<Arc<str>>) -> metrics::Gauge {
        level!("tidelock_locks_held", "store" => self.store(), "group" => group)
    }

    fn calls_waiting(&self, group: Option<Arc<str>>) -> metrics::Gauge {
        level!("tidelock_calls_waiting", "store" => self.store(), "group" => group)
    }

    fn held_for(&self, group: Option<Arc<str>>, time: Duration) {
        measure!("tidelock_hold_seconds", time, "store" => self.store(), "group" => group);
    }
}

/// Jumps of the clocks of servers are counted from now on.
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only its servers tell their time"))]
pub(crate) fn watch_clocks(#[allow(unused_variables, reason = "for metrics")] store: &'static str) {
    count!("tidelock_clock_jumped_total", 0, "store" => store);
}

/// The clock of a server jumped, as its answers show. Leases there run on it.
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only its servers tell their time"))]
pub(crate) fn clock_jumped(store: &'static str, failure: &Failure) {
    count!("tidelock_clock_jumped_total", 1, "store" => store);
    tracing::warn!(target: TARGET, store, %failure, "clock jumped");
}

/// The work of `run`.
pub(crate) fn running(name: &Name, token: Token) -> Span {
    tracing::debug_span!(target: TARGET, "run", lock = %name, token = token.get())
}

/// The work of `run` under several locks.
pub(crate) fn running_under(locks: usize) -> Span {
    tracing::debug_span!(target: TARGET, "run", locks)
}

/// The store of a URL cannot be connected; it is tried again.
pub(crate) fn not_connected(error: &Error) {
    tracing::warn!(target: TARGET, %error, "waiting for the store");
}
