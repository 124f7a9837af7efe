//! `zookeeper:` keeps lines as ephemeral sequential nodes, in the layout of Curator.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to servers and options |
//! | `wire` | the protocol: requests and answers as bytes |
//! | `connection` | one connection to one server: opened, greeted, logged in |
//! | `sasl` | the login by SASL |
//! | `session` | a session over one connection after another |
//! | `errors` | what may be concluded from an error |
//! | `paths` | names of locks as paths |
//! | `nodes` | names of nodes in a line, as Curator and kazoo write them |
//! | `order` | who holds and who waits, and for which node |
//! | `table` | the claims of this client |
//! | `store` | the verbs |
//! | `place` | a claim's place: taken, found again, made a hold |
//! | `notice` | why claims were put out |
//! | `view` | what people see |
//! | `attendant` | what is done because something happened |
//! | `backend` | the waist |
//! | `bare` | nodes without locks, for tests and measurements |

mod attendant;
mod backend;
#[cfg(feature = "testing")]
pub mod bare;
mod config;
mod connection;
mod errors;
mod nodes;
mod notice;
mod order;
mod paths;
mod place;
mod sasl;
mod session;
mod store;
mod table;
mod view;
mod wire;

pub use self::{backend::ZookeeperBackend, config::ZookeeperConfig};
