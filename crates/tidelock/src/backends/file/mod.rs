//! `file:` keeps locks in files of one directory: locks between the processes of one machine, without a
//! server.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::file::{FileBackend, FileConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = FileConfig::of_user()?;
//! let backend = FileBackend::connect(&config, ClientId::random())?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | from a URL to a directory that may be used |
// | `home` | the directory of a user: one, whatever the environment says |
// | `earlier` | leading programs of the previous version from another directory to it |
// | `filesystem` | which file systems may carry locks |
// | `boot` | this start of the machine, and which claims of another one still count |
// | `codec` | bytes: lines and doorbells |
// | `bucket` | two copies of the lines of some names; a crash at any byte leaves the copy before |
// | `shard` | one file of buckets, changed under its flock |
// | `session` | the sockets of this client: its doorbell and its proof of life |
// | `store` | the verbs on lines |
// | `plain` | the commonest changes of long lines, made in their bytes |
// | `order` | who is behind whom in a line, and whose death would move a claim on |
// | `claims` | the claims of this client that wait, and whom it watches for them |
// | `follow` | what follows from a change: bells, letting the dead go |
// | `wake` | news: doorbells of this client, and deaths |
// | `notices` | names that are followed: changes of the files that their lines are in |
// | `follow_all` | all names, followed: which lines of a file that changed are different |
// | `inotify` | the kernel's notices of changes of files |
// | `fault` | for tests: a process that dies inside a change |
// | `errors` | what errors of the system mean |
// | `backend` | connecting, and what the store can do |
// | `hostile` | readers of bytes from outside, for fuzzing |
// | `stock/` | plans and segments of stock |
//
// `bucket`, `shard`, `plain`, `session`, `follow`, `boot`, `filesystem`, `home`, `earlier`, `notices`, `inotify` and
// `fault` are files that other stores do not have, because there is no server here: this code does its work.

mod backend;
mod boot;
mod bucket;
mod claims;
mod codec;
mod config;
mod earlier;
mod errors;
mod fault;
mod filesystem;
mod follow;
mod follow_all;
mod home;
#[cfg(feature = "testing")]
mod hostile;
mod inotify;
mod notices;
mod order;
mod plain;
mod session;
mod shard;
#[cfg(feature = "stock")]
mod stock;
mod store;
mod wake;

#[cfg(feature = "stock")]
pub use self::stock::FileStock;
pub use self::{backend::FileBackend, config::FileConfig};

#[cfg(feature = "stock")]
use super::registry::stocked;
use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "file",
    schemes: &["file"],
    feature: Some("file"),
    needs_server: false,
    options: config::OPTIONS,
    takes_paths: true,
    on_clock: None,
    connect: |url, client| Box::pin(async move { FileConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: Some(|url| Box::pin(async move { stocked("file", FileStock::open(&FileConfig::from_url(url)?)) })),
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: None,
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", FileConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &hostile::READERS,
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/file.md")]
struct Page;
