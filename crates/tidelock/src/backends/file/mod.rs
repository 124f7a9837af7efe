//! `file:` keeps lines in files of one directory: locks between the processes of one machine,
//! without any server.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to a directory that may be used |
//! | `codec` | bytes: lines and doorbells |
//! | `bucket` | two copies of the lines of some names; a crash at any byte leaves the copy before |
//! | `shard` | one file of buckets, changed under its flock |
//! | `session` | the sockets of this client: its doorbell and its proof of life |
//! | `store` | the verbs on lines |
//! | `follow` | what follows from a change: bells, who waits behind whom, letting the dead go |
//! | `wake` | hearing doorbells and deaths |
//! | `fault` | for tests: a process that dies inside a change |
//! | `backend` | the waist |
//!
//! `codec`, `bucket`, `shard`, `session`, `follow` and `fault` are files that other stores do not have: here the server is ours.

mod backend;
mod bucket;
mod codec;
mod config;
mod fault;
mod follow;
mod session;
mod shard;
mod stock;
mod store;
mod wake;

pub use self::{backend::FileBackend, config::FileConfig, stock::FileStock};
