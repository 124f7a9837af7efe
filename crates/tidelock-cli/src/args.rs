//! What can be typed.

mod demo;
mod elect;
mod once;
mod serve;
mod shared;
mod shell;
mod torture;
mod ui;
mod watch;

use std::{ffi::OsString, time::Duration};

use clap::{Args as Group, Parser, Subcommand};

pub(crate) use self::{
    demo::{Demo, Demos, FlashSale},
    elect::{Elect, Field, Leader, Restart},
    once::OncePer,
    serve::{Serve, Tls},
    shared::{Line, Store, Ticket, Which},
    shell::{Completions, Man},
    torture::Torture,
    ui::{Ui, Watching},
    watch::{Events, Sort, Top},
};
use crate::{exit, output::Trouble, values};

/// Distributed locks: hold one while a command runs, see who holds what.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, max_term_width = 100, after_help = exit::help())]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Print JSON instead of text, for programs
    #[arg(long)]
    json: bool,
    /// What to do.
    #[command(subcommand)]
    verb: Verb,
}

impl Args {
    /// The verb, with what was typed before it. What follows the verb wins.
    pub(crate) fn verb(self) -> Result<Verb, Trouble> {
        let Self { store, json, mut verb } = self;
        let (name, of_store, of_json) = match &mut verb {
            Verb::Run(args) => ("run", Some(&mut args.store), None),
            Verb::Acquire(args) => ("acquire", Some(&mut args.store), Some(&mut args.json)),
            Verb::Renew(Renew { ticket }) => ("renew", Some(&mut ticket.store), Some(&mut ticket.json)),
            Verb::Release(Release { ticket }) => ("release", Some(&mut ticket.store), Some(&mut ticket.json)),
            Verb::Elect(args) => ("elect", Some(&mut args.store), None),
            Verb::Leader(args) => ("leader", Some(&mut args.store), Some(&mut args.json)),
            Verb::Serve(args) => ("serve", Some(&mut args.store), None),
            Verb::Ui(args) => ("ui", Some(&mut args.store), None),
            Verb::Top(args) => ("top", Some(&mut args.store), None),
            Verb::Events(args) => ("events", Some(&mut args.store), Some(&mut args.json)),
            Verb::Ls(args) => ("ls", Some(&mut args.store), Some(&mut args.json)),
            Verb::Show(args) => ("show", Some(&mut args.store), Some(&mut args.json)),
            Verb::Break(args) => ("break", Some(&mut args.store), Some(&mut args.json)),
            Verb::Doctor(args) => ("doctor", Some(&mut args.store), Some(&mut args.json)),
            Verb::Stores(args) => ("stores", None, Some(&mut args.json)),
            Verb::Schema(_) => ("schema", None, None),
            Verb::Demo(Demo { demo: Demos::FlashSale(args) }) => {
                ("demo flash-sale", Some(&mut args.store), Some(&mut args.json))
            }
            Verb::Demo(_) => ("demo", None, None),
            Verb::Torture(args) => ("torture", Some(&mut args.store), Some(&mut args.json)),
            Verb::Completions(_) => ("completions", None, None),
            Verb::Man(_) => ("man", None, None),
        };
        if !store.is_empty() {
            let of_store = of_store.ok_or_else(|| {
                Trouble::Usage(format!("tidelock {name} uses no store: leave out --url and --url-file"))
            })?;
            if of_store.is_empty() {
                *of_store = store;
            }
        }
        if json {
            *of_json.ok_or_else(|| {
                Trouble::Usage(format!("tidelock {name} prints no JSON: leave out --json"))
            })? = true;
        }
        Ok(verb)
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Run),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Elect(Elect),
    Leader(Leader),
    Serve(Serve),
    Ui(Ui),
    Top(Top),
    Events(Events),
    Ls(Ls),
    Show(Show),
    Break(Break),
    Doctor(Doctor),
    Stores(Stores),
    Schema(Schema),
    Demo(Demo),
    Torture(Torture),
    Completions(Completions),
    Man(Man),
}

/// Run a command while holding a lock
///
/// Waits in the queue for the lock, runs the command, and releases the lock. tidelock renews the
/// lock while the command runs. If the lock is lost, or if tidelock is killed, it stops the command
/// and everything the command started: on Linux all descendants, elsewhere the process group of the
/// command.
///
/// The lock is released when the command ends. Processes that it left in the background keep
/// running, without the lock. This differs from flock, where a background process inherits the
/// lock and keeps it until it ends (flock -o does not pass it on). To hold the lock until
/// background processes end, let the command wait for them: sh -c 'one & two & wait'.
///
/// If the store is not reachable or does not answer, tidelock waits for it as it waits for the
/// lock, subject to --wait and --fail-fast.
///
/// The command runs in a process group of its own, gets the terminal, and finds TIDELOCK_NAME and
/// TIDELOCK_TOKEN in its environment (TIDELOCK_NAMES and TIDELOCK_TOKENS, one per line, for several
/// locks). With mode=redisson&fenced=1 it finds Redisson's token in TIDELOCK_FOREIGN_TOKEN, too.
/// While it is stopped with Ctrl-Z, nothing renews the lock: after the ttl the lock is lost, and
/// the command ends when it is continued.
///
/// With --once-per, the command runs at most once in each slot of the period, on one of all
/// machines that start it. It finds its slot in TIDELOCK_SLOT.
///
/// A tidelock inside the command uses the store of --url or --url-file, too. A password stays out
/// of the command's environment: a file of --url-file is passed on by its name, and a --url with a
/// password only with --pass-url. A TIDELOCK_URL that you set yourself is inherited as it is.
#[derive(Debug, Group)]
#[command(override_usage = "tidelock run [OPTIONS] <NAME> -- <CMD>...")]
#[command(after_help = "Examples:
  tidelock run nightly-report -- ./report.sh
  tidelock run deploy -n -- make deploy                  do not wait
  tidelock run sync -n -q -E 0 -- ./sync.sh              skip it if it is taken
  tidelock run index --shared -- ./search.sh             with other readers
  tidelock run licenses --permits 2/5 -- ./render.sh     two of five permits
  tidelock run accounts/1 --lock accounts/2 -- ./move.sh both, without deadlock
  tidelock run report --once-per 1d -- ./report.sh       once a day, anywhere
  tidelock run ping -n --hold-at-least 30s -- ./ping.sh  not again within 30 s")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) line: Line,
    /// Hold this lock too; may be repeated
    #[arg(
        long = "lock",
        value_name = "NAME",
        allow_hyphen_values = true,
        conflicts_with_all = ["shared", "write", "permits"]
    )]
    pub(crate) more: Vec<String>,
    /// Lifetime of the lock unless renewed
    ///
    /// tidelock renews the lock every third of it. It matters if tidelock is killed and the store
    /// cannot notice that: then the lock stays held for up to this time.
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// What others see of the holder
    ///
    /// Default: the command and the process id.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Let commands with the same owner enter again
    ///
    /// On whose behalf the lock is held: a command under the lock may acquire it again if it gives
    /// the same owner.
    #[arg(long, value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) once: OncePer,
    /// At a loss, time from TERM to KILL
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, default_value = "10s")]
    pub(crate) kill_after: Duration,
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

/// Acquire a lock and leave it held, for `renew` and `release`
///
/// Waits in the queue for the lock, prints a ticket, and exits; the lock stays held. Use it for
/// steps that cannot run inside one command. Where they can, `tidelock run` is safer: it renews the
/// lock, stops the command when the lock is lost, and releases the lock however the command ends.
///
/// The lock is not renewed automatically. It ends when its ticket is released, when somebody breaks
/// it, or when its ttl expires. The ticket is the right to the lock: keep it secret. If tidelock
/// cannot print the ticket, it releases the lock.
#[derive(Debug, Group)]
#[command(override_usage = "tidelock acquire [OPTIONS] <NAME>")]
#[command(after_help = "Examples:
  ticket=$(tidelock acquire deploy --ttl 10m) || exit
  tidelock renew \"$ticket\"                                ten minutes from now
  tidelock release \"$ticket\"
  tidelock acquire mail -n --ttl 1h >/dev/null            at most once an hour")]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) line: Line,
    /// Lifetime of the lock unless renewed
    ///
    /// The default is longer than that of `run`, because nothing renews the lock. A script that
    /// dies keeps others out for up to this time.
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true, default_value = "5m")]
    pub(crate) ttl: Duration,
    /// What others see of the holder
    ///
    /// Default: the program that called, and its process id.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Print a JSON object, with the ticket and the token
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Renew a lock that was left held: its ttl starts again
///
/// Exits with 123 if this ticket no longer holds the lock: it expired, was broken or was released.
/// Others may hold it then, and work that needs it has to stop. The store must be the one that the
/// lock was acquired on.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock renew \"$ticket\" || exit
  echo \"$ticket\" | tidelock renew -")]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) ticket: Ticket,
}

/// Release a lock that was left held
///
/// Exits with 123 if this ticket no longer held the lock: it had expired, or was broken or released
/// before. Others may have held it in the meantime. The store must be the one that the lock was
/// acquired on.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock release \"$ticket\"
  echo \"$ticket\" | tidelock release -
  trap 'tidelock release \"$ticket\"' EXIT                 at the end of a script")]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) ticket: Ticket,
}

/// List the locks that are held or waited for
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock ls
  tidelock ls orders/ --json
  tidelock ls --done                             what `run --once-per` did")]
pub(crate) struct Ls {
    /// Only names that start with this
    #[arg(value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// List what `run --once-per` has done instead
    #[arg(long)]
    pub(crate) done: bool,
    /// Print a JSON array with one object per lock
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Show who holds a lock and who waits for it
///
/// Exits with 1 if nobody holds the lock.
#[derive(Debug, Group)]
#[command(override_usage = "tidelock show [OPTIONS] <NAME>")]
#[command(after_help = "Examples:
  tidelock show nightly-report
  tidelock show nightly-report --json
  if tidelock show deploy >/dev/null; then echo busy; fi")]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Take a lock away from its holders
///
/// The holders learn that the lock is lost, and why; a command under `tidelock run` is stopped. A
/// ticket of `tidelock acquire` is void. The next holder's token is larger than theirs, so that a
/// resource that compares tokens refuses them.
///
/// With --prefix or --older-than instead of a name, tidelock lists the locks that it would break.
/// It breaks them after you confirm it at the terminal, or with --yes.
///
/// Holders of another make, such as Redisson with redis:?mode=redisson, are not told: they are taken
/// away only after you confirm it, too.
///
/// Exits with 1 if nobody holds the lock, or if nothing was broken.
#[derive(Debug, Group)]
#[command(override_usage = "tidelock break [OPTIONS] --reason <TEXT> <NAME>
       tidelock break [OPTIONS] --reason <TEXT> --prefix <PREFIX>
       tidelock break [OPTIONS] --reason <TEXT> --older-than <TIME>")]
#[command(after_help = "Examples:
  tidelock break nightly-report --reason 'hangs since noon, see worker-7'
  tidelock break --prefix deploy/ --reason 'CI was shut down'
  tidelock break --older-than 1h --reason 'forgotten' --yes")]
pub(crate) struct Break {
    /// The name of the lock
    #[arg(
        value_name = "NAME",
        required_unless_present_any = ["named", "prefix", "older_than"],
        conflicts_with_all = ["named", "prefix"]
    )]
    pub(crate) name: Option<String>,
    /// The name of the lock; it may begin with -
    #[arg(
        long = "name",
        id = "named",
        value_name = "NAME",
        allow_hyphen_values = true,
        conflicts_with = "prefix"
    )]
    pub(crate) named: Option<String>,
    /// All locks whose names start with this
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub(crate) prefix: Option<String>,
    /// Only holders that have held for at least this long
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) older_than: Option<Duration>,
    /// Break the locks that were found without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Why, for the holders and the output; up to 128 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Print JSON: an object, or an array without NAME
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// Check whether a store is fit for locks, and say what to fix
///
/// Connects, says what the store can do, and acquires and releases a lock of its own a few times.
/// Exits with 1 if there is something to fix.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock doctor
  tidelock doctor --url file:/var/lib/shop --json
  tidelock doctor --url redis://127.0.0.1
  tidelock doctor --url 'redis://127.0.0.1?mode=redisson' orders")]
pub(crate) struct Doctor {
    /// A lock to look at: who holds it, and who is kept out
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// List the stores of this build and what each can do
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock stores --json
  tidelock stores --options                              what may follow a ?")]
pub(crate) struct Stores {
    /// List the options of each store's URLs
    #[arg(long)]
    pub(crate) options: bool,
    /// Print a JSON array with one object per store
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print what an administrator has to load into a server
///
/// Most stores need nothing: tidelock sets up what it uses. On a Redis server whose users may not
/// run scripts, an administrator loads functions once, and clients use them with
/// ?scripting=functions in the URL. In a PostgreSQL, MySQL or MariaDB database whose users may not
/// create anything, an administrator installs the tables and functions.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock schema --print redis | redis-cli -x FUNCTION LOAD REPLACE
  tidelock schema --print redis --stock | redis-cli -x FUNCTION LOAD REPLACE
  tidelock schema --print postgres | psql -1 app")]
pub(crate) struct Schema {
    /// The store whose schema to print
    #[arg(long, value_name = "STORE", required = true)]
    pub(crate) print: String,

    /// Print what stock needs in addition, where that is separate
    #[arg(long)]
    pub(crate) stock: bool,
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
            assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        }
    }
}
