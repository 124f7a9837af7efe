//! etcd: one server and a cluster of three. Each is started by the first trial and shared by all.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use test_servers::{Cluster, Etcd, Server};
use tidelock::{
    backend::{Backend, ClientId},
    backends::etcd::{EtcdBackend, EtcdConfig},
    clock::Clock,
    testing::suite::Store,
};

/// What was started. Stopped at the end of the run.
static ONE: Mutex<Option<Server>> = Mutex::new(None);
static CLUSTER: Mutex<Option<Cluster>> = Mutex::new(None);

pub(crate) fn one() -> Arc<dyn Store> {
    let mut one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = one.get_or_insert_with(|| Etcd::new().start().expect("a server"));
    Installation::open("etcd", server.url())
}

pub(crate) fn cluster() -> Arc<dyn Store> {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = cluster.get_or_insert_with(|| Etcd::new().patient().start_cluster().expect("a cluster"));
    Installation::open("etcd_cluster", cluster.url())
}

/// Stops whatever was started.
pub(crate) fn stop() {
    *ONE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    *CLUSTER.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Keys of its own for each trial.
#[derive(Debug)]
struct Installation {
    name: &'static str,
    url: String,
}

impl Installation {
    fn open(name: &'static str, url: &str) -> Arc<dyn Store> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { name, url: format!("{url}?prefix=trial-{number}/") })
    }
}

impl Store for Installation {
    fn name(&self) -> &'static str {
        self.name
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        let url = self.url.clone();
        Box::pin(async move {
            let config = EtcdConfig::from_url(&url).expect("a URL");
            let backend = EtcdBackend::connect(config, id).await.expect("a server that answers");
            Arc::new(backend) as Arc<dyn Backend>
        })
    }

    fn clock(&self) -> Clock {
        Clock::machine()
    }

    /// A server looks for leases that ended twice in a second.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(3)
    }
}
