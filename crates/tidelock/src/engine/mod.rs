//! The engine: everything that is the same for every store.
//!
//! | file | what it decides |
//! |---|---|
//! | [`request`] | what a caller asks the engine for |
//! | [`acquire`] | how a request becomes a claim, and its first question |
//! | [`waiting`] | how a caller waits, times out and goes away |
//! | [`answer`] | what the store's answer to that question means |
//! | [`retry`] | asking again: how often, for how long, with which id |
//! | [`backoff`] | how long to pause before that: pure |
//! | [`grant`] | the one way to become a holder |
//! | [`held`] | what a holder has in its hands |
//! | [`release`] | giving back: to the next task of this process, or to the store |
//! | [`loss`] | the ways to stop being a holder without giving back |
//! | [`local`] | who of this process is next, and for how long it keeps a lock to itself |
//! | [`lease`] | until when a claim may be relied on: pure, with its table |
//! | [`leased`] | one claim and its lease, shared by those who need it |
//! | [`keeper`] | when claims are renewed, and what the answers mean |
//! | [`schedule`] | which claim the keeper looks at when |
//! | [`listen`] | what a push means, and what happens when one is missed |
//! | [`detach`] | holds that outlive their process |
//! | [`shutdown`] | how a client ends |
//! | [`endings`] | who is told what became of claims |
//! | [`ends`] | how a program ends, and how a runtime does |
//! | [`runtime`] | what a runtime must have, and a runtime of our own |
//! | [`tasks`] | the only place that spawns |
//! | [`flaws`] | mistakes made on purpose, for tests of the tests |
//!
//! Order of locks: shard of the local table, then the cell of a claim, then the keeper's schedule.
//! None of them is held over an await, and no guard is dropped under one.

mod acquire;
mod answer;
pub(crate) mod backoff;
mod cohorts;
mod detach;
mod endings;
mod ends;
mod flaws;
mod grant;
mod held;
mod keeper;
mod lease;
mod leased;
mod listen;
mod local;
mod loss;
mod rare;
mod release;
mod request;
mod retry;
pub(crate) mod runtime;
mod schedule;
mod shutdown;
mod tasks;
mod waiting;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio_util::sync::{CancellationToken, DropGuard};

#[cfg(feature = "stock")]
pub(crate) use self::tasks::attended;
pub use self::{
    endings::{Ended, Endings, HowEnded},
    held::{Holding, LockState},
};
pub(crate) use self::{
    ends::Client,
    flaws::Flaws,
    held::Held,
    lease::usable,
    request::{Patience, Request},
};
use self::{ends::RuntimeEnd, leased::LeasedClaim, local::Table, schedule::Schedule, tasks::Tasks};
use crate::{
    backend::{Backend, ClaimId, ClientId, Follow, FollowAll, Leave, Left, LockView, Scope, TokenGrade},
    clock::{Alarm, Clock},
    error::{Error, Result},
    events::{Events, Groups},
    model::name::Name,
};

/// The engine of one client.
#[derive(Debug)]
pub(crate) struct Engine {
    backend: Arc<dyn Backend>,
    client: ClientId,
    clock: Clock,
    flaws: Flaws,
    /// What is told of this client.
    events: Events,
    endings: endings::Told,
    table: Table,
    schedule: Arc<Schedule<LeasedClaim>>,
    tasks: Tasks,
    serial: AtomicU64,
    closed: AtomicBool,
    /// Ends pauses between questions when the client is shut down.
    closing: CancellationToken,
    /// The runtime of the client has ended.
    ended: CancellationToken,
    /// No handle is left; guards may be.
    unused: AtomicBool,
    _stop: DropGuard,
}

impl Engine {
    /// Starts the engine of a client on the runtime we are in.
    pub(crate) fn start(backend: Arc<dyn Backend>, clock: Clock, flaws: Flaws, groups: Groups) -> Arc<Self> {
        let stop = CancellationToken::new();
        let events = Events::new(backend.abilities().store, groups, clock.clone());
        let engine = Arc::new(Self {
            events,
            endings: endings::Told::default(),
            client: backend.client_id(),
            backend,
            clock,
            flaws,
            table: Table::new(),
            schedule: Arc::new(Schedule::new()),
            tasks: Tasks::here(),
            serial: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            unused: AtomicBool::new(false),
            _stop: stop.clone().drop_guard(),
        });
        let keeper = keeper::keep(Arc::downgrade(&engine), Arc::clone(&engine.schedule), engine.alarm());
        let end = RuntimeEnd(Arc::downgrade(&engine));
        engine.tasks.spawn_forever(async move {
            let _end = end;
            keeper.await;
        });
        let listener = listen::listen(Arc::downgrade(&engine), Arc::clone(&engine.backend), stop);
        engine.tasks.spawn_forever(listener);
        engine
    }

    /// An alarm for a task of this engine.
    fn alarm(&self) -> Alarm {
        match self.backend.abilities().token {
            // A store in this process needs no I/O, so its runtime may have none.
            TokenGrade::Process => Alarm::in_steps(&self.clock),
            _ => Alarm::new(&self.clock),
        }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(crate) fn client(&self) -> ClientId {
        self.client
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn store(&self) -> &'static str {
        self.backend.abilities().store
    }

    fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// What is in line.
    pub(crate) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>> {
        let looking = async {
            let seen = self.tasks.attend(self.backend.look(scope)).await;
            seen.map_err(|failure| Error::failure(self.store(), None, &failure))
        };
        self.while_running(None, looking).await
    }

    /// Does work of a caller that may stop polling for it without dropping it, and that others wait for.
    pub(crate) async fn attend_to<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.tasks.attend_to(work).await.unwrap_or_else(|| Err(Error::runtime_ended(None)))
    }

    /// Hears when the holders of a name may have changed, if the store can tell.
    pub(crate) fn follow(&self, name: &Name) -> Option<Follow> {
        let _here = self.tasks.enter();
        self.backend.follow(name)
    }

    /// Hears which lines may have changed, if the store can tell.
    pub(crate) fn follow_all(&self) -> Option<FollowAll> {
        let _here = self.tasks.enter();
        self.backend.follow_all()
    }

    /// Puts a claim of anybody out of line; its client is told. Says whether it was in line.
    pub(crate) async fn evict(&self, name: &Name, id: ClaimId, reason: Arc<str>) -> Result<bool> {
        let evicting = async {
            let left = self.tasks.attend(self.backend.leave(name, id, Leave::Evicted(reason))).await;
            left.map_err(|failure| Error::failure(self.store(), Some(name), &failure))
        };
        Ok(self.while_running(Some(name), evicting).await? == Left::Removed)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.schedule.close();
    }
}
