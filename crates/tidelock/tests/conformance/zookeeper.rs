//! ZooKeeper: one server and an ensemble of three. Each is started by the first trial and shared by all.

use std::sync::Arc;

use test_servers::{Cluster, Server, Zookeeper};
use tidelock::{
    backends::zookeeper::{ZookeeperBackend, ZookeeperConfig},
    testing::suite::Store,
};

use crate::{
    SHORT_TTL,
    served::{Served, client, number},
    shared::Shared,
};

static ONE: Shared<Server> = Shared::new();
static ENSEMBLE: Shared<Cluster> = Shared::new();

pub(crate) fn one() -> Arc<dyn Store> {
    let server = ONE.get(|| Zookeeper::new().start().expect("a server"));
    open("zookeeper", server.url())
}

pub(crate) fn ensemble() -> Arc<dyn Store> {
    let ensemble = ENSEMBLE.get(|| Zookeeper::new().start_ensemble().expect("an ensemble"));
    open("zookeeper_ensemble", ensemble.url())
}

/// Stops whatever was started.
pub(crate) fn stop() {
    ONE.stop();
    ENSEMBLE.stop();
}

fn open(name: &'static str, url: &str) -> Arc<dyn Store> {
    Arc::new(Served {
        name,
        url: format!("{url}/trials/{}", number()),
        short_ttl: SHORT_TTL,
        connect: |url, id| {
            let config = ZookeeperConfig::from_url(&url).expect("a URL");
            client(ZookeeperBackend::connect(config, id))
        },
    })
}
