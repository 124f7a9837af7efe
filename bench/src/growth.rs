//! `cargo xtask bench growth`: how cost grows with what is remembered or repeated, against limits.
//!
//! These are not contests: each measures one thing on a server of its own and says whether its limits were kept.

mod fleet;
mod listing;
mod names;
mod queue;
mod rest;
mod serving;
mod stand;
mod storms;
mod streams;
mod watching;

use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// `ls` on Redis with very many names that were used lately
    Listing(listing::Args),
    /// `mode=redisson` beside Redisson: what a pair costs, and how soon each side hears of the other
    Fleet(fleet::Args),
    /// Memory of a Redis server's clients after many reconnect storms
    Storms(storms::Args),
    /// Processor time, wake-ups and memory of claims to which nothing happens, on every store
    Rest(rest::Args),
    /// New names, one after the other, on a new server: the last must cost what the first did
    Names(names::Args),
    /// Long queues: what a hand-over costs with few and with many clients in line
    Queue(queue::Args),
    /// Open pages of `tidelock serve`: how fresh they are, and what they cost
    Watching(watching::Args),
    /// Streams of `tidelock serve`: memory of 2,000, and what a lock costs over the socket
    Streams(streams::Args),
    /// Holds locks and waits for others, in a process of its own
    #[command(hide = true)]
    Claim {
        url: String,
        #[command(flatten)]
        claims: rest::Claims,
    },
    /// Lists all locks once, in a process of its own
    #[command(hide = true)]
    List { url: String },
}

/// Measures, and says whether every limit was kept.
pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.what {
        What::Listing(args) => listing::run(args),
        What::Fleet(args) => fleet::run(args),
        What::Storms(args) => storms::run(args),
        What::Rest(args) => rest::run(args),
        What::Names(args) => names::run(args),
        What::Queue(args) => queue::run(args),
        What::Watching(args) => watching::run(args),
        What::Streams(args) => streams::run(args),
        What::Claim { url, claims } => rest::claim(url, *claims).map(|()| true),
        What::List { url } => listing::list(url).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// One thread, as most programs that use locks have for them.
fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

/// Prints a figure beside its limit. Says whether it was kept.
fn limit(what: &str, is: f64, most: f64, unit: &str) -> bool {
    let kept = is <= most;
    let shown = (most * 100.0).round() / 100.0;
    println!("  {what:<34} {is:>9.2} {unit:<3} limit {shown} {unit} {}", if kept { "✓" } else { "✗" });
    kept
}
