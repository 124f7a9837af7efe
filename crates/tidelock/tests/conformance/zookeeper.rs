//! ZooKeeper: one server and an ensemble of three. Each is started by the first trial and shared by all.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use test_servers::{Cluster, Server, Zookeeper};
use tidelock::{
    backend::{Backend, ClientId},
    backends::zookeeper::{ZookeeperBackend, ZookeeperConfig},
    clock::Clock,
    testing::suite::Store,
};

use crate::SHORT_TTL;

/// What was started. Stopped at the end of the run.
#[derive(Debug)]
struct Started {
    one: Option<Server>,
    ensemble: Option<Cluster>,
}

static STARTED: Mutex<Started> = Mutex::new(Started { one: None, ensemble: None });

pub(crate) fn one() -> Arc<dyn Store> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = started.one.get_or_insert_with(|| Zookeeper::new().start().expect("a server"));
    Ensemble::open("zookeeper", server.url())
}

pub(crate) fn ensemble() -> Arc<dyn Store> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let ensemble =
        started.ensemble.get_or_insert_with(|| Zookeeper::new().start_ensemble().expect("an ensemble"));
    Ensemble::open("zookeeper_ensemble", ensemble.url())
}

/// Stops whatever was started.
pub(crate) fn stop() {
    *STARTED.lock().unwrap_or_else(PoisonError::into_inner) = Started { one: None, ensemble: None };
}

/// A path of its own for each trial.
#[derive(Debug)]
struct Ensemble {
    name: &'static str,
    url: String,
}

impl Ensemble {
    fn open(name: &'static str, url: &str) -> Arc<dyn Store> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { name, url: format!("{url}/trials/{number}") })
    }
}

impl Store for Ensemble {
    fn name(&self) -> &'static str {
        self.name
    }

    fn client(&self, _: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        let url = self.url.clone();
        Box::pin(async move {
            let config = ZookeeperConfig::from_url(&url).expect("a URL");
            let backend = ZookeeperBackend::connect(config).await.expect("a server that answers");
            Arc::new(backend) as Arc<dyn Backend>
        })
    }

    fn clock(&self) -> Clock {
        Clock::machine()
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }
}
