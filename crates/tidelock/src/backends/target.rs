//! What a client connects to: the URL of a store, or its typed config.

use std::{fmt, sync::Arc};

use super::registry::{self, Connecting};
use crate::{
    backend::{Backend, ClientId},
    clock::Clock,
    error::Result,
};

/// What a client connects to: a URL, or the typed config of a store.
///
/// Methods that connect take anything that becomes a target: `&str`, `String`, and the config of every store
/// in [`backends`](crate::backends).
#[derive(Clone)]
pub struct Target(Kind);

#[derive(Clone)]
enum Kind {
    Url(Arc<str>),
    Config(Arc<dyn Config>),
}

/// The typed config of a store.
pub(crate) trait Config: fmt::Debug + Send + Sync + 'static {
    /// Connects a client, or says what is wrong with the config.
    fn connect(&self, client: ClientId) -> Connecting<'_, dyn Backend>;

    /// Connects a client whose leases run on another clock than the machine's, if the store can do that.
    fn connect_on<'a>(&'a self, _: ClientId, _: &'a Clock) -> Connecting<'a, dyn Backend> {
        Box::pin(async { Err(registry::clock_refused()) })
    }
}

impl Target {
    /// Creates the target of a config.
    pub(crate) fn config(config: impl Config) -> Self {
        Self(Kind::Config(Arc::new(config)))
    }

    /// Connects a client whose leases run on this clock.
    pub(crate) async fn connect(&self, client: ClientId, clock: &Clock) -> Result<Arc<dyn Backend>> {
        match &self.0 {
            Kind::Url(url) => registry::backend(url, client, clock).await,
            Kind::Config(config) if clock.is_machine() => config.connect(client).await,
            Kind::Config(config) => config.connect_on(client, clock).await,
        }
    }
}

impl From<&str> for Target {
    fn from(url: &str) -> Self {
        Self(Kind::Url(url.into()))
    }
}

impl From<&String> for Target {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<String> for Target {
    fn from(url: String) -> Self {
        Self::from(url.as_str())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // The rest may hold a password.
            Kind::Url(url) => match url.split_once(':') {
                Some((scheme, _)) => write!(f, "{scheme}:…"),
                None => f.write_str("…"),
            },
            Kind::Config(config) => config.fmt(f),
        }
    }
}
