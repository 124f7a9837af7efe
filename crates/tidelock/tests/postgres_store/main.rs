//! The store in PostgreSQL, with real servers, poolers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `support` | trials that all stores share: connections are cut, answers lost, processes killed and stopped |
//! | `crashes` | servers and single backends are killed, and take commits with them |
//! | `standbys` | a primary dies, and a standby is promoted |
//! | `network` | connections are cut, sessions ended, and answers lost after the commit |
//! | `login` | servers that refuse, and servers that should be refused |
//! | `follow` | followers of names that are cut off, forgotten, or have no right to follow |
//! | `leaves` | claims that are there when they are left, and claims that are not |
//! | `rights` | roles with few rights, and schemas of other versions |
//! | `owners` | schemas that somebody else made first |
//! | `upgrade` | the schema and the clients of the version before |
//! | `copies` | dumps that are restored, and databases that are copied |
//! | `peers` | servers that begin to misbehave, before the login and later |
//! | `pooler` | PgBouncer in transaction mode |
//! | `advisory` | sessions end that have the locks, and others take the same locks by hand |
//! | `renewals` | renewals of many claims in one call |
//! | `resource` | tables that refuse stale tokens |
//! | `growth` | names that are new, and names that are forgotten |
//! | `figures` | how large the tables get; for long when `TIDELOCK_GRANTS` is set |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "../common/store/mod.rs"]
mod support;
mod advisory;
mod copies;
mod crashes;
mod figures;
mod follow;
mod growth;
mod leaves;
mod login;
mod network;
mod owners;
mod peers;
mod pooler;
#[path = "../common/renewals.rs"]
mod renewals;
mod resource;
mod rights;
mod standbys;
mod upgrade;

use std::{process::ExitCode, sync::Arc, time::Duration};

use renewals::Database;
use support::{Store, harness};
use test_servers::{Postgres, Server};
use tidelock::{
    backend::Backend,
    backends::postgres::{PostgresBackend, PostgresConfig},
};

const STORE: Store = Store {
    start: || Postgres::new().start().unwrap(),
    prefix: |number| format!("trial-{number}/"),
    prepare: |_, _| (),
    url: |servers, prefix| format!("{servers}?prefix={prefix}"),
    long: Duration::from_secs(60),
    short: Duration::from_secs(3),
    watchdog: Duration::from_secs(240),
    keeps_unheard: true,
    asks_over_others: true,
    renews: true,
    crowd: (120, 120),
};

const RENEWALS: Database = Database {
    connect: |url, id| {
        Box::pin(async move {
            let config = PostgresConfig::from_url(&url).unwrap();
            Arc::new(PostgresBackend::connect(config, id).await.unwrap()) as Arc<dyn Backend>
        })
    },
    lapses: |server, place| {
        let text = format!(
            "SELECT c.lapses FROM tidelock.line t, unnest(t.claims) c WHERE starts_with(t.name, '{}') ORDER BY c.id",
            place.prefix
        );
        sql(server, &text).lines().map(|line| line.parse().unwrap()).collect()
    },
    lock: |place, name| {
        let name = format!("{}{name}", place.prefix);
        format!("SELECT name FROM tidelock.line WHERE name = '{name}'")
    },
    spoil: |server, place, name| {
        let name = format!("{}{name}", place.prefix);
        let text = format!(
            "CREATE FUNCTION public.spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.name = '{name}' THEN RAISE EXCEPTION 'spoilt' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$; CREATE TRIGGER spoil BEFORE UPDATE ON tidelock.line FOR EACH ROW EXECUTE FUNCTION public.spoil()"
        );
        sql(server, &text);
    },
    write_down: |server| drop(sql(server, "CHECKPOINT")),
    run: "-c",
};

fn main() -> ExitCode {
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        crashes::trials(),
        standbys::trials(),
        network::trials(),
        pooler::trials(),
        advisory::trials(),
        support::common_trials(),
        support::batches::trials(),
        renewals::trials(),
        login::trials(),
        leaves::trials(),
        rights::trials(),
        owners::trials(),
        upgrade::trials(),
        follow::trials(),
        copies::trials(),
        peers::trials(),
        resource::trials(),
        figures::trials(),
        growth::trials(),
    ];
    harness::run(modules, vec![])
}

/// Asks a server something, as its administrator.
fn sql(server: &Server, text: &str) -> String {
    server.ask(&["-c", text]).unwrap().trim().to_owned()
}

/// Ends the sessions of all clients, as an administrator does. Says how many.
fn end_sessions(server: &Server) -> usize {
    let text =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tidelock'";
    sql(server, text).parse().unwrap()
}
