//! `tidelock torture`.

use std::{path::PathBuf, time::Duration};

use clap::Args as Group;

use super::Store;
use crate::values;

/// Break a test deployment, and check whether its locks keep their promises
///
/// Starts client processes that acquire, hold, check, write through a fence, release, try, time
/// out, give up, re-enter, share, take permits, lead elections, hang and break each other's locks,
/// all on the servers of --url. Meanwhile clients are killed with SIGKILL, stopped past their ttl,
/// and cut off from the servers by a proxy that closes, delays, holds, loses and doubles what
/// passes. Faults of the servers are yours: --hook names a command that is called with one of --hook-faults, and
/// later with `heal`.
///
/// Every client writes what it saw to a history. At the end a checker decides from the histories
/// alone: conflicting holds inside their windows, tokens that do not grow, stale writes that the
/// fence accepted, the order of arrival, requests without an answer, locks that stay free while
/// somebody waits, losses that holders do not hear of, and leftovers in the store. Each violation is a story with the faults around it
/// and a timeline as SVG.
///
/// Uses lock names under torture/ only. Exits with 0 if every promise was kept, 1 if not, and 125
/// if the run could not be made. A signal ends the run early, with a verdict.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock torture --url redis://test:6379 --yes-this-is-a-test-server
  tidelock torture --url etcd://a:2379,b:2379 --for 1h --hook ./break.sh \\
    --hook-faults restart,pause --yes-this-is-a-test-server
  tidelock torture --check DIR                           check histories again")]
pub(crate) struct Torture {
    /// How long to run
    #[arg(long = "for", id = "for", value_name = "TIME", value_parser = values::duration, default_value = "1m")]
    pub(crate) time: Duration,
    /// How many client processes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) clients: u32,
    /// How many tasks in each client
    ///
    /// The first looks for what is left in the store, every fourth takes its time, and the others are quick.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) tasks: u32,
    /// How many locks
    #[arg(long, value_name = "N", default_value_t = 36, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) names: u32,
    /// Repeat the choices of an earlier run
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The ttl of the locks
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "3s")]
    pub(crate) ttl: Duration,
    /// The ttl of a few locks; default: four times --ttl
    ///
    /// A claim that was forgotten blocks them for longer than any recovery takes.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) long_ttl: Option<Duration>,
    /// How often a client is killed; 0 is never
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "3s")]
    pub(crate) kill: Duration,
    /// How often a client is stopped for about its ttl; 0 is never
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "3s")]
    pub(crate) stop: Duration,
    /// How often the network of a client breaks; 0 is never
    ///
    /// Needs the ports of the servers in the URL. Not where servers tell clients their own addresses,
    /// as Sentinels and clusters of Redis do, and with TLS only for servers at 127.0.0.1.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "2s")]
    pub(crate) cut: Duration,
    /// Let the network double connections, too
    ///
    /// What is sent arrives a second time, later. For servers to which a client says the same on
    /// every connection. A copy that has to log in with what only the first connection was told, or
    /// that opens a session of its own, is none.
    #[arg(long)]
    pub(crate) double: bool,
    /// Do not break locks of others
    #[arg(long)]
    pub(crate) no_breaks: bool,
    /// A command for faults of servers
    ///
    /// A shell calls it with one of --hook-faults as its last argument, and later with `heal`. It
    /// returns when that is done. If it fails, the run ends.
    #[arg(long, value_name = "CMD")]
    pub(crate) hook: Option<String>,
    /// The faults that the hook knows
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "pause,restart,failover,partition"
    )]
    pub(crate) hook_faults: Vec<String>,
    /// How often the hook is called
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "10s")]
    pub(crate) hook_every: Duration,
    /// A command that prints how many entries the store has
    ///
    /// A shell calls it before and after the run, which fails if the store keeps something of each
    /// request: `redis-cli -h test-1 dbsize`.
    #[arg(long, value_name = "CMD")]
    pub(crate) count: Option<String>,
    /// Count overlaps, and do not take them for violations
    ///
    /// For deployments that may forget grants, such as a failover of Redis to a replica. Tokens and
    /// the fence are checked as always.
    #[arg(long)]
    pub(crate) allow_overlaps: bool,
    /// Where histories and the report go
    ///
    /// A directory that is empty or does not exist. Default: a new one among the temporary files.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Check the histories of an earlier run instead
    #[arg(long, value_name = "DIR")]
    pub(crate) check: Option<PathBuf>,
    /// Confirm that nobody needs the locks of this store
    #[arg(long)]
    pub(crate) yes_this_is_a_test_server: bool,
    /// Print the report as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}
