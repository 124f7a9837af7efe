//! `etcd:` keeps locks as keys of etcd, in the order of their create revisions.
//!
//! [`Locks::connect`](crate::Locks::connect) is the usual way to use it. To wrap it in a backend of your own, connect
//! it yourself:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tidelock::{
//!     Locks,
//!     backend::ClientId,
//!     backends::etcd::{EtcdBackend, EtcdConfig},
//! };
//!
//! # async fn connect() -> tidelock::Result<()> {
//! let config = EtcdConfig::from_url("etcd://127.0.0.1:2379")?;
//! let backend = EtcdBackend::connect(config, ClientId::random()).await?;
//! let locks = Locks::with_backend(Arc::new(backend));
//! # drop(locks);
//! # Ok(()) }
//! ```

// | file | what |
// |---|---|
// | `config` | how to connect, for users |
// | `settings` | from a URL to members and options |
// | `proto` | the few messages of etcd's protocol that locks need |
// | `errors` | what may be concluded from an error |
// | `link` | one connection to one member at a time |
// | `fitness` | whether a member is fit for locks |
// | `leases` | one lease for each client and ttl, and those that belong to one claim |
// | `epochs` | what is added to revisions, so that tokens grow even if a restored snapshot resets them |
// | `codec` | keys and values |
// | `order` | who holds, from the keys of a line |
// | `claims` | what a client knows of its own claims, and what it watches for them |
// | `follow` | names that are followed, on the same stream |
// | `follow_all` | all names, followed, on a stream of their own |
// | `wake` | the watch stream, and what follows from what it says |
// | `store` | the verbs |
// | `enter`, `renew`, `leave` | the verbs that need more than a question |
// | `strays` | claims that copies of questions put back into line, and taking them out |
// | `hearing` | whether everything was heard that happened to many holds, without reading their keys |
// | `unmoved` | claims that wait as they did, without reading their lines |
// | `settle` | how a claim in line stands, and riding on a hold of the same owner |
// | `view` | lines as they are read, for the verbs and for people |
// | `backend` | connecting, and what the store can do |
// | `hostile` | readers of bytes from outside, for fuzzing |
// | `bare` | what locks are measured against |

mod backend;
#[cfg(feature = "testing")]
pub mod bare;
mod claims;
mod codec;
mod config;
mod enter;
mod epochs;
mod errors;
mod fitness;
mod follow;
mod follow_all;
mod hearing;
#[cfg(feature = "testing")]
mod hostile;
mod leases;
mod leave;
mod link;
mod order;
mod proto;
mod renew;
mod settings;
mod settle;
mod store;
mod strays;
mod unmoved;
mod view;
mod wake;

pub use self::{backend::EtcdBackend, config::EtcdConfig};

use super::{registry::Store, target::Config};

/// Its entry in the registry.
pub(super) const STORE: Store = Store {
    name: "etcd",
    schemes: &["etcd", "etcds"],
    feature: Some("etcd"),
    needs_server: true,
    options: settings::EtcdSettings::OPTIONS,
    takes_paths: false,
    on_clock: None,
    connect: |url, client| Box::pin(async move { EtcdConfig::from_url(url)?.connect(client).await }),
    #[cfg(feature = "stock")]
    stock: None,
    #[cfg(feature = "stock")]
    stock_schema: None,
    schema: None,
    #[cfg(feature = "testing")]
    read_url: |url| Ok(format!("{:?}", EtcdConfig::from_url(url)?)),
    #[cfg(feature = "testing")]
    readers: &hostile::READERS,
};

/// Its page, so that the example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backends/etcd.md")]
struct Page;
