//! What elections take.

use std::{ffi::OsString, time::Duration};

use clap::{Args as Group, ValueEnum, builder::NonEmptyStringValueParser};

use super::{Store, Which};
use crate::values;

/// Run a command while leading an election
///
/// Of all processes that run this with the same name on the same store, one leads and runs the
/// command; the others wait in a queue. If the leader dies, the next one takes over after the ttl,
/// or earlier if the store notices the death. If the lead is lost, tidelock stops the command and
/// everything it started, as `tidelock run` does, and is a candidate again.
///
/// The command finds its term, a number that only grows, in TIDELOCK_TOKEN, and the name of the
/// election in TIDELOCK_NAME. The lead is given back when the command has ended; then the next
/// candidate leads. Candidates of `elect` and holders of `run` with the same name exclude each
/// other.
///
/// SIGTERM and SIGINT go to the command while it runs; when it has ended, tidelock gives the lead
/// back and exits. A candidate that waits leaves the queue and exits.
#[derive(Debug, Group)]
#[command(override_usage = "tidelock elect [OPTIONS] <NAME> -- <CMD>...")]
#[command(after_help = "Examples:
  tidelock elect scheduler -- ./scheduler
  tidelock elect scheduler --advertise http://10.0.0.7:8080 -- ./scheduler
  tidelock elect migrate --once -- ./migrate.sh            one term, then exit
  tidelock elect worker --restart on-failure -- ./worker   until it exits with 0")]
pub(crate) struct Elect {
    #[command(flatten)]
    pub(crate) which: Which,
    /// What observers see while this process leads
    ///
    /// Such as an address, up to 1024 bytes. `tidelock leader` prints it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) advertise: Option<String>,
    /// Lead for one term, and exit with the command's code
    #[arg(long, conflicts_with = "restart")]
    pub(crate) once: bool,
    /// Lead again: always (default), on-failure or never
    ///
    /// Whether to be a candidate again when the command has ended: always, unless it exited with
    /// 0 (on-failure), or never. After a loss, tidelock is a candidate again in any case. A command
    /// that ends soon is started again after a pause, which grows from 1 to 30 seconds.
    // In one line of the help, which has no room for the list that clap would append.
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t = Restart::Always,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) restart: Restart,
    /// Time until a dead leader is replaced
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// What others see of the candidate
    ///
    /// Default: the command and the process id.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// At a loss, time from TERM to KILL
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, default_value = "10s")]
    pub(crate) kill_after: Duration,
    /// Say nothing about terms that begin and end
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    /// Pass URL and password to the command
    ///
    /// The command finds both in its environment, as TIDELOCK_URL.
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// When a command that ended is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Restart {
    /// Whatever its exit code
    Always,
    /// Unless it exited with 0
    OnFailure,
    /// Not at all
    Never,
}

/// Show who leads an election
///
/// Exits with 1 if nobody leads.
#[derive(Debug, Group)]
#[command(override_usage = "tidelock leader [OPTIONS] <NAME>")]
#[command(after_help = "Examples:
  tidelock leader scheduler
  curl \"$(tidelock leader scheduler --field advertised)/jobs\"
  tidelock leader scheduler --watch               a line for each change
  tidelock leader scheduler --is-me \"$HOSTNAME\"  a probe: exits with 0 or 1")]
pub(crate) struct Leader {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Keep running, and print a line for each change
    ///
    /// The first line says who leads now. A change is seen at once, or within about half a
    /// second on stores that do not tell of changes.
    #[arg(long, conflicts_with = "is_me")]
    pub(crate) watch: bool,
    /// Print only this: advertised, label or token
    ///
    /// Exits with 1 if the leader has none.
    #[arg(
        long,
        value_name = "FIELD",
        value_enum,
        hide_possible_values = true,
        conflicts_with_all = ["json", "is_me"]
    )]
    pub(crate) field: Option<Field>,
    /// Print nothing; exit with 0 if the leader has this label
    // Nobody's label is empty, but a variable may be.
    #[arg(long, value_name = "LABEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) is_me: Option<String>,
    /// Print a JSON object; with --watch, one per line
    #[arg(long, conflicts_with = "is_me")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// What can be asked of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Field {
    /// The text that it advertises
    Advertised,
    /// Its label
    Label,
    /// The number of its term
    Token,
}
