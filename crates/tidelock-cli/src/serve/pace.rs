//! A short pause that all streams share.
//!
//! Most locks are granted before such a pause has passed. A timer of each stream's own would be set for nothing, and
//! one that is due before all others wakes the runtime with two system calls. One timer for all is set once for many.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::shutdown::Running;

/// From one beat to the next.
const BEAT: Duration = Duration::from_millis(5);

/// Beats while somebody waits for them.
#[derive(Debug)]
pub(super) struct Pace {
    tasks: Running,
    state: Mutex<State>,
    beat: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Whether there is a task that beats.
    beats: bool,
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a Pace);

impl Pace {
    pub(super) fn new(tasks: Running) -> Arc<Self> {
        Arc::new(Self { tasks, state: Mutex::default(), beat: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one beat at least, and for two at most.
    pub(super) async fn pause(self: &Arc<Self>) {
        let _waiting = self.join();
        // The first may come at once.
        for _ in 0..2 {
            self.beat.notified().await;
        }
    }

    fn join(self: &Arc<Self>) -> Waiting<'_> {
        let mut state = self.state();
        state.waiting += 1;
        if !std::mem::replace(&mut state.beats, true) {
            self.tasks.spawn(Arc::clone(self).run());
        }
        Waiting(self)
    }

    async fn run(self: Arc<Self>) {
        loop {
            sleep(BEAT).await;
            self.beat.notify_waiters();
            let mut state = self.state();
            if state.waiting == 0 {
                state.beats = false;
                return;
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_beats_only_while_somebody_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (tasks, ended) = Running::new();
            let pace = Pace::new(tasks);
            tokio::join!(pace.pause(), pace.pause());
            assert_eq!(pace.state().waiting, 0);
            ended.within(Duration::from_secs(60)).await;
            assert!(!pace.state().beats, "nobody waits");
            // And again for those who come later.
            pace.pause().await;
        });
    }
}
