//! `mysql:` and `mariadb:` keep locks as rows of a database, changed by stored procedures.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::mysql::{MysqlBackend, MysqlConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = MysqlConfig::from_url("mysql://shop@127.0.0.1/shop")?;
//! let backend = MysqlBackend::connect(config, ClientId::random()).await?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | how to connect, for users |
// | `settings` | from a URL to a server and options |
// | `schema`, `schema/` | tables and procedures, and how they come into the database |
// | `errors` | what may be concluded from an error |
// | `owners` | who made what is in the database |
// | `fitness` | whether a server is fit for locks |
// | `link` | connections to the server: opened, checked, lent to one call at a time |
// | `codec` | answers of procedures, and how a share is kept |
// | `store` | the verbs |
// | `together` | enters and leaves that share a call |
// | `wake` | the connection that listens |
// | `follow` | names that are followed |
// | `backend` | connecting, and what the store can do |
// | `stock` | plans and segments of stock |

mod backend;
mod codec;
mod config;
mod errors;
mod fitness;
mod follow;
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
pub use self::stock::MysqlStock;
pub use self::{backend::MysqlBackend, config::MysqlConfig, schema::schema};

#[cfg(feature = "stock")]
use super::registry::stocked;
use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "mysql",
    schemes: &["mysql", "mariadb"],
    feature: Some("mysql"),
    needs_server: true,
    options: settings::MysqlSettings::OPTIONS,
    takes_paths: false,
    on_clock: None,
    connect: |url, client| Box::pin(async move { MysqlConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: Some(|url| {
        Box::pin(async move { stocked("mysql", MysqlStock::connect(MysqlConfig::from_url(url)?).await) })
    }),
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: Some(schema),
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", MysqlConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &[],
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/mysql.md")]
struct Page;
