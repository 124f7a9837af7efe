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
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod unanswered;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

/// Runs what belongs to a connection for as long as that lasts: reading what the server sends, and answering
/// it. Nobody waits for it at shutdown, because it holds no claim of its own.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
#[allow(
    clippy::disallowed_methods,
    reason = "the one place where stores spawn, as a driver does for its connection"
)]
pub(crate) fn attend<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::AbortHandle {
    tokio::runtime::Handle::current().spawn(task).abort_handle()
}
