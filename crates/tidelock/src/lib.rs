//! Distributed locks with a line, fencing tokens, and a signal when a lock is lost.
//!
//! ```
//! # async fn write_order(token: tidelock::Token) -> Result<(), tidelock::Error> { Ok(()) }
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # rt.block_on(async {
//! use tidelock::Locks;
//!
//! let locks = Locks::connect("memory:").await?;            // any store by its URL
//! let guard = locks.mutex("orders/42").lock().await?;      // waits in line, renews by itself
//! write_order(guard.token()).await?;                       // fencing token, larger than every earlier one
//! guard.release().await?;
//! # Ok::<(), tidelock::Error>(()) }).unwrap();
//! ```
//!
//! [`Mutex`], [`RwLock`] and [`Semaphore`] are one thing underneath: a named line with a capacity.
//! [`Multi`] takes several names without deadlock. [`blocking`] is the same without async.
//!
//! [`stock`] sells what there is little of to very many buyers.
//!
//! Who writes a backend reads [`backend`] and [`line`](mod@line).

pub mod backend;
pub mod backends;
pub mod blocking;
mod claim;
mod client;
pub mod clock;
mod connect;
#[doc(hidden)]
pub mod defect;
mod engine;
mod error;
mod events;
pub mod fence;
mod guard;
mod handle;
pub mod line;
mod multi;
mod mutex;
mod name;
mod options;
mod owner;
mod rw_lock;
mod semaphore;
mod shards;
pub mod stock;
#[cfg(feature = "testing")]
pub mod testing;
mod ticket;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
mod tls;
mod token;
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only stores with servers have all of it"))]
mod url;

pub use self::{
    client::Locks,
    engine::{Holding, LockState},
    error::{Error, ErrorKind, LossReason, Result},
    guard::Guard,
    multi::{Guards, Multi},
    mutex::Mutex,
    name::{MAX_NAME_BYTES, Name},
    options::{DEFAULT_TTL, MAX_TTL},
    owner::{MAX_OWNER_BYTES, Owner},
    rw_lock::RwLock,
    semaphore::Semaphore,
    ticket::Ticket,
    token::Token,
};

/// The documents of the project, so that their examples compile.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../README.zh-CN.md")]
    struct ReadmeInChinese;
    #[doc = include_str!("../../../docs/flash-sale.md")]
    struct FlashSale;
    #[doc = include_str!("../../../docs/backends/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/fencing.md")]
    struct Fencing;
    #[cfg(all(unix, feature = "file"))]
    #[doc = include_str!("../../../docs/backends/file.md")]
    struct File;
    #[cfg(feature = "etcd")]
    #[doc = include_str!("../../../docs/backends/etcd.md")]
    struct Etcd;
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/backends/postgres.md")]
    struct Postgres;
    #[cfg(feature = "redis")]
    #[doc = include_str!("../../../docs/backends/redis.md")]
    struct Redis;
    #[cfg(feature = "zookeeper")]
    #[doc = include_str!("../../../docs/backends/zookeeper.md")]
    struct Zookeeper;
}
