//! The engine: everything that is the same for every store.
//!
//! | file | what it decides |
//! |---|---|
//! | [`acquire`] | how a request becomes a claim, and what its answers mean |
//! | [`local`] | who of this process is next, and for how long it keeps a lock to itself |
//! | [`lease`] | until when a claim may be relied on: pure, with its table |
//! | [`leased`] | one claim and its lease, shared by those who need it |
//! | [`keeper`] | when claims are renewed, and that they are lost |
//! | [`schedule`] | which claim the keeper looks at when |
//! | [`listen`] | what a push means, and what happens when one is missed |
//! | [`release`] | giving back: hand-off, leave, orphans |
//! | [`detach`] | holds that outlive their process |
//! | [`tasks`] | the only place that spawns |
//!
//! Order of locks: shard of the local table, then the cell of a claim, then the keeper's schedule.
//! None of them is held over an await, and no guard is dropped under one.

mod acquire;
mod detach;
mod held;
mod keeper;
mod lease;
mod leased;
mod listen;
mod local;
mod release;
mod request;
mod schedule;
mod tasks;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::held::{Holding, LockState};
pub(crate) use self::{
    held::Held,
    lease::usable,
    request::{Patience, Request},
};
use self::{
    local::{Phase, Table},
    schedule::Schedule,
    tasks::Tasks,
};
use crate::{
    backend::{Backend, ClaimId, ClientId, Leave, LockView, Scope},
    clock::Clock,
    defect::Defects,
    error::{Error, LossReason, Result},
    events,
    name::Name,
};

/// The engine of one client.
#[derive(Debug)]
pub(crate) struct Engine {
    backend: Arc<dyn Backend>,
    client: ClientId,
    clock: Clock,
    defects: Defects,
    table: Table,
    schedule: Arc<Schedule>,
    tasks: Tasks,
    serial: AtomicU64,
    closed: AtomicBool,
    _stop: DropGuard,
}

impl Engine {
    /// Starts the engine of a client on the runtime we are in.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        client: ClientId,
        clock: Clock,
        defects: Defects,
    ) -> Arc<Self> {
        let stop = CancellationToken::new();
        let engine = Arc::new(Self {
            backend,
            client,
            clock,
            defects,
            table: Table::new(),
            schedule: Arc::new(Schedule::default()),
            tasks: Tasks::here(),
            serial: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            _stop: stop.clone().drop_guard(),
        });
        let keeper =
            keeper::keep(Arc::downgrade(&engine), Arc::clone(&engine.schedule), engine.clock.clone());
        engine.tasks.spawn_forever(keeper);
        let listener = listen::listen(Arc::downgrade(&engine), Arc::clone(&engine.backend), stop);
        engine.tasks.spawn_forever(listener);
        engine
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
        self.backend.look(scope).await.map_err(|failure| Error::failure(self.store(), None, &failure))
    }

    /// Puts a claim of anybody out of line; its client is told.
    pub(crate) async fn evict(&self, name: &Name, id: ClaimId, reason: Arc<str>) -> Result<()> {
        let call = self.backend.leave(name, id, Leave::Evicted(reason));
        call.await.map_err(|failure| Error::failure(self.store(), Some(name), &failure))
    }

    /// Takes nothing new, gives back what waits, waits for guards and calls, and gives back by
    /// force what is still held when the time is over. Says how many guards were cut off.
    pub(crate) async fn shutdown(self: &Arc<Self>, grace: Duration) -> usize {
        self.closed.store(true, Ordering::SeqCst);
        let deadline = self.clock.now() + grace;
        self.end_waiting();
        while !self.held_claims().is_empty() && self.clock.now() < deadline {
            tokio::time::sleep(Duration::from_millis(5).min(deadline.since(self.clock.now()))).await;
        }
        let cut_off = self.cut_off();
        let rest = deadline.since(self.clock.now()).max(Duration::from_secs(1));
        if !self.tasks.drain(rest).await {
            events::shutdown_incomplete(self.store());
        }
        cut_off
    }

    /// Whoever waits hears that it is over.
    fn end_waiting(self: &Arc<Self>) {
        for (leased, phase) in self.table.claims() {
            let error = Error::closed(&leased.claim.name);
            match phase {
                // Its answer finds no cohort and is given back.
                Phase::Asking(_) | Phase::Leaving => self.fail_cohort(&leased, &error),
                Phase::InLine => {
                    self.fail_cohort(&leased, &error);
                    self.give_back_later(leased);
                }
                Phase::Held { .. } => self.fail_waiters(&leased, &error),
            }
        }
    }

    fn fail_waiters(&self, leased: &leased::LeasedClaim, error: &Error) {
        let mut shard = self.table.shard(&leased.claim.name);
        if let Some(cohort) = shard.get(&leased.claim.name).and_then(|line| line.cohort_of(leased)) {
            while let Some(waiter) = cohort.pop() {
                let _ = waiter.tell.send(Err(error.clone()));
            }
        }
    }

    fn held_claims(&self) -> Vec<Arc<leased::LeasedClaim>> {
        let claims = self.table.claims().into_iter();
        claims.filter(|(_, phase)| matches!(phase, Phase::Held { .. })).map(|(leased, _)| leased).collect()
    }

    fn cut_off(self: &Arc<Self>) -> usize {
        let held = self.held_claims();
        for leased in &held {
            self.lost(leased, LossReason::Closed);
        }
        held.len()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.schedule.close();
    }
}
