//! MariaDB: one server that writes each commit to the disk, started by the first trial and shared by all.

use std::sync::Arc;

use test_servers::{MariaDb, Server};
use tidelock::{
    backends::mysql::{MysqlBackend, MysqlConfig},
    testing::suite::Store,
};

use crate::{
    SHORT_TTL,
    served::{Served, client},
    shared::Shared,
};

static ONE: Shared<Server> = Shared::new();

/// The database is that of all trials: names differ.
pub(crate) fn one() -> Arc<dyn Store> {
    let server = ONE.get(|| MariaDb::new().durable().start().expect("a server"));
    Arc::new(Served {
        name: "mysql",
        url: server.url().to_owned(),
        short_ttl: SHORT_TTL,
        connect: |url, id| {
            let config = MysqlConfig::from_url(&url).expect("a URL");
            client(MysqlBackend::connect(config, id))
        },
    })
}

/// Stops whatever was started.
pub(crate) fn stop() {
    ONE.stop();
}
