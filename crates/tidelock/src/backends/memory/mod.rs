//! `memory:` keeps lines in this process.
//!
//! For tests, for single-process programs, and as the reference for every other store: its logic
//! is [`line`](crate::line) itself. It needs no `config` and no `wake`: there is nothing to set,
//! and a push is a channel. `memory:` is a store of its own for every connection; `memory:NAME` is
//! shared by all of this process that name it.

mod backend;
mod stock;
mod store;

pub use self::{backend::MemoryBackend, stock::MemoryStock, store::MemoryStore};
