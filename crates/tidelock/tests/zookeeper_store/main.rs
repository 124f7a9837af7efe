//! The store in ZooKeeper, with real servers, proxies, and processes of other programs.
//!
//! | module | what happens |
//! |---|---|
//! | `support` | trials that all stores share: connections are cut, answers lost, processes killed and stopped |
//! | `network` | connections are cut, and answers are lost after the request was applied |
//! | `sessions` | sessions and nodes that somebody ends or deletes |
//! | `processes` | waiters are killed, and very many wait |
//! | `ensemble` | leaders are killed, and all servers started again |
//! | `restores` | a server loses its data |
//! | `login` | servers and nodes that refuse, with and without TLS |
//! | `interop` | Curator and kazoo want the same locks |
//! | `tasks` | what a client runs in the background, however many claims it has |
//! | `waiting` | very many claims wait, and are renewed with one question |
//!
//! `TIDELOCK_INTEROP_GRANTS=5000` makes other programs take a lock so often, instead of a few hundred times.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod ensemble;
mod interop;
mod login;
mod network;
mod processes;
mod restores;
mod sessions;
mod tasks;
mod waiting;

use std::{process::ExitCode, time::Duration};

use support::{Place, Store, harness, within};
use test_servers::Zookeeper;
use tidelock::backends::zookeeper::bare::Bare;

const STORE: Store = Store {
    start: || Zookeeper::new().start().unwrap(),
    prefix: |number| format!("/trials/{number}"),
    prepare: |_, _| (),
    url: |servers, prefix| format!("{servers}{prefix}"),
    long: Duration::from_secs(60),
    short: Duration::from_secs(2),
    watchdog: Duration::from_secs(150),
    keeps_unheard: true,
    asks_over_others: false,
    renews: false,
    crowd: (120, 4),
};

impl Place {
    /// A session without locks.
    async fn bare(&self) -> Bare {
        within("a session begins", Bare::connect(&self.url())).await.unwrap()
    }

    /// The path of a lock's node.
    fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// The nodes in a lock's line.
    async fn nodes(&self, name: &str) -> Vec<String> {
        self.bare().await.children(&self.node(name)).await.unwrap()
    }
}

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        interop::trials(),
        ensemble::trials(),
        processes::trials(),
        network::trials(),
        sessions::trials(),
        restores::trials(),
        support::common_trials(),
        login::trials(),
        tasks::trials(),
        waiting::trials(),
    ];
    harness::run(modules, vec![])
}
