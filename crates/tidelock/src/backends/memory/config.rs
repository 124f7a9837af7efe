//! Which store in memory: one of its own, or the one of a name.

use std::sync::Arc;

#[cfg(feature = "stock")]
use super::MemoryStock;
use super::{MemoryBackend, MemoryStore};
use crate::{
    backend::{Backend, ClientId},
    backends::{
        registry::Connecting,
        target::{Config, Target},
    },
    clock::Clock,
    error::{Error, Result},
};

/// Which store of this process a client uses.
///
/// ```
/// use tidelock::{Locks, backends::memory::MemoryConfig};
///
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// let one = Locks::connect_with(MemoryConfig::named("tests")).await?;
/// let same = Locks::connect_with(MemoryConfig::named("tests")).await?;
/// let other = Locks::connect_with(MemoryConfig::new()).await?;
/// let guard = one.mutex("a").lock().await?;
/// assert!(same.mutex("a").try_lock().await?.is_none());
/// assert!(other.mutex("a").try_lock().await?.is_some());
/// # drop(guard);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryConfig {
    name: Option<String>,
}

impl MemoryConfig {
    /// Uses a store that no other connection shares.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses the store that all connections of this process with this name share.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()) }
    }

    /// Reads `memory:` or `memory:NAME`.
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl) when the URL has an address or options.
    pub fn from_url(url: &str) -> Result<Self> {
        let name = name(url)?;
        Ok(if name.is_empty() { Self::new() } else { Self::named(name) })
    }

    fn store(&self, clock: &Clock) -> Result<Arc<MemoryStore>> {
        match &self.name {
            None => Ok(MemoryStore::timed(clock.clone())),
            Some(name) => MemoryStore::shared(name, clock),
        }
    }
}

impl Config for MemoryConfig {
    fn connect(&self, client: ClientId) -> Connecting<'_, dyn Backend> {
        Box::pin(
            async move { Ok(Arc::new(MemoryBackend::connect(self.store(&Clock::machine())?, client)) as _) },
        )
    }

    fn connect_on<'a>(&'a self, client: ClientId, clock: &'a Clock) -> Connecting<'a, dyn Backend> {
        Box::pin(async move { Ok(Arc::new(MemoryBackend::connect(self.store(clock)?, client)) as _) })
    }
}

impl From<MemoryConfig> for Target {
    fn from(config: MemoryConfig) -> Self {
        Self::config(config)
    }
}

#[cfg(feature = "stock")]
pub(super) fn stock(url: &str) -> Result<Arc<MemoryStock>> {
    Ok(match name(url)? {
        "" => Arc::new(MemoryStock::new()),
        name => MemoryStock::shared(name),
    })
}

fn name(url: &str) -> Result<&str> {
    let name = url.split_once(':').map_or("", |(_, name)| name);
    if name.contains(['/', '?', '@']) {
        return Err(Error::invalid_url(
            "the store in memory has no address or options: write memory: or memory:NAME",
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_name_or_nothing() {
        assert_eq!((name("memory:").unwrap(), name("memory:tests").unwrap()), ("", "tests"));
        for bad in ["memory://host", "memory:a?ttl=5", "memory:me@a"] {
            assert!(name(bad).unwrap_err().is_invalid_url(), "{bad}");
        }
    }
}
