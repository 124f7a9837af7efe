//! PostgreSQL: one server, a pooler before it, and advisory locks. Started by the first trial and shared by all.

use std::{sync::Arc, time::Duration};

use test_servers::{PgBouncer, Postgres, Server};
use tidelock::{
    backends::postgres::{PostgresBackend, PostgresConfig},
    testing::suite::Store,
};

use crate::{
    SHORT_TTL,
    served::{Served, client, number},
    shared::Shared,
};

static ONE: Shared<Server> = Shared::new();
static POOLER: Shared<Server> = Shared::new();

fn server() -> Arc<Server> {
    ONE.get(|| Postgres::new().start().expect("a server"))
}

pub(crate) fn one() -> Arc<dyn Store> {
    open("postgres", server().url(), "", SHORT_TTL)
}

/// With the advisory lock of the session as well.
pub(crate) fn advisory() -> Arc<dyn Store> {
    open("postgres_advisory", server().url(), "&mode=advisory", SHORT_TTL)
}

/// Each transaction in whichever of a few sessions is free.
pub(crate) fn pooled() -> Arc<dyn Store> {
    let pooler = POOLER.get(|| PgBouncer::new(5).start(&server()).expect("a pooler"));
    // A statement waits for one of the few sessions, and may take a quarter of the ttl.
    open("postgres_pooled", pooler.url(), "", 2 * SHORT_TTL)
}

/// Stops whatever was started.
pub(crate) fn stop() {
    POOLER.stop();
    ONE.stop();
}

fn open(name: &'static str, url: &str, options: &str, short_ttl: Duration) -> Arc<dyn Store> {
    Arc::new(Served {
        name,
        url: format!("{url}?prefix=trial-{}/{options}", number()),
        short_ttl,
        connect: |url, id| {
            let config = PostgresConfig::from_url(&url).expect("a URL");
            client(PostgresBackend::connect(config, id))
        },
    })
}
