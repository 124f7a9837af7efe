//! `redlock:` keeps lines in several Redis servers that know nothing of each other: a claim holds while a majority
//! of all of them says so.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to servers and options |
//! | `quorum` | what follows from votes: pure |
//! | `round` | asking all servers at once, and waiting for as few of them as will do |
//! | `seats` | what is known of this client's claims |
//! | `split` | who gives way when nobody has a majority |
//! | `store` | the servers, and leaving, looking and listening |
//! | `enter` | entering, until there is a majority |
//! | `renew` | renewing |
//! | `view` | what people see |
//! | `backend` | the waist |
//!
//! What a single server does is in `redis`.

mod backend;
mod config;
mod enter;
mod quorum;
mod renew;
mod round;
mod seats;
mod split;
mod store;
mod view;

pub use self::{backend::RedlockBackend, config::RedlockConfig};
