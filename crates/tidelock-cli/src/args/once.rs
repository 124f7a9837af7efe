//! What jobs that run once per period take.

use clap::Args as Group;
use tidelock::Period;

use crate::values;

/// Whether a command runs once per period.
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
        conflicts_with_all = ["shared", "permits", "more", "owner"]
    )]
    pub(crate) once_per: Option<Period>,
    /// The slot, by its beginning, as the scheduler knows it
    ///
    /// Such as 2026-11-16T10:15, in UTC or with an offset such as +01:00. Default: the slot of now.
    #[arg(long, value_name = "TIME", requires = "once_per")]
    pub(crate) slot: Option<String>,
    /// Free the slot if the command fails
    #[arg(long, requires = "once_per")]
    pub(crate) retry_failed: bool,
}
