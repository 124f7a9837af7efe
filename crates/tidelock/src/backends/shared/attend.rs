//! The tasks of connections.

/// Runs what belongs to a connection for as long as that lasts: reading what the server sends, and answering
/// it. Nobody waits for it at shutdown, because it holds no claim of its own.
pub(crate) fn attend<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::AbortHandle {
    attend_on(&tokio::runtime::Handle::current(), task)
}

/// The same, from where there may be no runtime.
#[allow(
    clippy::disallowed_methods,
    reason = "the one place where stores spawn, as a driver does for its connection"
)]
pub(crate) fn attend_on<T: Send + 'static>(
    runtime: &tokio::runtime::Handle,
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::AbortHandle {
    runtime.spawn(task).abort_handle()
}
