//! Where a program ends: the last value of a client is dropped, or the client's runtime ends.
//!
//! | what ends | what happens to what is held and asked for |
//! |---|---|
//! | a guard | its release is sent from `Drop`, as far as the store's driver can; a task does the rest |
//! | the last handle and guard of a client | the thread waits briefly for releases under way, if it may stand still |
//! | the runtime of the client | those who wait get an error; locks that are held are lost when their leases end |
//! | the process | nothing: leases end |

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use super::{Engine, lease::State, runtime};
use crate::{
    clock::{Alarm, Moment},
    error::{Error, Result},
    model::name::Name,
};

/// How long the drop of the last value of a client waits for releases under way, at most.
const BRIEFLY: Duration = Duration::from_secs(2);

/// The engine, as the handles of the public API share it. The last one that is dropped waits for releases under way.
#[derive(Clone)]
pub(crate) struct Client(Arc<Shared>);

struct Shared(Arc<Engine>);

impl Client {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self(Arc::new(Shared(engine)))
    }
}

impl Deref for Client {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0.0
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.0.unused.store(true, Ordering::SeqCst);
        self.0.wait_for_releases();
    }
}

/// Part of a task of the engine that runs for as long as the engine does: if the task is dropped earlier, its runtime
/// has ended.
#[derive(Debug)]
pub(super) struct RuntimeEnd(pub(super) Weak<Engine>);

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade() {
            engine.runtime_ended();
        }
    }
}

impl Engine {
    /// The release of a dropped guard is under way: waits briefly for it, if the client is a blocking one or if this
    /// was its last value. Does nothing on a thread that runs async tasks.
    pub(super) fn wait_for_release(&self, leaving: impl Future + Send + 'static) {
        self.tasks.block_for(BRIEFLY, leaving);
        self.wait_for_releases();
    }

    /// If nobody uses the client any more, waits briefly until its releases have reached the store: the program may be
    /// about to end. Does nothing on a thread that runs async tasks.
    fn wait_for_releases(&self) {
        if self.unused.load(Ordering::SeqCst) && !self.table.holds_any() {
            self.tasks.drain_here(BRIEFLY);
        }
    }

    /// Whether the runtime of this client has ended.
    pub(super) fn has_ended(&self) -> bool {
        // The flag first: it is looked at often, and the token has a lock.
        self.is_closed() && self.ended.is_cancelled()
    }

    /// Does what takes the client's runtime, for as long as there is one.
    pub(super) async fn while_running<T>(
        &self,
        name: Option<&Name>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(Error::runtime_ended(name)),
            done = work => done,
        }
    }

    /// Why nothing new is acquired.
    pub(super) fn why_closed(&self, name: &Name) -> Error {
        if self.has_ended() { Error::runtime_ended(Some(name)) } else { Error::closed(name) }
    }

    fn runtime_ended(self: &Arc<Self>) {
        self.ended.cancel();
        self.closed.store(true, Ordering::SeqCst);
        self.end_waiting();
        self.closing.cancel();
        if self.table.holds_any() {
            let watch = watch_leases(Arc::downgrade(self), Alarm::new(&self.clock));
            // Where there is none, guards read the clock themselves.
            #[allow(clippy::disallowed_methods, reason = "the engine's own runtime has ended")]
            drop(runtime::background().map(|ours| ours.spawn(watch)));
        }
    }

    /// Tells the holders of leases that have expired. Says when the next one does.
    fn lose_expired(self: &Arc<Self>) -> Option<Moment> {
        let now = self.clock.now();
        let mut next = None;
        for leased in self.held_claims() {
            match leased.state(now) {
                State::Lost(reason) => self.lost(&leased, reason),
                State::Held | State::Uncertain => {
                    let deadline = leased.deadline();
                    next = Some(next.map_or(deadline, |next: Moment| next.min(deadline)));
                }
                State::Ended => {}
            }
        }
        next
    }
}

/// Watches the leases of a client whose runtime has ended: nobody renews them.
async fn watch_leases(engine: Weak<Engine>, mut alarm: Alarm) {
    while let Some(next) = engine.upgrade().and_then(|engine| engine.lose_expired()) {
        alarm.sleep_towards(next).await;
    }
}
