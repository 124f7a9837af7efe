//! From a URL to a store.

use std::sync::Arc;

use crate::{
    backend::{Backend, ClientId},
    backends::memory::{MemoryBackend, MemoryStore},
    clock::Clock,
    error::{Error, Result},
};

/// The schemes that this build knows.
const SCHEMES: &[&str] = &["memory"];

/// Connects the store of a URL on behalf of a client.
pub(crate) async fn backend(url: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    // Only the scheme is ever shown: the rest may hold a password.
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::invalid_url(format!(
            "a store is named by a URL such as memory:, and this has no scheme (this build has: {})",
            SCHEMES.join(", ")
        )));
    };
    match scheme {
        "memory" => memory(rest, client),
        other => Err(Error::invalid_url(format!(
            "this build of tidelock has no store for the URL scheme {:?} (it has: {}): mend the URL or enable the crate's feature for that store",
            other.chars().take(32).collect::<String>(),
            SCHEMES.join(", ")
        ))),
    }
}

fn memory(rest: &str, client: ClientId) -> Result<Arc<dyn Backend>> {
    if rest.contains(['/', '?', '@']) {
        return Err(Error::invalid_url(
            "the store in memory has no address or options: write memory: or memory:NAME",
        ));
    }
    let store = if rest.is_empty() { MemoryStore::new(Clock::machine()) } else { MemoryStore::shared(rest) };
    Ok(Arc::new(MemoryBackend::connect(store, client)))
}
