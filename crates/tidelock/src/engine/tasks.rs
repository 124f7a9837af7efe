//! The only place that spawns.

use std::{panic::resume_unwind, sync::mpsc, time::Duration};

use tokio::{
    runtime::{EnterGuard, Handle},
    task::JoinError,
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::runtime;
use crate::backend::{Call, Failure};

/// Why a call is not answered.
const ENDED: &str = "the runtime that the client was connected on has ended";

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

    /// Whether [`enter`](Self::enter) works: not in the last moments of a thread.
    pub(super) fn can_enter(&self) -> bool {
        !matches!(Handle::try_current(), Err(error) if error.is_thread_local_destroyed())
    }

    /// Whether the runtime may stand still while the current task goes on: it needs a thread of somebody else, who may
    /// have stopped to give it one.
    pub(super) fn may_stand_still(&self) -> bool {
        !runtime::runs_by_itself(&self.runtime)
            && Handle::try_current().map_or(true, |here| here.id() != self.runtime.id())
    }

    /// Runs a call to its end. Works from any thread; if the runtime is gone nothing happens, and
    /// the leases of what is left behind run out.
    pub(super) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        self.calls.spawn_on(call, &self.runtime);
    }

    /// Drives a call as [`attended`] does, on the runtime of the engine.
    pub(super) fn attend<T: Send + Unpin + 'static>(&self, call: Call<T>) -> Call<T> {
        attended(&self.runtime, call)
    }

    /// The same for more than a call. Returns nothing if the runtime has ended.
    pub(super) fn attend_to<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Option<T>> + Send + use<T, W> {
        driven(&self.runtime, work)
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

    /// Waits on this thread until no call is under way, at most this long, if the thread may stand still.
    pub(super) fn drain_here(&self, at_most: Duration) {
        if !self.calls.is_empty() && runtime::runs_by_itself(&self.runtime) && runtime::may_block() {
            let calls = self.calls.clone();
            self.wait_here(at_most, async move {
                calls.close();
                calls.wait().await;
            });
        }
    }

    /// Waits on this thread until a call of a blocking client is done, at most this long, unless it is an async task.
    pub(super) fn block_for(&self, at_most: Duration, call: impl Future + Send + 'static) {
        let may_block =
            || runtime::may_block() || tokio::task::try_id().is_some() && !runtime::is_async_task();
        if runtime::is_background(&self.runtime) && may_block() {
            self.wait_here(at_most, async move { drop(call.await) });
        }
    }

    fn wait_here(&self, at_most: Duration, done: impl Future<Output = ()> + Send + 'static) {
        let (tell, hear) = mpsc::channel();
        self.spawn_forever(async move {
            done.await;
            // Nobody listens if it took too long.
            let _ = tell.send(());
        });
        // If the runtime has ended, nobody tells and this ends at once.
        let _ = hear.recv_timeout(at_most);
    }
}

/// Drives a call of somebody who may stop polling for the answer without dropping it. Left half-way, the call would
/// keep what all calls of the client need, such as the right to open the connection. If the caller goes away, the
/// call ends.
pub(crate) fn attended<T: Send + Unpin + 'static>(runtime: &Handle, call: Call<T>) -> Call<T> {
    match call.poll_once(|| runtime.enter()) {
        Ok(answer) => Call::now(answer),
        Err(call) => {
            let answer = driven(runtime, call);
            Call::later(async { answer.await.unwrap_or_else(|| Err(Failure::unreachable(ENDED))) })
        }
    }
}

/// Runs work in a task, which ends with the future that is returned.
#[allow(clippy::disallowed_methods, reason = "the one place where the engine spawns")]
fn driven<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    runtime: &Handle,
    work: W,
) -> impl Future<Output = Option<T>> + Send + use<T, W> {
    let task = AbortOnDropHandle::new(runtime.spawn(work));
    async {
        match task.await.map_err(JoinError::try_into_panic) {
            Ok(done) => Some(done),
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_)) => None,
        }
    }
}
