//! The mistakes that the store makes on purpose, beside those of its lines.

use crate::model::flaws::flaws;

flaws! {
    /// A leave frees the lock without looking at the id.
    leave_without_id => LeaveWithoutId,
    /// A repeated enter takes a second place.
    enter_twice => EnterTwice,
    /// After a restart without memory, epochs begin anew.
    begin_epochs_anew => EpochFromZero,
    /// After a restart without memory, locks are granted at once.
    skip_restart_rule => NoRestartRule,
    /// After a restore of an older state, locks are granted at once.
    skip_restore_rule => NoRestoreRule,
    /// A claim that expired is still found by its record, and can be renewed and left.
    keep_records => RecordOutlives,
}
