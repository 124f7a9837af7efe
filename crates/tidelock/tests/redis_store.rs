//! The store in Redis, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `restarts` | servers are killed, paused and started again, with their data or without |
//! | `network` | connections are cut, and answers are lost after the command was applied |
//! | `processes` | holders and waiters are killed, stopped, evicted, or very many |
//! | `sentinel`, `cluster` | masters are replaced, and slots move |
//! | `redlock` | some of several servers that vote fail in every way |
//! | `login`, `rights`, `tls`, `fitness` | servers that refuse, and servers that should be refused |
//! | `wrong_ways` | the usual mistakes of locks in Redis, which cannot be made here |
//! | `afterwards` | what all of this left behind on the server that most trials share |
//!
//! Trials print what they counted: `-- --nocapture` is not needed. There are no limits on time but those
//! after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "common/store/mod.rs"]
mod support;
#[path = "redis_store/afterwards.rs"]
mod afterwards;
#[path = "redis_store/cluster.rs"]
mod cluster;
#[path = "redis_store/fitness.rs"]
mod fitness;
#[path = "redis_store/login.rs"]
mod login;
#[path = "redis_store/network.rs"]
mod network;
#[path = "redis_store/place.rs"]
mod place;
#[path = "redis_store/processes.rs"]
mod processes;
#[path = "redis_store/redlock.rs"]
mod redlock;
#[path = "redis_store/restarts.rs"]
mod restarts;
#[path = "redis_store/rights.rs"]
mod rights;
#[path = "redis_store/sentinel.rs"]
mod sentinel;
#[path = "redis_store/tls.rs"]
mod tls;
#[path = "redis_store/wrong_ways.rs"]
mod wrong_ways;

use std::{process::ExitCode, time::Duration};

use support::{Store, harness, witness, worker};
use test_servers::Redis;

const STORE: Store = Store {
    start: || Redis::new().unix_socket().start().unwrap(),
    prefix: |number| format!("trial-{number}:"),
    prepare: |_, _| (),
    url: |servers, prefix| format!("{servers}?prefix={prefix}"),
    long: Duration::from_secs(30),
    short: Duration::from_millis(1_500),
    watchdog: Duration::from_secs(120),
};

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        sentinel::trials(),
        cluster::trials(),
        redlock::trials(),
        restarts::trials(),
        processes::trials(),
        network::trials(),
        fitness::trials(),
        login::trials(),
        rights::trials(),
        tls::trials(),
        wrong_ways::trials(),
    ];
    // The server that was shared is looked at when nobody uses it any more.
    let code = harness::run(modules, afterwards::trials());
    cluster::stop_shared();
    code
}
