//! What can be typed.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args as Group, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    exit,
    values::{self, Permits},
};

/// Distributed locks: hold one while a command runs, see who holds what.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, max_term_width = 100, after_help = exit::help())]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Run),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Ls(Ls),
    Show(Show),
    Break(Break),
    Doctor(Doctor),
    Stores(Stores),
    Schema(Schema),
    Demo(Demo),
    Completions(Completions),
    Man(Man),
}

/// Which store.
#[derive(Clone, Debug, Group)]
pub(crate) struct Store {
    /// The store, as a URL. Default: TIDELOCK_URL, else file:, which needs no server
    // Read from the environment by hand: clap would show its value, password and all, in the help.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// Which lock, how much of it, and how to wait for it.
#[derive(Debug, Group)]
pub(crate) struct Line {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How long to wait in line, such as 250ms, 5s, 2m or 1h; 0 means not at all. Default: forever
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) wait: Option<Duration>,
    /// Say nothing while waiting
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Hold it together with others that say so
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Hold N permits of a lock that has OF in all, such as 2/5
    #[arg(long, value_name = "N/OF", value_parser = values::permits)]
    pub(crate) permits: Option<Permits>,
}

/// Run a command while holding a lock
///
/// Waits in line for the lock, runs the command, and gives the lock back. The lock is renewed for
/// as long as the command runs. If it is lost, the command and what it started are stopped.
///
/// The command runs in a process group of its own, gets the terminal, and finds TIDELOCK_NAME and
/// TIDELOCK_TOKEN in its environment (TIDELOCK_NAMES and TIDELOCK_TOKENS, a line each, for several
/// locks). While it is stopped with Ctrl-Z nothing renews the lock: after the ttl it is lost, and
/// the command is ended when it is continued.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock run nightly-report -- ./report.sh
  tidelock run deploy --wait 0 -- make deploy            give up at once if it is taken
  tidelock run index --shared -- ./search.sh             together with other readers
  tidelock run licences --permits 2/5 -- ./render.sh     two of five permits
  tidelock run accounts/1 --lock accounts/2 -- ./move.sh both, without deadlock")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) line: Line,
    /// Hold this lock too; may be repeated
    #[arg(long = "lock", value_name = "NAME", conflicts_with_all = ["shared", "permits"])]
    pub(crate) more: Vec<String>,
    /// For how long the lock outlives this process if the store cannot see it die
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// What others see of the holder. Default: the command and the process id
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// On whose behalf: a command under the lock may take it again with the same owner
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// After a loss: how long the command has between TERM and KILL
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "10s")]
    pub(crate) kill_after: Duration,
    #[command(flatten)]
    pub(crate) store: Store,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Take a lock and leave it held, for `renew` and `release` to go on with
///
/// Waits in line for the lock, prints a ticket, and ends; the lock stays held. For steps that no
/// single command surrounds: where one does, `tidelock run` is safer, because it renews the lock,
/// stops the command when the lock is lost, and gives the lock back however the command ends.
///
/// Nobody renews this lock by itself. It is free when its ticket is released, when somebody breaks
/// it, or when its ttl is over. Whoever has the ticket has the lock. If the ticket cannot be
/// printed the lock is given back.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  ticket=$(tidelock acquire deploy --ttl 10m) || exit
  tidelock renew \"$ticket\"                                ten minutes more, from now
  tidelock release \"$ticket\"
  tidelock acquire mail --wait 0 --ttl 1h >/dev/null      at most once an hour")]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) line: Line,
    /// When the lock is free again unless it is renewed or released before. The default is longer
    /// than that of `run`, since nobody renews: enough for a few steps, and a script that dies
    /// keeps others out for no longer than that
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "5m")]
    pub(crate) ttl: Duration,
    /// What others see of the holder. Default: the program that called, and its process id
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Print a JSON object with the ticket, the name, the token and the ttl
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Which lock that was left held.
#[derive(Debug, Group)]
pub(crate) struct Ticket {
    /// What `tidelock acquire` printed; - reads it from standard input, so that `ps` does not show it
    #[arg(value_name = "TICKET")]
    pub(crate) ticket: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Keep a lock that was left held: its ttl begins again
///
/// Exits with 123 if the lock is not held by this ticket any more: it lapsed, was broken or was
/// given back. Then others may hold it, and work that needs it has to stop. The store must be the
/// one that the lock was acquired on.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock renew \"$ticket\" || exit
  echo \"$ticket\" | tidelock renew -")]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) ticket: Ticket,
}

/// Give back a lock that was left held
///
/// Exits with 123 if the lock was not held by this ticket any more: it had lapsed, was broken or
/// was given back before. Then others may have held it meanwhile. The store must be the one that
/// the lock was acquired on.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock release \"$ticket\"
  echo \"$ticket\" | tidelock release -
  trap 'tidelock release \"$ticket\"' EXIT                 in a script, after acquire")]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) ticket: Ticket,
}

/// List the locks that are held or waited for
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock ls
  tidelock ls orders/ --json")]
pub(crate) struct Ls {
    /// Only names that begin so
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Print a JSON array with one object per lock
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Show who holds a lock and who waits for it
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock show nightly-report
  tidelock show nightly-report --json")]
pub(crate) struct Show {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Take a lock away from those who hold it
///
/// The holders learn that the lock is lost, and why; a command under `tidelock run` is stopped. A
/// ticket of `tidelock acquire` is void. The next holder's token is larger than theirs, so that a
/// resource that compares tokens refuses them.
/// Exits with 1 if nobody holds the lock.
#[derive(Debug, Group)]
#[command(after_help = "Example:
  tidelock break nightly-report --reason 'hangs since noon, see the log of worker-7'")]
pub(crate) struct Break {
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Why: the holders are told, and whoever reads the output later. At most 128 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Check whether a store is fit for locks, and say what to mend
///
/// Connects, says what the store can do, and takes and gives back a lock of its own a few times.
/// Exits with 1 if there is something to mend.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock doctor
  tidelock doctor --url file:/var/lib/shop --json
  tidelock doctor --url redis://127.0.0.1")]
pub(crate) struct Doctor {
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// List the stores of this build and what each can do
#[derive(Debug, Group)]
#[command(after_help = "Example:\n  tidelock stores --json")]
pub(crate) struct Stores {
    /// Print a JSON array with one object per store
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print what an administrator has to load into a server
///
/// Most stores need nothing: tidelock sets up what it uses. On a Redis server whose users may not
/// run scripts an administrator loads functions once, and clients say so with
/// ?scripting=functions in the URL. In a PostgreSQL database whose users may not create anything
/// an administrator installs the tables and functions.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock schema --print redis | redis-cli -x FUNCTION LOAD REPLACE
  tidelock schema --print postgres | psql -1 app")]
pub(crate) struct Schema {
    /// The store whose schema to print
    #[arg(long, value_name = "STORE", required = true)]
    pub(crate) print: String,
}

/// Watch what locks are for
#[derive(Debug, Group)]
#[command(after_help = "Example:\n  tidelock demo flash-sale")]
pub(crate) struct Demo {
    /// Which.
    #[command(subcommand)]
    pub(crate) demo: Demos,
}

/// The demonstrations.
#[derive(Debug, Subcommand)]
pub(crate) enum Demos {
    FlashSale(FlashSale),
    #[command(hide = true)]
    Buyers(Buyers),
}

/// Sell little stock to many buyers, four ways: without a lock, under one lock, from one counter, from segments
///
/// Buyers come from several processes, all at once. Without a lock they sell what is not there. One lock is
/// right and slow, because everybody waits for everybody. One atomic counter is right and fast. The counter
/// cut into segments goes on being fast on several servers.
///
/// Prints a table, and draws a chart into a file. Exits with 1 if a way that promises not to has oversold.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock demo flash-sale
  tidelock demo flash-sale --buyers 1000000 --stock 100000 --out sale.svg
  tidelock demo flash-sale --url redis://127.0.0.1
  tidelock demo flash-sale --url redis://one --url redis://two --json   segments on two servers")]
pub(crate) struct FlashSale {
    /// How many want one
    #[arg(long, value_name = "N", default_value_t = 6_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) buyers: u32,
    /// How many there are
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) stock: u32,
    /// How many processes the buyers come from
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) processes: u32,
    /// Into how many segments the stock is cut
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) segments: u32,
    /// Where to draw the chart
    #[arg(long, value_name = "FILE", default_value = "flash-sale.svg")]
    pub(crate) out: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The store, as a URL; several for segments on several servers. Default: TIDELOCK_URL, else files in a
    /// temporary directory
    #[arg(long, value_name = "URL")]
    pub(crate) url: Vec<String>,
}

/// One process of buyers.
#[derive(Debug, Group)]
pub(crate) struct Buyers {
    /// What to do, as JSON; the URLs come from the environment, because they may hold a password.
    pub(crate) work: String,
}

/// Print a script that completes this command line in a shell
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock completions bash > ~/.local/share/bash-completion/completions/tidelock
  tidelock completions zsh > ~/.zfunc/_tidelock
  tidelock completions fish > ~/.config/fish/completions/tidelock.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page, or write one per verb into a directory
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock man | man -l -
  tidelock man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Write tidelock.1, tidelock-run.1 and so on into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_contradicts_itself_nowhere() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        for verb in Args::command().get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("tidelock {}", verb.get_name())), "{}", verb.get_name());
        }
    }
}
