//! `tidelock serve`.

use std::{path::PathBuf, time::Duration};

use clap::Args as Group;

use super::{Store, Watching};
use crate::{serve::Address, values};

/// Serve locks to programs in any language, over HTTP
///
/// Listens on a Unix socket that only you can open, and holds locks for programs that ask with HTTP
/// and JSON. The answer to a lock is a stream of lines, and the stream is the hold: when the
/// program closes it or dies, the lock is released at once. Lines say when the lock is granted,
/// renewed or lost. The protocol is in docs/serve.md; GET /v1/openapi.json describes all calls.
///
/// On SIGTERM or Ctrl-C, holders are told that their locks are lost. Each lock is released when its
/// holder has closed its stream, or when the time has passed for which the holder relies on it.
///
/// systemd can pass the socket (LISTEN_FDS) and is told when the server is ready (NOTIFY_SOCKET).
#[derive(Debug, Group)]
#[command(after_help = "Examples:
  tidelock serve --url redis://127.0.0.1
  tidelock serve --listen tcp:127.0.0.1:7411 --token-file token
  tidelock serve --listen tcp:0.0.0.0:7411 --token-file token \\
    --tls-cert cert.pem --tls-key key.pem                  for other machines
  tidelock serve --observe --metrics-group 'orders/*'      for Prometheus
  curl -N --unix-socket $XDG_RUNTIME_DIR/tidelock/serve.sock \\
    -X POST http://localhost/v1/locks/nightly-report       hold until Ctrl-C")]
pub(crate) struct Serve {
    /// Where to listen: unix:PATH or tcp:ADDRESS:PORT
    ///
    /// Default: unix:tidelock/serve.sock in the directory that XDG_RUNTIME_DIR names, else in a
    /// directory of your own in the directory for temporary files.
    #[arg(long, value_name = "ADDRESS", value_parser = Address::read)]
    pub(crate) listen: Option<Address>,
    /// Read the token that TCP clients must send from a file
    ///
    /// They send it as `Authorization: Bearer TOKEN`. The file must be readable by you alone.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: Option<Tls>,
    /// Close connections that send nothing, or take this long for a request's headers
    ///
    /// Default: 30s over TCP, 10m on a Unix socket.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) idle: Option<Duration>,
    /// Tell apart locks that match a pattern, such as orders/*, in /metrics
    ///
    /// May be repeated, up to 64 times. A lock is counted in the first group that it matches, else in
    /// the group `other`. Without groups, metrics are not told apart by the names of locks.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) metrics_group: Vec<String>,
    /// Report the whole store in /metrics, not only locks held through here
    #[arg(long)]
    pub(crate) observe: bool,
    /// Hold no lock for longer than this
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) max_hold: Option<Duration>,
    /// Serve up to N streams at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) max_streams: usize,
    /// Serve up to N streams to one process, or to one TCP address
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(crate) max_streams_per_client: usize,
    /// At the end, wait this long for holders to stop
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "10s")]
    pub(crate) grace: Duration,
    /// End when standard input ends
    ///
    /// For a program that starts its own server: the server ends with it, whatever kills it.
    #[arg(long)]
    pub(crate) until_stdin_closes: bool,
    #[command(flatten)]
    pub(crate) watching: Watching,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// The certificate that TCP clients see.
#[derive(Debug, Group)]
pub(crate) struct Tls {
    /// Serve TCP clients with TLS, with the certificate in a PEM file
    ///
    /// Without it, only addresses of this machine are allowed.
    #[arg(long = "tls-cert", value_name = "FILE", required = false, requires = "key")]
    pub(crate) cert: PathBuf,
    /// The key of the certificate, in a PEM file that is readable by you alone
    #[arg(long = "tls-key", value_name = "FILE", required = false, requires = "cert")]
    pub(crate) key: PathBuf,
}
