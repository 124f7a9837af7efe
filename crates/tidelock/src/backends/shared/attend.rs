//! The tasks of connections.

/// Runs what belongs to a connection for as long as that lasts: reading what the server sends, and answering
/// it. Nobody waits for it at shutdown, because it holds no claim of its own.
#[allow(
    clippy::disallowed_methods,
    reason = "the one place where stores spawn, as a driver does for its connection"
)]
pub(crate) fn attend<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::AbortHandle {
    tokio::runtime::Handle::current().spawn(task).abort_handle()
}
