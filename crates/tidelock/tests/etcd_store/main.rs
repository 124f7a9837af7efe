//! The store in etcd, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `support` | trials that all stores share: connections are cut, answers lost, processes killed and stopped |
//! | `members` | members of a cluster are killed, paused and started again |
//! | `keys` | keys and leases that somebody else deletes, and history that is compacted |
//! | `many` | very many locks are renewed together, of which some end |
//! | `strays` | questions arrive a second time, after their claims are gone |
//! | `restores` | a server goes back to a snapshot |
//! | `login` | servers that refuse, and servers that should be refused |
//! | `interop` | `etcdctl lock` and Go's concurrency package take turns with us |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod interop;
mod keys;
mod login;
mod many;
mod members;
mod restores;
mod strays;

use std::{process::ExitCode, time::Duration};

use support::{Store, harness};
use test_servers::Etcd;

const STORE: Store = Store {
    start: || Etcd::new().start().unwrap(),
    prefix: |number| format!("trial-{number}/"),
    prepare: |_, _| (),
    url: |servers, prefix| format!("{servers}?prefix={prefix}"),
    long: Duration::from_secs(60),
    short: Duration::from_secs(3),
    watchdog: interop::LONGEST,
    keeps_unheard: true,
    asks_over_others: false,
    renews: true,
    crowd: (120, 120),
};

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        members::trials(),
        interop::trials(),
        keys::trials(),
        many::trials(),
        strays::trials(),
        restores::trials(),
        support::common_trials(),
        login::trials(),
    ];
    harness::run(modules, vec![])
}
