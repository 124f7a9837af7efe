//! `tidelock ui`, and how servers watch their store.

use std::time::Duration;

use clap::Args as Group;

use super::{Serve, Store};
use crate::{observe::Options, serve::Address, values};

/// Show all locks live, in a browser
///
/// Starts a server that only this machine can reach, prints a link, and serves a page until Ctrl-C:
/// every lock in use, who holds it and who waits, what happened to it, and how the store is. The
/// link has a key that works once. `tidelock serve` serves the same page at /.
///
/// The page only shows, unless you allow it to break locks with --allow-break.
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock ui --open
  tidelock ui --url redis://127.0.0.1 --allow-break
  ssh -L 7412:localhost:7412 host tidelock ui --listen tcp:127.0.0.1:7412")]
pub(crate) struct Ui {
    /// Open the link in your browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Where to listen: tcp:ADDRESS:PORT of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = Address::read, default_value = "tcp:127.0.0.1:0")]
    pub(crate) listen: Address,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// How the store is watched for people.
#[derive(Clone, Copy, Debug, Group)]
pub(crate) struct Watching {
    /// Let people break locks on the page
    #[arg(long)]
    pub(crate) allow_break: bool,
    /// Keep what happened on the page for this long
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "1h")]
    pub(crate) history: Duration,
    /// Look at all locks this often while somebody watches
    ///
    /// Default: as often as takes at most 2 % of the store's time.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) interval: Option<Duration>,
}

impl Watching {
    pub(crate) fn options(self) -> Options {
        Options { interval: self.interval, history: self.history, always: false }
    }
}

/// The server of the page: like any other, but for who may ask.
impl From<Ui> for Serve {
    fn from(args: Ui) -> Self {
        Self {
            listen: Some(args.listen),
            token_file: None,
            tls: None,
            idle: None,
            metrics_group: Vec::new(),
            observe: false,
            max_hold: None,
            max_streams: 1_000,
            max_streams_per_client: 1_000,
            grace: Duration::ZERO,
            until_stdin_closes: false,
            watching: args.watching,
            store: args.store,
        }
    }
}
