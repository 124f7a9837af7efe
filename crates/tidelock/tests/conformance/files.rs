//! The store in files, in a directory of its own for each trial.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::{
    backend::{Backend, ClientId},
    backends::file::{FileBackend, FileConfig},
    clock::Clock,
    testing::suite::Store,
};

use crate::SHORT_TTL;

/// The directory. It is removed with the trial.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    pub(crate) fn open() -> Arc<dyn Store> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidelock-conformance-{}-{number}", std::process::id());
        Arc::new(Self { directory: std::env::temp_dir().join(name) })
    }
}

impl Store for Files {
    fn name(&self) -> &'static str {
        "file"
    }

    fn client(&self, id: ClientId) -> Pin<Box<dyn Future<Output = Arc<dyn Backend>> + Send>> {
        let config = FileConfig::new(&self.directory);
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
