//! The right to run a slot, and what becomes of it.

use std::{fmt, time::Duration};

use super::{
    MARGIN,
    record::{self, Done},
    slot::Slot,
};
use crate::{
    api::{guard::Guard, handle::Handle},
    backend::{Leave, Scope, Share},
    clock::wall_micros,
    engine::Holding,
    error::{Error, Result},
    model::name::Name,
    model::owner,
};

/// How long to pause before it is tried again to record a slot.
const PAUSE: Duration = Duration::from_millis(200);

/// The right to run a slot, from [`Once::start`](crate::Once::start). Dropping it frees the slot.
///
/// ```
/// # async fn write_report() -> bool { true }
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Locks, Outcome, Period, Turn};
///
/// async fn report(turn: Turn) -> tidelock::Result<()> {
///     let written = tokio::select! {
///         why = turn.lost() => return Err(why),
///         written = write_report() => written,
///     };
///     if written { turn.done().await } else { turn.failed().await }
/// }
///
/// let locks = Locks::connect("memory:").await?;
/// let weekly = locks.once("report", Period::weekly());
/// if let Outcome::Ran(turn) = weekly.start().await? {
///     turn.give_back().await?; // not now
/// }
/// if let Outcome::Ran(turn) = weekly.start().await? {
///     report(turn).await?;
/// }
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[must_use = "a turn that is dropped at once frees its slot"]
pub struct Turn {
    guard: Guard,
    handle: Handle,
    record: Name,
    /// What may have been left behind for earlier slots.
    earlier: Vec<Name>,
    slot: Slot,
    /// When it began: milliseconds since 1970, and the seconds by which the clock was off.
    began: u64,
    skew: i64,
    retry_failed: bool,
}

impl Turn {
    pub(super) fn new(
        guard: Guard,
        handle: &Handle,
        record: Name,
        slot: Slot,
        now: u64,
        retry_failed: bool,
    ) -> Self {
        let began = wall_micros() / 1_000;
        let skew = now as i64 - (began / 1_000) as i64;
        Self { guard, handle: handle.clone(), record, earlier: Vec::new(), slot, began, skew, retry_failed }
    }

    /// Some stores forget what was left behind only when somebody looks after it.
    pub(super) fn forgetting(self, earlier: Vec<Name>) -> Self {
        Self { earlier, ..self }
    }

    /// Returns the slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns a view of the lock that is held while the slot is run.
    pub fn holding(&self) -> Holding {
        self.guard.holding()
    }

    /// Resolves with the reason when the lock is lost: the work must stop, as somebody else may run the slot.
    ///
    /// # Cancel safety
    /// Safe to cancel: you can call it again.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        self.guard.lost()
    }

    /// Says that the work is done: nobody runs the slot again.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost before, so that somebody else may have run the slot;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) when the slot could not
    /// be recorded as done, so that somebody may run it again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the slot may or may not count as done.
    pub async fn done(self) -> Result<()> {
        self.end(false).await
    }

    /// Says that the work failed: the slot is free again with [`retry_failed`](crate::Once::retry_failed), and counts
    /// as done without it.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    ///
    /// # Cancel safety
    /// As [`done`](Self::done).
    pub async fn failed(self) -> Result<()> {
        if self.retry_failed { self.give_back().await } else { self.end(true).await }
    }

    /// Frees the slot: somebody may run it again.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// The slot is freed even if the future is dropped.
    pub async fn give_back(self) -> Result<()> {
        self.guard.release().await
    }

    async fn end(self, failed: bool) -> Result<()> {
        let ended = wall_micros() / 1_000;
        let now = (ended / 1_000).saturating_add_signed(self.skew);
        // A run that took longer than its slot is known for a while, for those whose clocks are behind.
        let left = (self.slot.end + MARGIN).saturating_sub(now).max(MARGIN + 1);
        let forgotten = ended + left * 1_000;
        let mut options = self.handle.options.clone();
        options.label =
            owner::join_label(&options.label, &record::text(self.began, ended, forgotten, failed));
        (options.ttl, options.max_hold) = (Duration::from_secs(left), None);
        (options.detached, options.auto_renew, options.record) = (true, false, true);
        let record = Handle { engine: self.handle.engine.clone(), name: Ok(self.record.clone()), options };
        tokio::select! {
            biased;
            recorded = keep(&record) => recorded.map_err(|error| error.not_recorded(self.slot))?,
            why = self.guard.lost() => return Err(why.not_recorded(self.slot)),
        }
        self.forget_earlier(now).await;
        self.guard.release().await
    }

    /// Removes what was left behind for earlier slots, where the store has not done so. Whether that succeeds changes
    /// nothing: nobody asks for those slots any more.
    async fn forget_earlier(&self, now: u64) {
        let engine = &self.handle.engine;
        let Ok(views) = engine.look(&Scope::Names(self.earlier.clone())).await else { return };
        for view in &views {
            let forgotten = Done::of(view).and_then(|done| done.forgotten.elapsed().ok());
            if let (Some(holder), Some(_), true) = (view.holders.first(), forgotten, now > self.slot.start) {
                let _ = engine.backend().leave(&view.name, holder.id, Leave::Done).await;
            }
        }
    }
}

/// Leaves the claim behind. A store that fails is asked again: the caller says for how long.
async fn keep(record: &Handle) -> Result<()> {
    loop {
        match record.try_lock(Share::Exclusive).await {
            Ok(Some(guard)) => return guard.leave_behind().map(drop),
            // Somebody who held the lock after us, or before, has recorded it.
            Ok(None) => return Ok(()),
            Err(error) if error.is_unavailable() => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("guard", &self.guard)
            .field("slot", &format_args!("{}", self.slot))
            .finish()
    }
}
