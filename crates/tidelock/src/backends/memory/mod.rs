//! `memory:` keeps locks in this process.
//!
//! For tests, for single-process programs, and as the reference for every other store: its logic is
//! [`line`](crate::model::line) itself. `memory:` is a separate store for every connection; `memory:NAME` is
//! shared by all connections of this process with that name.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # rt.block_on(async {
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::memory::{MemoryBackend, MemoryConfig, MemoryStore},
//! };
//!
//! let store = MemoryStore::new();
//! let locks = Locks::with_backend(Arc::new(MemoryBackend::connect(store, ClientId::random())));
//! let others = Locks::connect_with(MemoryConfig::from_url("memory:tests")?).await?;
//! # drop((locks, others));
//! # Ok::<(), tidelock::Error>(()) }).unwrap();
//! ```

// It needs no `wake`, because a push is a channel.

mod backend;
mod config;
#[cfg(feature = "stock")]
mod stock;
mod store;

#[cfg(feature = "stock")]
pub use self::stock::MemoryStock;
pub use self::{backend::MemoryBackend, config::MemoryConfig, store::MemoryStore};

use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "memory",
    schemes: &["memory"],
    feature: None,
    needs_server: false,
    options: &[],
    takes_paths: false,
    on_clock: Some(|url, client, clock| {
        Box::pin(async move { MemoryConfig::from_url(url)?.connect_on(client, clock).await })
    }),
    connect: |url, client| Box::pin(async move { MemoryConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: Some(|url| Box::pin(async move { Ok(config::stock(url)? as _) })),
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: None,
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", MemoryConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &[],
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/memory.md")]
struct Page;
