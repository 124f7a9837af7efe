//! `etcd:` keeps lines as keys of etcd, in the order of their create revisions.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to members and options |
//! | `proto` | the few messages of etcd's protocol that locks need |
//! | `errors` | what may be concluded from an error |
//! | `servers` | one connection to one member at a time: opened, logged in, moved on to the next member |
//! | `fitness` | whether a member is fit for locks |
//! | `leases` | one lease for each client and ttl, and those that belong to one claim |
//! | `codec` | keys and values |
//! | `rules` | who holds, from the keys of a line |
//! | `table` | what a client knows of its own claims, and what it watches for them |
//! | `wake` | the watch stream, and what follows from what it says |
//! | `store` | the verbs |
//! | `backend` | the waist |
//! | `bare` | what locks are measured against |

mod backend;
#[cfg(feature = "testing")]
pub mod bare;
mod codec;
mod config;
mod errors;
mod fitness;
mod leases;
mod proto;
mod rules;
mod servers;
mod store;
mod table;
mod wake;

pub use self::{backend::EtcdBackend, config::EtcdConfig};
