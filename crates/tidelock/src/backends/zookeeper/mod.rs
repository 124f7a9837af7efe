//! `zookeeper:` keeps locks as ephemeral sequential nodes, in the layout of Curator.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::zookeeper::{ZookeeperBackend, ZookeeperConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = ZookeeperConfig::from_url("zookeeper://127.0.0.1:2181")?;
//! let backend = ZookeeperBackend::connect(config, ClientId::random()).await?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | how to connect, for users |
// | `settings` | from a URL to servers and options |
// | `backend` | connecting, and what the store can do |
// | `hostile` | readers of bytes from outside, for fuzzing |
// | `store` | the verbs, and what they have in common |
// | `enter` | a claim takes a place at the end of its line |
// | `settle` | how a claim stands there, and what follows: it holds, joins a hold, or watches those ahead |
// | `renew` | a batch of claims is renewed |
// | `leave` | a claim leaves |
// | `detached` | holds that outlive their clients |
// | `view` | what people see |
// | `claims` | the claims of this client |
// | `own_nodes` | the nodes of one of them |
// | `turns` | one look at a claim at a time |
// | `order` | who holds and who waits, and for which node |
// | `epochs` | what is added to transactions, so that tokens grow though a server lost its data |
// | `follow` | names that are followed |
// | `follow_all` | all names, followed |
// | `wake/` | news from the servers, and what follows from them |
// | `link/` | the connections to the servers |
// | `codec/` | names of locks and claims as names of nodes |
// | `fitness` | whether the servers are fit for locks |
// | `errors` | what may be concluded from an error |
// | `bare` | nodes without locks, for tests and measurements |

mod backend;
#[cfg(feature = "testing")]
pub mod bare;
mod claims;
mod codec;
mod config;
mod detached;
mod enter;
mod epochs;
mod errors;
mod fitness;
mod follow;
mod follow_all;
#[cfg(feature = "testing")]
mod hostile;
mod leave;
mod link;
mod order;
mod own_nodes;
mod renew;
mod settings;
mod settle;
mod store;
mod turns;
mod view;
mod wake;

pub use self::{backend::ZookeeperBackend, codec::nodes::Dialect, config::ZookeeperConfig};

use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "zookeeper",
    schemes: &["zookeeper", "zookeepers", "zk", "zks"],
    feature: Some("zookeeper"),
    needs_server: true,
    options: settings::ZookeeperSettings::OPTIONS,
    takes_paths: false,
    on_clock: None,
    connect: |url, client| Box::pin(async move { ZookeeperConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: None,
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: None,
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", ZookeeperConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &hostile::READERS,
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/zookeeper.md")]
struct Page;
