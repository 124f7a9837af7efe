//! The store in MariaDB, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `support` | trials that all stores share: connections are cut, answers lost, processes killed and stopped |
//! | `restarts` | servers are killed, paused and started again, under load and at rest |
//! | `replicas` | a primary dies or is demoted, and its replica takes over; replicas restart |
//! | `demoted` | a server is made read-only while clients are connected |
//! | `connections` | connections are killed, refused, or wait for each other |
//! | `broken` | servers that answer nonsense, or that are full |
//! | `login` | servers that refuse, and servers that should be refused |
//! | `flags` | proxies that set flags of the protocol for all clients |
//! | `follow` | followers of names that are cut off or forgotten |
//! | `rights` | tables and procedures of our names that somebody else made |
//! | `upgrade` | databases of an earlier build, and its clients that are still running |
//! | `schema` | tables and procedures: made by many at once, by hand, and swept |
//! | `figures` | how large the tables get; for long when `TIDELOCK_GRANTS` is set |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod broken;
mod connections;
mod demoted;
mod figures;
mod flags;
mod follow;
mod login;
mod relay;
mod replicas;
mod restarts;
mod rights;
mod schema;
mod upgrade;

use std::{process::ExitCode, time::Duration};

use support::{Place, Store, harness};
use test_servers::{MariaDb, Server};

/// A trial has a database of its own instead of a prefix.
const STORE: Store = Store {
    start: || MariaDb::new().durable().start().unwrap(),
    prefix: |number| format!("trial_{number}"),
    prepare: |server, database| drop(sql(server, &format!("CREATE DATABASE {database}"))),
    url: |servers, database| format!("{}/{database}", servers.rsplit_once('/').unwrap().0),
    long: Duration::from_secs(60),
    short: Duration::from_secs(3),
    watchdog: Duration::from_secs(180),
    keeps_unheard: true,
    asks_over_others: true,
    renews: true,
    crowd: (40, 40),
};

impl Place {
    /// What the server's own client says to a statement in the database of this place.
    fn ask(&self, server: &Server, statement: &str) -> String {
        sql(server, &format!("USE {}; {statement}", self.prefix))
    }
}

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        restarts::trials(),
        replicas::trials(),
        demoted::trials(),
        connections::trials(),
        broken::trials(),
        schema::trials(),
        rights::trials(),
        upgrade::trials(),
        follow::trials(),
        flags::trials(),
        support::common_trials(),
        support::batches::trials(),
        login::trials(),
        figures::trials(),
    ];
    harness::run(modules, vec![])
}

/// Asks a server something, as its administrator.
fn sql(server: &Server, text: &str) -> String {
    server.ask(&["-e", text]).unwrap().trim().to_owned()
}
