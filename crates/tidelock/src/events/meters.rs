//! Levels that cannot be forgotten: each is raised by a value and falls when that value is dropped.
//!
//! A claim of the local line has a [`HoldMeter`], a caller that waits has a [`WaitMeter`]. However either ends
//! (released, lost, cancelled, shut down, unwound by a panic), its meter is dropped with it. A meter lowers the gauge
//! that it raised, also if another recorder was installed in between.

use std::{fmt, sync::Arc};

use metrics::Gauge;

use super::Events;
use crate::{clock::Moment, model::name::Name};

/// Whether a claim holds, and since when.
pub(crate) struct HoldMeter {
    events: Events,
    group: Option<Arc<str>>,
    held: Option<(Gauge, Moment)>,
}

impl HoldMeter {
    /// The claim holds, or does not.
    pub(crate) fn set(&mut self, holds: bool) {
        if holds == self.held.is_some() {
            return;
        }
        if let Some((gauge, since)) = self.held.take() {
            gauge.decrement(1.0);
            self.events.held_for(self.group.clone(), self.now().since(since));
        } else {
            let gauge = self.events.locks_held(self.group.clone());
            gauge.increment(1.0);
            self.held = Some((gauge, self.now()));
        }
    }

    /// The claim holds for another caller now: one hold ended, and the next began.
    pub(crate) fn begin_next(&mut self) {
        self.set(false);
        self.set(true);
    }

    fn now(&self) -> Moment {
        self.events.0.clock.now()
    }
}

impl Drop for HoldMeter {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl fmt::Debug for HoldMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldMeter").field("since", &self.held.as_ref().map(|(_, since)| since)).finish()
    }
}

/// A caller that waits.
pub(crate) struct WaitMeter(Gauge);

impl Drop for WaitMeter {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl fmt::Debug for WaitMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitMeter")
    }
}

impl Events {
    /// The meter of a claim that does not hold yet.
    pub(crate) fn hold_meter(&self, name: &Name) -> HoldMeter {
        HoldMeter { events: self.clone(), group: self.group(name), held: None }
    }

    /// The meter of a caller that begins to wait.
    pub(crate) fn wait_meter(&self, name: &Name) -> WaitMeter {
        let gauge = self.calls_waiting(self.group(name));
        gauge.increment(1.0);
        WaitMeter(gauge)
    }
}

/// Says what each metric means, to recorders that show it.
pub(super) fn describe() {
    use metrics::{
        Unit::Seconds, describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram,
    };
    gauge!("tidelock_locks_held", "Locks that this process holds");
    gauge!("tidelock_calls_waiting", "Calls of this process that wait for a lock");
    counter!("tidelock_acquired_total", "Acquires that ended, by outcome");
    histogram!("tidelock_wait_seconds", Seconds, "Time from the call to its outcome");
    histogram!("tidelock_hold_seconds", Seconds, "Time from the grant to the release or loss");
    counter!("tidelock_handed_off_total", "Locks handed to the next task of this process");
    counter!("tidelock_renewed_total", "Claims renewed");
    counter!("tidelock_renewed_late_total", "Claims renewed with less than a third of the lease left");
    counter!("tidelock_renewal_failed_total", "Claims whose renewal was not confirmed");
    histogram!("tidelock_renewal_seconds", Seconds, "Round trip of a call that renews claims");
    counter!("tidelock_lost_total", "Locks lost while they were held, by reason");
    counter!("tidelock_store_failed_total", "Acquires that the store did not answer");
    counter!("tidelock_listening_failed_total", "Interruptions of the news from the store");
    counter!(
        "tidelock_clock_jumped_total",
        "Times that a server's clock was seen to jump, where servers tell their time"
    );
}
