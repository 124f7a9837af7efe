//! `mysql:` and `mariadb:` keep lines as rows of a database, changed by stored procedures.
//!
//! | file | what |
//! |---|---|
//! | `config` | from a URL to a server and options |
//! | `schema`, `schema/` | tables and procedures, and how they come into the database |
//! | `errors` | what may be concluded from an error |
//! | `fitness` | whether a server is fit for locks |
//! | `link` | connections to the server: opened, checked, lent to one call at a time |
//! | `store` | the verbs |
//! | `wake` | the connection that listens |
//! | `backend` | the waist |
//! | `stock` | plans and segments of stock |

mod backend;
mod config;
mod errors;
mod fitness;
mod link;
mod schema;
mod stock;
mod store;
mod wake;

pub use self::{backend::MysqlBackend, config::MysqlConfig, schema::schema, stock::MysqlStock};
