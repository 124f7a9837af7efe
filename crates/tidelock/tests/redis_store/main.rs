//! The store in Redis, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `support` | trials that all stores share: connections are cut, answers lost, processes killed and stopped |
//! | `restarts` | servers are killed, paused and started again, with their data or without |
//! | `network` | connections are cut, and answers are lost after the command was applied |
//! | `processes` | waiters are killed, and nobody waits for their leases |
//! | `sentinel`, `cluster` | masters are replaced, and slots move |
//! | `astray` | a server that gives a slot away says so between the answers to other questions |
//! | `slots`, `load` | slots move in every way, with lines of every kind under load |
//! | `login`, `rights`, `tls`, `fitness` | servers that refuse, and servers that should be refused |
//! | `changed` | servers that are demoted, have code of others under our names, or begin to talk nonsense |
//! | `pages` | all locks are listed among many names that nobody uses |
//! | `together` | claims that share a call where one of them cannot, or the server forgot how |
//! | `records` | records of this and of other versions under the key of a lock |
//! | `wrong_ways` | the usual mistakes of locks in Redis, which cannot be made here |
//! | `afterwards` | what all of this left behind on the server that most trials share |
//!
//! Trials print what they counted: `-- --nocapture` is not needed. There are no limits on time but those
//! after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod afterwards;
mod astray;
mod changed;
mod cluster;
mod fitness;
mod load;
mod login;
mod network;
mod pages;
mod place;
mod processes;
mod records;
mod restarts;
mod rights;
mod sentinel;
mod slots;
mod tls;
mod together;
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
    keeps_unheard: false,
    asks_over_others: false,
    renews: true,
    crowd: (2_000, 4),
};

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        sentinel::trials(),
        cluster::trials(),
        astray::trials(),
        slots::trials(),
        restarts::trials(),
        processes::trials(),
        network::trials(),
        fitness::trials(),
        support::common_trials(),
        support::batches::trials(),
        together::trials(),
        login::trials(),
        rights::trials(),
        tls::trials(),
        changed::trials(),
        records::trials(),
        pages::trials(),
        wrong_ways::trials(),
    ];
    // The server that was shared is looked at when nobody uses it any more.
    let code = harness::run(modules, afterwards::trials());
    cluster::stop_shared();
    code
}
