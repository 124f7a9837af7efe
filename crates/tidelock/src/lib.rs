//! Distributed locks with a fair queue, fencing tokens, and a signal when a lock is lost.
//!
//! ```
//! # async fn write_order(token: tidelock::Token) -> Result<(), tidelock::Error> { Ok(()) }
//! # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # rt.block_on(async {
//! use tidelock::Locks;
//!
//! let locks = Locks::connect("memory:").await?;            // any store by its URL
//! let guard = locks.mutex("orders/42").lock().await?;      // waits in the queue, renews automatically
//! write_order(guard.token()).await?;                       // fencing token, larger than every earlier one
//! guard.release().await?;
//! # Ok::<(), tidelock::Error>(()) }).unwrap();
//! ```
//!
//! The guide is in [`docs`]: choosing a store, options, errors, recipes and more.
//!
//! [`Mutex`], [`RwLock`] and [`Semaphore`] are the same thing underneath: a named queue with a capacity.
//! [`Multi`] locks several names without deadlock. [`Election`] lets one of many processes lead, and [`Once`]
//! runs a job once per period. [`blocking`] is the same API without async.
//!
//! With the feature `stock`, the module `stock` sells limited inventory to many concurrent buyers without
//! overselling.
//!
//! The events and metrics, with all their fields, are listed in [`docs::observability`].
//!
//! With the feature `testing`, the module `testing` has a clock for tests of your own code and a way to take locks
//! away: see [`docs::testing_your_code`].
//!
//! With the feature `serde`, a [`Token`] and a [`Ticket`] are serialized as text, and what [`Locks::look`]
//! returns in the form that `tidelock ls --json` prints, with times in whole milliseconds.
//!
//! To write a backend, start with [`backend`] and [`line`](mod@line).
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `file` | yes | `file:`, locks between the processes of one machine; Unix only |
//! | `redis` | | `redis:`, also behind Sentinels or as a cluster; `redlock:`, several servers that vote |
//! | `etcd` | | `etcd:` |
//! | `zookeeper` | | `zookeeper:` |
//! | `postgres` | | `postgres:` |
//! | `mysql` | | `mysql:` and `mariadb:` |
//! | `stock` | | the module `stock` |
//! | `metrics` | | counters and histograms through the `metrics` facade |
//! | `macros` | | the attribute `locked`, for functions that run under a lock |
//! | `serde` | | `Token`, `Ticket` and the views of locks can be serialized |
//! | `testing` | | the module `testing`: a clock for tests of your code; conformance cases for authors of backends |
//!
//! `memory:` is always there. Each store brings its driver only with its feature, and all TLS is rustls.
//!
//! # Supported Rust versions
//!
//! The library runs on tokio and needs Rust 1.89 or newer. A newer minimum comes only with a new minor version.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
pub mod backend;
pub mod backends;
mod clock;
pub mod docs;
mod engine;
mod error;
mod events;
mod model;
#[cfg(feature = "serde")]
mod serial;
#[cfg(feature = "stock")]
pub mod stock;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "macros")]
pub use tidelock_macros::locked;

#[cfg(feature = "macros")]
pub use self::api::default::{default_locks, set_default};
pub use self::{
    api::{
        blocking,
        builder::Builder,
        client::Locks,
        election::{
            Election,
            observe::{Leader, Watch},
            term::Term,
        },
        fence,
        guard::Guard,
        multi::{Guards, Multi},
        mutex::Mutex,
        once::{
            Once, Outcome, Running,
            record::Done,
            slot::{Period, Slot},
            turn::Turn,
        },
        options::{DEFAULT_TTL, MAX_TTL},
        rw_lock::RwLock,
        semaphore::Semaphore,
        ticket::Ticket,
    },
    backends::Target,
    engine::{Ended, Endings, Holding, HowEnded, LockState},
    error::{Error, ErrorKind, LossReason, Result},
    model::{
        line,
        name::{MAX_NAME_BYTES, Name},
        owner::{MAX_ADVERTISED_BYTES, MAX_OWNER_BYTES, Owner},
        token::Token,
    },
};

/// What the code of [`locked`](macro@locked) calls; not for others.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __macros {
    pub use crate::api::default::flatten;
}

/// Compiles the examples in the project's documents. The guide is in `docs`, the stores' pages are in their folders.
#[cfg(doctest)]
mod documents {
    #[cfg(feature = "stock")]
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[cfg(feature = "stock")]
    #[doc = include_str!("../README.zh-CN.md")]
    struct ReadmeInChinese;
    #[cfg(feature = "stock")]
    #[doc = include_str!("../docs/flash-sale.md")]
    struct FlashSale;
}
