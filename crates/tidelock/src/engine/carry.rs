//! Work that must come to its end: carried by whoever waits for it, and by a task if that one goes
//! away, or if others begin to depend on it.
//!
//! Most calls are waited for by the one who made them, alone: then a task of its own would only be
//! a detour. The work lies in its claim, so that anybody can take it over. Nobody who has the lock
//! of a shard may touch it, because the work itself takes that lock.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{Engine, leased::LeasedClaim};

/// The place for the work of a claim.
#[derive(Default)]
pub(super) struct Work(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Work {
    fn lock(&self) -> MutexGuard<'_, Option<Pin<Box<dyn Future<Output = ()> + Send>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with the work, if it is still here.
    fn poll(&self, context: &mut Context<'_>) {
        let mut work = self.lock();
        if work.as_mut().is_some_and(|work| work.as_mut().poll(context).is_ready()) {
            *work = None;
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

impl Engine {
    /// Leaves work to whoever waits for it with [`carry`](Self::carry).
    pub(super) fn put_work(&self, leased: &LeasedClaim, work: impl Future<Output = ()> + Send + 'static) {
        let before = leased.work.lock().replace(Box::pin(work));
        if let Some(before) = before {
            self.tasks.spawn(before);
        }
    }

    /// Others depend on the work now, or nobody waits for it any more: a task goes on with it.
    pub(super) fn take_over_work(&self, leased: &LeasedClaim) {
        let work = leased.work.lock().take();
        if let Some(work) = work {
            self.tasks.spawn(work);
        }
    }

    /// Waits for what the work will tell, and goes on with the work meanwhile. Dropped at any moment,
    /// it leaves the rest of the work to a task. Nothing comes only when the runtime is torn down.
    pub(super) async fn carry<T: Send>(
        &self,
        leased: &Arc<LeasedClaim>,
        hear: &mut oneshot::Receiver<T>,
    ) -> Option<T> {
        let carrier = Carrier { engine: self, leased };
        let told = std::future::poll_fn(|context| {
            leased.work.poll(context);
            // Told already: no need to arrange for being woken.
            match hear.try_recv() {
                Err(TryRecvError::Empty) => pin!(&mut *hear).poll(context).map(Result::ok),
                told => Poll::Ready(told.ok()),
            }
        });
        let told = told.await;
        drop(carrier);
        told
    }
}

/// Whoever carries work.
struct Carrier<'a> {
    engine: &'a Engine,
    leased: &'a LeasedClaim,
}

impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        self.engine.take_over_work(self.leased);
    }
}
