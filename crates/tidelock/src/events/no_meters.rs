//! In place of `meters.rs` without the feature `metrics`: values without size that do nothing.

use super::Events;
use crate::model::name::Name;

/// Whether a claim holds.
#[derive(Debug)]
pub(crate) struct HoldMeter;

impl HoldMeter {
    /// The claim holds, or does not.
    pub(crate) fn set(&mut self, _holds: bool) {}

    /// The claim holds for another caller now.
    pub(crate) fn begin_next(&mut self) {}
}

/// A caller that waits.
#[derive(Debug)]
pub(crate) struct WaitMeter;

impl Events {
    /// The meter of a claim that does not hold yet.
    pub(crate) fn hold_meter(&self, _name: &Name) -> HoldMeter {
        HoldMeter
    }

    /// The meter of a caller that begins to wait.
    pub(crate) fn wait_meter(&self, _name: &Name) -> WaitMeter {
        WaitMeter
    }
}
