//! `redis:` keeps lines in a Redis server, behind Sentinels, or in a cluster.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to servers and options |
//! | `codec` | keys, arguments, replies and pushes |
//! | `scripts`, `scripts/` | one atomic script for each verb |
//! | `errors` | what may be concluded from an error of the driver |
//! | `link` | one connection to one server: opened, checked, subscribed, opened again |
//! | `pool` | connections to one server of which each serves one transaction at a time |
//! | `fitness` | whether a server is fit for locks |
//! | `clock_watch` | whether a server's clock jumps |
//! | `servers` | which server a lock's commands go to |
//! | `sentinel` | the master that Sentinels name |
//! | `cluster` | the members that slots are spread over |
//! | `store` | the verbs |
//! | `stock` | segments of stock: the steps |
//! | `transactions` | the verbs where scripts are forbidden |
//! | `voter` | one server of several that vote: what `redlock` asks |
//! | `backend` | the waist |

mod backend;
mod clock_watch;
mod cluster;
mod codec;
mod config;
mod errors;
mod fitness;
mod link;
mod pool;
mod scripts;
mod sentinel;
mod servers;
mod stock;
mod store;
mod transactions;
mod voter;

pub use self::{backend::RedisBackend, config::RedisConfig, stock::RedisStock};
pub(super) use self::{
    store::MIN_TTL,
    voter::{Ear, Voter},
};
