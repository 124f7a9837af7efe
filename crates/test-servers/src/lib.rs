//! Real servers for the tests, benchmarks and fault runs: Redis (alone, with replicas, with
//! Sentinel, as a cluster), etcd, ZooKeeper, PostgreSQL and MariaDB.
//!
//! Every server is a child process on a free loopback port with its data in a temporary folder.
//! It can be killed, paused and started again on the same port with the same data, and a
//! [`Proxy`] in front of it breaks the network. Dropping a [`Server`] kills it and removes its
//! folder; when the test process itself is killed, the kernel kills its servers, and the next
//! run removes their folders.
//!
//! ```no_run
//! use test_servers::{Proxy, Redis};
//!
//! # fn main() -> Result<(), test_servers::Error> {
//! let redis = Redis::new().append_only().start()?;
//! let proxy = Proxy::start(redis.addr())?;
//! proxy.drop_replies_once(); // the next command is applied, but its answer is lost
//! redis.kill()?;
//! redis.restart()?;
//! # Ok(())
//! # }
//! ```
//!
//! The programs come from Debian packages; [`packages`] knows which ones, and installs them.
//! A start never skips: without its program it fails, and the error names the package.

mod administrator;
mod certificates;
mod cluster;
mod deadline;
mod error;
mod etcd;
mod folder;
mod mariadb;
pub mod packages;
mod peer;
mod pgbouncer;
pub mod ports;
mod postgres;
mod preload;
mod process;
mod proxy;
mod redis;
mod redis_cluster;
mod replication;
mod resp;
mod sentinel;
mod server;
mod slot_move;
mod zookeeper;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use deadline::wait_for;
pub use error::Error;
pub use etcd::{Divisible, Etcd};
pub use mariadb::{MariaDb, MariaDbPair};
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use preload::Disk;
pub use process::running_in;
pub use proxy::Proxy;
pub use redis::Redis;
pub use replication::Replicated;
pub use resp::RedisConnection;
pub use sentinel::Sentinel;
pub use server::Server;
pub use slot_move::SlotMove;
pub use zookeeper::Zookeeper;
