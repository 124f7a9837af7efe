//! etcd: one server and a cluster of three. Each is started by the first trial and shared by all.

use std::{sync::Arc, time::Duration};

use test_servers::{Cluster, Etcd, Server};
use tidelock::{
    backends::etcd::{EtcdBackend, EtcdConfig},
    testing::suite::Store,
};

use crate::{
    served::{Served, client, number},
    shared::Shared,
};

static ONE: Shared<Server> = Shared::new();
static CLUSTER: Shared<Cluster> = Shared::new();

pub(crate) fn one() -> Arc<dyn Store> {
    open("etcd", ONE.get(|| Etcd::new().start().expect("a server")).url())
}

pub(crate) fn cluster() -> Arc<dyn Store> {
    open("etcd_cluster", CLUSTER.get(|| Etcd::new().patient().start_cluster().expect("a cluster")).url())
}

/// Stops whatever was started.
pub(crate) fn stop() {
    ONE.stop();
    CLUSTER.stop();
}

fn open(name: &'static str, url: &str) -> Arc<dyn Store> {
    Arc::new(Served {
        name,
        url: format!("{url}?prefix=trial-{}/", number()),
        // A server looks for leases that ended twice in a second.
        short_ttl: Duration::from_secs(3),
        connect: |url, id| {
            let config = EtcdConfig::from_url(&url).expect("a URL");
            client(EtcdBackend::connect(config, id))
        },
    })
}
