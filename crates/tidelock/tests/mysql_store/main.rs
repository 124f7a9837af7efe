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
//! | `renewals` | renewals of many claims in one call |
//! | `rights` | tables and procedures of our names that somebody else made |
//! | `upgrade` | databases of an earlier build, and its clients that are still running |
//! | `schema` | tables and procedures: made by many at once, by hand, and swept |
//! | `growth` | names that are new |
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
mod growth;
mod login;
mod relay;
#[path = "../common/renewals.rs"]
mod renewals;
mod replicas;
mod restarts;
mod rights;
mod schema;
mod upgrade;

use std::{process::ExitCode, sync::Arc, time::Duration};

use renewals::Database;
use support::{Place, Store, harness};
use test_servers::{MariaDb, Server};
use tidelock::{
    backend::Backend,
    backends::mysql::{MysqlBackend, MysqlConfig},
};

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

const RENEWALS: Database = Database {
    connect: |url, id| {
        Box::pin(async move {
            let config = MysqlConfig::from_url(&url).unwrap();
            Arc::new(MysqlBackend::connect(config, id).await.unwrap()) as Arc<dyn Backend>
        })
    },
    lapses: |server, place| {
        let text = "SELECT lapses FROM (SELECT client, claim, lapses FROM tidelock_lines WHERE many = 0 AND client IS NOT NULL UNION ALL SELECT client, claim, lapses FROM tidelock_claims) c ORDER BY client, claim";
        place.ask(server, text).lines().map(|line| line.parse().unwrap()).collect()
    },
    lock: |place, name| format!("SELECT name FROM {}.tidelock_lines WHERE name = '{name}'", place.prefix),
    spoil: |server, place, name| {
        let text = format!(
            "CREATE TRIGGER {}.spoil BEFORE UPDATE ON {0}.tidelock_claims FOR EACH ROW IF NEW.name = '{name}' THEN SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'spoilt'; END IF",
            place.prefix
        );
        server.ask(&["--delimiter=//", "-e", &text]).unwrap();
    },
    write_down: |_| (),
    run: "-e",
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
        renewals::trials(),
        login::trials(),
        growth::trials(),
        figures::trials(),
    ];
    harness::run(modules, vec![])
}

/// Asks a server something, as its administrator.
fn sql(server: &Server, text: &str) -> String {
    server.ask(&["-e", text]).unwrap().trim().to_owned()
}
