//! A store on servers, which the first trial starts and all share.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::{
    backend::{Backend, ClientId, Failure},
    testing::{Clock, suite::Store},
};

type Client = Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>>;

/// Locks of its own for each trial.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) short_ttl: Duration,
    pub(crate) connect: fn(String, ClientId) -> Client,
}

/// The number of a trial, by which its locks differ from those of others.
#[cfg_attr(
    not(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper")),
    allow(dead_code, reason = "a database is shared by all trials")
)]
pub(crate) fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A client that is being connected.
pub(crate) fn client<B, F>(connecting: F) -> Client
where
    B: Backend,
    F: Future<Output = Result<B, Failure>> + Send + 'static,
{
    Box::pin(async { Arc::new(connecting.await.expect("a server that answers")) as Arc<dyn Backend> })
}

impl Store for Served {
    fn name(&self) -> &'static str {
        self.name
    }

    fn client(&self, id: ClientId) -> Client {
        (self.connect)(self.url.clone(), id)
    }

    fn clock(&self) -> Clock {
        Clock::machine()
    }

    fn short_ttl(&self) -> Duration {
        self.short_ttl
    }
}
