//! Every event, span field and metric has its name here; nothing else logs.
//!
//! | metric (feature `metrics`) | kind | labels |
//! |---|---|---|
//! | `tidelock_acquired_total` | counter | `store`, `outcome` = `held`, `busy`, `failed` |
//! | `tidelock_wait_seconds` | histogram | `store` |
//! | `tidelock_handed_off_total` | counter | `store` |
//! | `tidelock_renewed_total` | counter | `store` |
//! | `tidelock_renewal_failed_total` | counter | `store` |
//! | `tidelock_lost_total` | counter | `store`, `reason` = `expired`, `gone`, `evicted`, `max_hold`, `closed` |
//! | `tidelock_store_failed_total` | counter | `store` |
//! | `tidelock_listening_failed_total` | counter | `store` |
//!
//! Spans and events go to `tracing` with the target `tidelock`: losses as errors; failed renewals, failed
//! listening and a store that waiting goes on for as warnings, the rest at the level `debug` or `trace`.
//!
//! | span | around |
//! |---|---|
//! | `wait` (`store`, `lock`) | waiting in line |
//! | `run` (`lock`, `token`) | the work of `run` |

use std::time::Duration;

use tracing::Span;

use crate::{
    backend::Failure,
    error::{Error, LossReason},
    model::name::Name,
    model::token::Token,
};

const TARGET: &str = "tidelock";

#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $by:expr, $($label:literal => $value:expr),*) => {
        metrics::counter!($name, $($label => $value),*).increment($by)
    };
}

#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($($ignored:tt)*) => {};
}

/// Waiting in line.
pub(crate) fn waiting(store: &'static str, name: &Name) -> Span {
    tracing::debug_span!(target: TARGET, "wait", store, lock = %name)
}

/// The work of `run`.
pub(crate) fn running(name: &Name, token: Token) -> Span {
    tracing::debug_span!(target: TARGET, "run", lock = %name, token = token.get())
}

/// The work of `run` under several locks.
pub(crate) fn running_under(locks: usize) -> Span {
    tracing::debug_span!(target: TARGET, "run", locks)
}

/// An acquire came to its end: it holds, it does not, or it failed.
pub(crate) fn acquired(store: &'static str, name: &Name, held: Option<bool>, waited: impl Fn() -> Duration) {
    let outcome = match held {
        Some(true) => "held",
        Some(false) => "busy",
        None => "failed",
    };
    count!("tidelock_acquired_total", 1, "store" => store, "outcome" => outcome);
    #[cfg(feature = "metrics")]
    metrics::histogram!("tidelock_wait_seconds", "store" => store).record(waited());
    tracing::debug!(target: TARGET, store, lock = %name, outcome, waited = ?waited(), "acquired");
}

/// A lock went to the next task of this process.
pub(crate) fn handed_off(store: &'static str) {
    count!("tidelock_handed_off_total", 1, "store" => store);
    tracing::trace!(target: TARGET, store, "handed off");
}

/// A batch of claims was renewed.
pub(crate) fn renewed(store: &'static str, claims: usize) {
    count!("tidelock_renewed_total", claims as u64, "store" => store);
    tracing::trace!(target: TARGET, store, claims, "renewed");
}

/// A batch of claims was not renewed; it is tried again.
pub(crate) fn renewal_failed(store: &'static str, claims: usize, failure: &Failure) {
    count!("tidelock_renewal_failed_total", claims as u64, "store" => store);
    tracing::warn!(target: TARGET, store, claims, %failure, "renewal failed");
}

/// A lock that was held is lost.
pub(crate) fn lost(store: &'static str, name: &Name, reason: LossReason) {
    let reason = match reason {
        LossReason::Expired => "expired",
        LossReason::Gone => "gone",
        LossReason::Evicted => "evicted",
        LossReason::MaxHold => "max_hold",
        LossReason::Closed => "closed",
    };
    count!("tidelock_lost_total", 1, "store" => store, "reason" => reason);
    tracing::error!(target: TARGET, store, lock = %name, reason, "lost");
}

/// The store does not answer a claim that is to enter its line; it is asked again.
pub(crate) fn store_failed(store: &'static str, name: &Name, failure: &Failure) {
    count!("tidelock_store_failed_total", 1, "store" => store);
    tracing::warn!(target: TARGET, store, lock = %name, %failure, "waiting for the store");
}

/// The store of a URL cannot be connected; it is tried again.
pub(crate) fn not_connected(error: &Error) {
    tracing::warn!(target: TARGET, %error, "waiting for the store");
}

/// Pushes may have been missed; every claim in line is asked about.
pub(crate) fn listening_failed(store: &'static str, failure: &Failure) {
    count!("tidelock_listening_failed_total", 1, "store" => store);
    tracing::warn!(target: TARGET, store, %failure, "listening failed");
}

/// A shutdown did not wait for all calls under way.
pub(crate) fn shutdown_incomplete(store: &'static str) {
    tracing::warn!(target: TARGET, store, "calls were still under way at the end of a shutdown");
}
