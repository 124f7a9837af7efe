//! What several verbs take.

use std::{path::PathBuf, time::Duration};

use clap::Args as Group;

use crate::values::{self, Permits};

/// Which store.
#[derive(Clone, Debug, Default, Group)]
pub(crate) struct Store {
    /// The store, as a URL that `ps` shows to all users
    ///
    /// Put a URL with a password into a file for --url-file, or into TIDELOCK_URL. Default: the
    /// URL in TIDELOCK_URL, else in the file TIDELOCK_URL_FILE, else file:, which needs no server.
    // Read from the environment by hand: clap would show its value, password and all, in the help.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Read the URL of the store from a file
    ///
    /// The file has one line. Keep it readable for you alone if the URL has a password.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
}

impl Store {
    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.url.is_none() && self.url_file.is_none()
    }
}

/// Which lock.
#[derive(Debug, Group)]
pub(crate) struct Which {
    /// The name of the lock
    #[arg(value_name = "NAME", required_unless_present = "named", conflicts_with = "named")]
    name: Option<String>,
    /// The name of the lock; it may begin with -
    #[arg(long = "name", id = "named", value_name = "NAME", allow_hyphen_values = true)]
    named: Option<String>,
}

impl Which {
    /// The name. clap refuses none and two.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().or(self.named.as_deref()).unwrap_or_default()
    }
}

/// Which lock, how much of it, and how to wait for it.
#[derive(Debug, Group)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How long to wait, such as 1m30s; else forever
    ///
    /// 0 does not wait. Covers the queue, and a store that is not reachable or does not answer.
    /// Units are ms, s, m, h and d.
    #[arg(short, long, value_name = "TIME", value_parser = values::wait, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: the same as --wait 0
    #[arg(short = 'n', long = "try", id = "try", conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Exit with N, not 124, if the lock is not acquired
    ///
    /// From 0 to 255, like flock -E. Use it where 124 may come from the command, such as `timeout`.
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) busy_code: Option<u8>,
    /// Do not wait for a store that does not answer
    ///
    /// Nor for one that is not reachable: both are an error after three quick tries.
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// Say nothing about waiting or a lock that is taken
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Take a shared (read) lock
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take the write half of a read-write lock
    ///
    /// It excludes everybody, as a lock without it does. Other programs that share the store may tell
    /// the two apart: with redis:?mode=redisson it is the write lock of an RReadWriteLock.
    #[arg(long, conflicts_with_all = ["shared", "permits"])]
    pub(crate) write: bool,
    /// Hold N of OF permits, such as 2/5
    #[arg(long, value_name = "N/OF", value_parser = values::permits, allow_hyphen_values = true)]
    pub(crate) permits: Option<Permits>,
}

/// Which lock that was left held.
#[derive(Debug, Group)]
pub(crate) struct Ticket {
    /// What `tidelock acquire` printed; - reads it from standard input
    ///
    /// On the command line, `ps` shows it to all users.
    #[arg(value_name = "TICKET")]
    pub(crate) ticket: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}
