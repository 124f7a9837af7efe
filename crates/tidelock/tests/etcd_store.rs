//! The store in etcd, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `members` | members of a cluster are killed, paused and started again |
//! | `network` | connections are cut, and answers are lost after the transaction was applied |
//! | `keys` | keys and leases that somebody else deletes, and history that is compacted |
//! | `processes` | holders and waiters are killed, stopped, evicted, or very many |
//! | `login` | servers that refuse, and servers that should be refused |
//! | `interop` | `etcdctl lock` and Go's concurrency package take turns with us |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "common/store/mod.rs"]
mod support;
#[path = "etcd_store/interop.rs"]
mod interop;
#[path = "etcd_store/keys.rs"]
mod keys;
#[path = "etcd_store/login.rs"]
mod login;
#[path = "etcd_store/members.rs"]
mod members;
#[path = "etcd_store/network.rs"]
mod network;
#[path = "etcd_store/processes.rs"]
mod processes;

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
};

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        members::trials(),
        interop::trials(),
        processes::trials(),
        network::trials(),
        keys::trials(),
        login::trials(),
    ];
    harness::run(modules, vec![])
}
