//! Locks that other programs take as well: `?mode=redisson` and `?mode=setnx`, with real servers.
//!
//! | module | what happens |
//! |---|---|
//! | `by_hand` | keys are set, deleted and changed by commands, as other programs do it |
//! | `alternating` | programs of others and clients of ours take one lock in turns, and nobody overlaps |
//! | `fenced` | the tokens of Redisson's fenced lock |
//! | `redlock` | the same locks on three servers that vote |
//! | `slots` | slots of a cluster move |
//! | `faults` | connections are cut, servers paused and started again, masters replaced |
//! | `peers` | the libraries themselves take turns with us; where their tools are missing a trial is left out |
//! | `programs` | how the programs in `peers/` are made and started |
//!
//! - `TIDELOCK_INTEROP_GRANTS=10000` takes 10,000 turns with each library instead of 2,000 (200 on three servers).
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod alternating;
mod by_hand;
mod faults;
mod fenced;
mod peers;
mod programs;
mod redlock;
mod slots;

use std::{process::ExitCode, time::Duration};

use support::{Store, harness, witness, worker};
use test_servers::Redis;

const STORE: Store = Store {
    start: || Redis::new().start().unwrap(),
    prefix: |number| format!("trial-{number}:"),
    prepare: |_, _| (),
    url: |servers, prefix| format!("{servers}?prefix={prefix}"),
    long: Duration::from_secs(30),
    short: Duration::from_secs(3),
    // A library may have to be downloaded and built first.
    watchdog: Duration::from_secs(600),
    keeps_unheard: false,
    asks_over_others: false,
    renews: true,
    crowd: (0, 0),
};

fn main() -> ExitCode {
    let modules = [
        peers::trials(),
        redlock::trials(),
        slots::trials(),
        faults::trials(),
        fenced::trials(),
        by_hand::trials(),
    ];
    harness::run(modules, Vec::new())
}
