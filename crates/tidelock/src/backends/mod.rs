//! The stores. Each has the same files: `mod`, `config`, `backend`, `store`, `wake`, as far as it needs them.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(all(unix, feature = "file"))]
pub mod file;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;
