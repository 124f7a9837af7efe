//! The store in files, in a directory of its own for each trial.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::{
    backend::{Backend, ClientId},
    backends::file::{FileBackend, FileConfig},
    testing::{Clock, suite::Store},
};

use crate::SHORT_TTL;

/// The directory. It is removed with the trial.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    /// Whether each client sees another boot id.
    boots: bool,
}

/// All clients see the machine's boot id.
pub(crate) fn one() -> Arc<dyn Store> {
    Files::open(false)
}

/// Each client sees another boot id, as in containers.
pub(crate) fn boots() -> Arc<dyn Store> {
    Files::open(true)
}

impl Files {
    fn open(boots: bool) -> Arc<dyn Store> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidelock-conformance-{}-{number}", std::process::id());
        Arc::new(Self { directory: std::env::temp_dir().join(name), boots })
    }
}

impl Store for Files {
    fn name(&self) -> &'static str {
        if self.boots { "file_boots" } else { "file" }
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        static BOOTS: AtomicU64 = AtomicU64::new(1);
        let mut config = FileConfig::new(&self.directory);
        if self.boots {
            config = config.with_boot(BOOTS.fetch_add(1, Ordering::Relaxed));
        }
        let backend = FileBackend::connect(&config, id).expect("a directory of its own");
        let backend: Arc<dyn Backend> = Arc::new(backend);
        Box::pin(std::future::ready(backend))
    }

    fn clock(&self) -> Clock {
        Clock::machine()
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Nothing was written if no client connected.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
