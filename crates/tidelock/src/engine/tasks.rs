//! The only place that spawns.

use std::time::Duration;

use tokio::runtime::{EnterGuard, Handle};
use tokio_util::task::TaskTracker;

/// The tasks of one engine: calls under way that must come to their end.
#[derive(Debug)]
pub(super) struct Tasks {
    runtime: Handle,
    calls: TaskTracker,
}

impl Tasks {
    /// Tasks of the runtime we are in.
    pub(super) fn here() -> Self {
        Self { runtime: Handle::current(), calls: TaskTracker::new() }
    }

    /// For a poll that happens wherever the caller is: within our runtime, whose timers and sockets it needs.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Runs a call to its end. Works from any thread; if the runtime is gone nothing happens, and
    /// the leases of what is left behind run out.
    pub(super) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        self.calls.spawn_on(call, &self.runtime);
    }

    /// Runs for as long as the engine lives; nobody waits for it.
    #[allow(clippy::disallowed_methods, reason = "the one place where the engine spawns")]
    pub(super) fn spawn_forever(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Waits until no call is under way, at most this long. Says whether none was left.
    pub(super) async fn drain(&self, at_most: Duration) -> bool {
        self.calls.close();
        let drained = tokio::time::timeout(at_most, self.calls.wait()).await.is_ok();
        self.calls.reopen();
        drained
    }
}
