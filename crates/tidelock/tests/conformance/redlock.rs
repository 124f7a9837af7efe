//! Five servers that vote, started by the first trial and shared by all.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use test_servers::{Redis, Server};
use tidelock::{
    backend::{Backend, ClientId},
    backends::redlock::{RedlockBackend, RedlockConfig},
    clock::Clock,
    testing::suite::{LONG_TTL, Store},
};

use crate::SHORT_TTL;

static STARTED: Mutex<Vec<Server>> = Mutex::new(Vec::new());

pub(crate) fn five() -> Arc<dyn Store> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut servers = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if servers.is_empty() {
        // Those that keep all they confirm have a vote at once.
        servers.extend((0..5).map(|_| Redis::new().durable().start().expect("a server")));
    }
    let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    let (hosts, longest) = (hosts.join(","), LONG_TTL.as_millis());
    Arc::new(Five { url: format!("redlock://{hosts}?prefix=trial-{number}:&longest_ttl_ms={longest}") })
}

/// Stops whatever was started.
pub(crate) fn stop() {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Keys of its own for each trial.
#[derive(Debug)]
struct Five {
    url: String,
}

impl Store for Five {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        let url = self.url.clone();
        Box::pin(async move {
            let config = RedlockConfig::from_url(&url).expect("a URL");
            let backend = RedlockBackend::connect(config, id).await.expect("servers that answer");
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
