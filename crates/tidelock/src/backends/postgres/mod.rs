//! `postgres:` keeps locks in rows of a PostgreSQL database.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::postgres::{PostgresBackend, PostgresConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = PostgresConfig::from_url("postgres://shop@127.0.0.1/shop")?;
//! let backend = PostgresBackend::connect(config, ClientId::random()).await?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | how to connect, for users |
// | `settings` | from a URL to servers and options |
// | `schema`, `schema/` | tables, rules and one function for each verb |
// | `owners` | what is in the database already, and who owns it |
// | `errors` | what may be concluded from an error of the driver |
// | `fitness` | whether a server is fit for locks |
// | `link/` | the connection: opened, checked, opened again |
// | `codec` | arguments, answers and news |
// | `claims/` | claims that wait behind a pooler, and claims that hold advisory locks |
// | `store` | the verbs |
// | `together` | enters and leaves that share a call |
// | `wake` | news from the server |
// | `follow` | names that are followed |
// | `backend` | connecting, and what the store can do |
// | `hostile` | readers of bytes from outside, for fuzzing |
// | `stock` | plans and segments of stock |

mod backend;
mod claims;
mod codec;
mod config;
mod errors;
mod fitness;
mod follow;
#[cfg(feature = "testing")]
mod hostile;
mod link;
mod owners;
mod schema;
mod settings;
#[cfg(feature = "stock")]
mod stock;
mod store;
mod together;
mod wake;

#[cfg(feature = "stock")]
pub use self::stock::PostgresStock;
pub use self::{backend::PostgresBackend, config::PostgresConfig, schema::schema};

#[cfg(feature = "stock")]
use super::registry::stocked;
use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "postgres",
    schemes: &["postgres", "postgresql"],
    feature: Some("postgres"),
    needs_server: true,
    options: settings::PostgresSettings::OPTIONS,
    takes_paths: false,
    on_clock: None,
    connect: |url, client| Box::pin(async move { PostgresConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: Some(|url| {
        Box::pin(
            async move { stocked("postgres", PostgresStock::connect(PostgresConfig::from_url(url)?).await) },
        )
    }),
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: Some(schema),
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", PostgresConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &hostile::READERS,
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/postgres.md")]
struct Page;
