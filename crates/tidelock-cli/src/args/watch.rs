//! `tidelock top` and `tidelock events`.

use std::time::Duration;

use clap::{Args as Group, ValueEnum};

use super::Store;
use crate::values;

/// Show all locks live, in a terminal
///
/// Every lock in use: who holds it, for how long, how much of the lease is left, and how many
/// wait. Enter shows the line of a lock and what happened to it. Keys are listed with ?.
///
/// top looks as often as takes at most 2 % of the store's time; locks on the screen more often.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock top
  tidelock top orders/ --sort waiting      locks that begin with orders/
  tidelock top --once                      print once, for scripts")]
pub(crate) struct Top {
    /// Show only locks whose names begin with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Print all locks once, as text, and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Sort by name, age, waiting or left
    #[arg(long, value_name = "KEY", value_enum, hide_possible_values = true, default_value = "name")]
    pub(crate) sort: Sort,
    /// Look at all locks this often
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) interval: Option<Duration>,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// In which order locks are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// By name
    #[default]
    Name,
    /// The one that is held longest first
    Age,
    /// The longest line first
    Waiting,
    /// The least time left first
    Left,
}

/// Print what happens to locks, as it happens
///
/// A line for each event: queued, granted, renewed_late, released, expired, evicted, lost, gone.
/// The first line says since when events are seen. `gone` was released or evicted: it is not
/// known which. A hold that is shorter than the time between two looks may not be seen.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock events
  tidelock events orders/ reports/             of names that begin so
  tidelock events --json | jq -c 'select(.event == \"expired\")'")]
pub(crate) struct Events {
    /// Print only events of locks whose names begin with one of these
    #[arg(value_name = "NAME")]
    pub(crate) prefixes: Vec<String>,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Look at all locks this often
    ///
    /// Default: as often as takes at most 2 % of the store's time.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) interval: Option<Duration>,
    #[command(flatten)]
    pub(crate) store: Store,
}
