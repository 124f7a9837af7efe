//! `postgres:` keeps lines in rows of a PostgreSQL database.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to servers and options |
//! | `schema`, `schema/` | tables, rules and one function for each verb |
//! | `stream` | bytes to and from a server, encrypted or not |
//! | `errors` | what may be concluded from an error of the driver |
//! | `fitness` | whether a server is fit for locks |
//! | `link` | the connection: opened, checked, opened again |
//! | `codec` | arguments, answers and pushes |
//! | `store` | the verbs |
//! | `wake` | what is heard unasked, or by asking where nothing can be heard |
//! | `taken` | advisory locks that a session holds |
//! | `backend` | the waist |
//! | `stock` | plans and segments of stock |

mod backend;
mod codec;
mod config;
mod errors;
mod fitness;
mod link;
mod schema;
mod stock;
mod store;
mod stream;
mod taken;
mod wake;

pub use self::{backend::PostgresBackend, config::PostgresConfig, schema::schema, stock::PostgresStock};
