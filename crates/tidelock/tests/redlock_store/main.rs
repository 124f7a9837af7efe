//! The store in several Redis servers that vote, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `servers` | some of five servers fail in every way |
//! | `votes` | votes differ, are split, or arrive at the same moment |
//! | `left` | claims that their own client leaves while it counts votes for them |
//! | `holders` | holders are evicted, killed, stopped and cut off |
//! | `endings` | programs and runtimes end |
//! | `together` | claims that share a call to each server |
//! | `clocks` | the clock of one of them steps, or it is away when a lock is taken |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod clocks;
mod endings;
mod five;
mod holders;
mod left;
mod servers;
mod together;
mod votes;

use std::{process::ExitCode, time::Duration};

use support::{Store, harness, witness};
use test_servers::Redis;

const STORE: Store = Store {
    start: || Redis::new().start().unwrap(),
    prefix: |number| format!("trial-{number}:"),
    prepare: |_, _| (),
    url: |servers, prefix| format!("{servers}?prefix={prefix}"),
    long: Duration::from_secs(30),
    short: Duration::from_millis(1_500),
    watchdog: Duration::from_secs(120),
    keeps_unheard: false,
    asks_over_others: false,
    renews: true,
    crowd: (0, 0),
};

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        servers::trials(),
        endings::trials(),
        left::trials(),
        clocks::trials(),
        votes::trials(),
        together::trials(),
        holders::trials(),
    ];
    harness::run(modules, vec![])
}
