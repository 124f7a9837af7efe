//! What jobs take that several machines start at the same time.

use std::time::Duration;

use clap::Args as Group;
use tidelock::Period;

use crate::values;

/// Whether a command runs once per period, or not again for a while.
#[derive(Debug, Group)]
pub(crate) struct OncePer {
    /// Run at most once per 15m, 1d, week or month
    ///
    /// Of all that start the command for a slot of the period, one runs it. The others say who
    /// runs or ran it, and exit with 0 or with --busy-code. Slots follow the time of day in UTC.
    /// A slot is done when its run has ended, whatever the exit code; `tidelock ls --done` lists
    /// them. If the runner is killed, the slot is free again after the ttl. --wait covers only a
    /// store that does not answer.
    #[arg(
        long,
        value_name = "PERIOD",
        value_parser = values::period,
        allow_hyphen_values = true,
        conflicts_with_all = ["shared", "write", "permits", "more", "owner"]
    )]
    pub(crate) once_per: Option<Period>,
    /// The slot, by the time at which it begins
    ///
    /// As the scheduler knows it, such as 2026-11-16T10:15, in UTC or with an offset such as
    /// +01:00. Default: the slot of now.
    #[arg(long, value_name = "TIME", requires = "once_per")]
    pub(crate) slot: Option<String>,
    /// Free the slot if the command fails
    #[arg(long, requires = "once_per")]
    pub(crate) retry_failed: bool,
    /// Keep others out for at least this long
    ///
    /// For short commands that several machines start at the same time, each by its own clock. If
    /// the command ends earlier, tidelock stays until this time has passed, and exits with the
    /// code of the command then. If a signal ends tidelock meanwhile, or if it is killed, the lock
    /// stays held until its ttl ends, which is then at least this long.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = values::duration,
        allow_hyphen_values = true,
        conflicts_with_all = ["owner", "once_per"]
    )]
    pub(crate) hold_at_least: Option<Duration>,
}
