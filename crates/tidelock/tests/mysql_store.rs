//! The store in MariaDB, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `restarts` | servers are killed, paused and started again, under load and at rest |
//! | `replicas` | a primary dies, and its replica takes over |
//! | `network` | connections are cut, and answers are lost after the change was committed |
//! | `connections` | connections are killed, refused, or wait for each other |
//! | `processes` | holders and waiters are killed, stopped, evicted, or many |
//! | `login` | servers that refuse, and servers that should be refused |
//! | `schema` | tables and procedures: made by many at once, by hand, and swept |
//! | `figures` | how large the tables get; for long when `TIDELOCK_GRANTS` is set |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "common/store/mod.rs"]
mod support;
#[path = "mysql_store/connections.rs"]
mod connections;
#[path = "mysql_store/figures.rs"]
mod figures;
#[path = "mysql_store/login.rs"]
mod login;
#[path = "mysql_store/network.rs"]
mod network;
#[path = "mysql_store/processes.rs"]
mod processes;
#[path = "mysql_store/replicas.rs"]
mod replicas;
#[path = "mysql_store/restarts.rs"]
mod restarts;
#[path = "mysql_store/schema.rs"]
mod schema;

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
        processes::trials(),
        network::trials(),
        connections::trials(),
        schema::trials(),
        login::trials(),
        figures::trials(),
    ];
    harness::run(modules, vec![])
}

/// Asks a server something, as its administrator.
fn sql(server: &Server, text: &str) -> String {
    server.ask(&["-e", text]).unwrap().trim().to_owned()
}
