//! `redis:` keeps locks in a Redis server, behind Sentinels, or in a cluster.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::redis::{RedisBackend, RedisConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = RedisConfig::from_url("redis://127.0.0.1:6379")?;
//! let backend = RedisBackend::connect(config, ClientId::random()).await?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | how to connect, for users |
// | `settings` | from a URL to servers and options |
// | `options` | the options of a URL |
// | `codec/` | keys, arguments, replies, pushes, and the records of locks |
// | `layout` | the fields and codes of all that is written: one table for Rust, scripts and documentation |
// | `scripts`, `scripts/` | one atomic script for each verb |
// | `errors` | what may be concluded from an error of the driver |
// | `link/` | the connections, and which server a lock's commands go to |
// | `wake` | what servers tell unasked |
// | `fitness` | whether a server is fit for locks |
// | `forms` | what is kept at a key that this version does not read |
// | `clock_watch` | whether a server's clock jumps |
// | `quiet` | when a server grants nothing though it answers |
// | `record` | since when a server that votes can be relied on, kept on the server |
// | `library` | the functions on a server: loaded, and called only if the code is ours |
// | `commands` | the commands that call scripts |
// | `store` | the verbs, by scripts |
// | `together` | enters and leaves that go together: which, and when |
// | `batch` | the call for several of them |
// | `replicas` | replicas that have to confirm what is written |
// | `view` | what people see of names that they ask for |
// | `pages` | what people see of all locks, page by page |
// | `transactions` | the verbs where scripts are forbidden |
// | `follow` | names that are followed |
// | `follow_all` | all names, followed |
// | `fleet/` | locks that other programs take as well |
// | `stock` | segments of stock: the steps |
// | `vote` | what `redlock` asks one server of several that vote |
// | `backend` | connecting, and what the store can do |
// | `hostile` | readers of bytes from outside, for fuzzing |

mod backend;
mod batch;
mod clock_watch;
mod codec;
mod commands;
mod config;
mod errors;
mod fitness;
mod fleet;
mod follow;
mod follow_all;
mod forms;
#[cfg(feature = "testing")]
mod hostile;
mod layout;
mod library;
mod link;
pub(super) mod options;
mod pages;
mod quiet;
mod record;
mod replicas;
mod scripts;
mod settings;
#[cfg(feature = "stock")]
mod stock;
mod store;
mod together;
mod transactions;
mod view;
mod vote;
mod wake;

#[cfg(feature = "stock")]
pub use self::stock::RedisStock;
pub use self::{backend::RedisBackend, config::RedisConfig, fleet::Dialect, settings::Scripting};
pub(super) use self::{
    clock_watch::Reading,
    fleet::is_stranger,
    follow::Tracking,
    link::Server,
    settings::RedisSettings,
    store::{Floor, MIN_TTL, RedisStore},
    wake::Wake,
};

#[cfg(feature = "stock")]
use super::registry::stocked;
use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "redis",
    schemes: &[
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
    ],
    feature: Some("redis"),
    needs_server: true,
    options: options::OPTIONS,
    takes_paths: false,
    on_clock: None,
    connect: |url, client| Box::pin(async move { RedisConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: Some(|url| {
        Box::pin(async move { stocked("redis", RedisStock::connect(RedisConfig::from_url(url)?).await) })
    }),
    #[cfg(feature = "stock")]
    stock_schema: Some(RedisConfig::stock_function_library),
    schema: Some(RedisConfig::function_library),
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", RedisConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &hostile::READERS,
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/redis.md")]
struct Page;
