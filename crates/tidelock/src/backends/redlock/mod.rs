//! `redlock:` keeps locks in several independent Redis servers: a claim holds while a majority of all of them
//! confirms it.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::redlock::{RedlockBackend, RedlockConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = RedlockConfig::from_url("redlock://10.0.0.1,10.0.0.2,10.0.0.3")?;
//! let backend = RedlockBackend::connect(config, ClientId::random()).await?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | how to connect, for users |
// | `settings` | from a URL to servers and options |
// | `clocks` | whose clock agrees with a majority: pure |
// | `quorum` | what follows from votes: pure |
// | `round` | asking all servers at once, and waiting for as few of them as will do |
// | `claims` | what is known of this client's claims |
// | `link` | one server: connected, trusted, late |
// | `split` | who gives way when nobody has a majority |
// | `store` | the verbs, and the servers |
// | `wake` | what servers tell unasked, and work that nobody waits for |
// | `vouch` | which servers may vote, and putting claims on those that come back |
// | `enter` | entering, until there is a majority |
// | `renew` | renewing |
// | `leave` | leaving, and telling it later to those that cannot be told now |
// | `leaves` | what servers say of claims that are being left |
// | `follow` | names that are followed |
// | `view` | what people see |
// | `backend` | connecting, and what the store can do |
//
// What a single server does is in `redis`.

mod backend;
mod claims;
mod clocks;
mod config;
mod enter;
mod follow;
mod leave;
mod leaves;
mod link;
mod quorum;
mod renew;
mod round;
mod settings;
mod split;
mod store;
mod view;
mod vouch;
mod wake;

pub use self::{backend::RedlockBackend, config::RedlockConfig};

use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "redlock",
    schemes: &["redlock", "redlocks"],
    feature: Some("redis"),
    needs_server: true,
    options: settings::RedlockSettings::OPTIONS,
    takes_paths: false,
    on_clock: None,
    connect: |url, client| Box::pin(async move { RedlockConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: None,
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: None,
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", RedlockConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &[],
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/redlock.md")]
struct Page;
