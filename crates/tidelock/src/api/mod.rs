//! The public API: the client, the kinds of locks, and their guards.

pub mod blocking;
pub(crate) mod builder;
pub(crate) mod client;
#[cfg(feature = "macros")]
pub(crate) mod default;
pub(crate) mod election;
pub(crate) mod facade;
pub mod fence;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod once;
pub(crate) mod options;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
pub(crate) mod shown;
pub(crate) mod ticket;
mod watching;
