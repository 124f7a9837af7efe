//! The tasks of connections, and of what is done for a client between two calls of `wait`.

use std::panic::resume_unwind;

use tokio::task::{JoinError, JoinSet};

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

/// Jobs that go on whether or not anybody asks what became of them. A job that only `wait` polled would stand still
/// between two calls of it, and with it everyone who waits for what the job has begun, such as opening the connection.
/// Dropped, all of them end.
#[derive(Debug)]
pub(crate) struct Jobs<T>(JoinSet<T>);

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        Self(JoinSet::new())
    }
}

impl<T: Send + 'static> Jobs<T> {
    pub(crate) fn begin(&mut self, job: impl Future<Output = T> + Send + 'static) {
        self.0.spawn(job);
    }

    /// What came of a job, or nothing if none is under way. Nothing is lost if this is dropped.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            match self.0.join_next().await?.map_err(JoinError::try_into_panic) {
                Ok(done) => return Some(done),
                Err(Ok(panic)) => resume_unwind(panic),
                // The runtime ends.
                Err(Err(_)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_job_goes_on_while_nobody_asks_for_it_and_ends_when_it_is_dropped() {
        let mut jobs = Jobs::default();
        let (tell, hear) = oneshot::channel();
        jobs.begin(async move { tell.send(7).is_ok() });
        assert_eq!(hear.await, Ok(7));
        assert_eq!(jobs.next().await, Some(true));
        assert_eq!(jobs.next().await, None);
        let (kept, ended) = oneshot::channel::<()>();
        jobs.begin(async move {
            std::future::pending::<()>().await;
            kept.send(()).is_ok()
        });
        drop(jobs);
        assert!(ended.await.is_err(), "its future is dropped");
    }
}
