//! Once per period: of all processes that start a job for a slot, one runs it.
//!
//! Two names are used. The job's own name is a mutex that is held while the job runs, so that a job that takes longer
//! than its period does not run twice at once. A second name, with the slot in it, is a claim that is left behind when
//! the slot is done. It is looked for under the mutex, and placed before the mutex is released.
//!
//! | file | what is in it |
//! |---|---|
//! | [`slot`] | which stretch of time a run belongs to: pure |
//! | [`record`] | what is left behind, as text |
//! | [`turn`] | the right to run, and what becomes of it |
//! | [`blocking`] | the same without async |

pub(crate) mod blocking;
pub(crate) mod record;
pub(crate) mod slot;
pub(crate) mod turn;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use self::{
    record::Done,
    slot::{Period, Slot, read_start, to_text},
    turn::Turn,
};
use crate::{
    api::{guard::outcome, handle::Handle},
    backend::{LockView, Scope, Share},
    clock::wall_micros,
    engine::Holding,
    error::{Error, Result},
    model::name::Name,
};

/// How far clocks may differ: a slot may be run this long before its beginning and after its end, and what is left
/// behind stays for this long after its end.
pub(super) const MARGIN: u64 = 60;

/// How often it is tried again to find out who runs a job that cannot be started, and the pause before that.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(25);

/// A job that runs at most once in each slot of a period, on one of many machines.
///
/// Each machine starts the job at about the same time, from cron or a timer. One of them runs it. The others learn
/// that it runs, or that it is done and by whom.
///
/// A slot counts as done when its run has ended, for as long as the slot lasts and a minute longer. A runner that dies
/// frees its slot after its [`ttl`](Self::ttl), or earlier if the store notices the death. A run that fails counts as
/// done unless [`retry_failed`](Self::retry_failed) is set.
///
/// Slots follow from the time of day, so clocks may differ by less than a minute as long as all machines start the job
/// by their own clocks. If something else starts it, give the slot with [`slot`](Self::slot).
///
/// ```
/// # async fn write_report() {}
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::{Locks, Outcome, Period};
///
/// let locks = Locks::connect("memory:").await?;
/// let report = locks.once("report", Period::every(std::time::Duration::from_secs(86_400)));
/// assert!(matches!(report.run(|_held| write_report()).await?, Outcome::Ran(())));
/// assert!(matches!(report.run(|_held| write_report()).await?, Outcome::Done(_)));
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Once {
    handle: Handle,
    period: Period,
    start: Option<Result<u64>>,
    retry_failed: bool,
    /// By how many seconds the clock of this machine is off, for tests.
    skew: i64,
}

/// What came of starting a job for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// This process ran it.
    Ran(T),
    /// It is done already.
    Done(Done),
    /// Somebody runs it now, for this or an earlier slot.
    Running(Running),
}

/// A run that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// The label of the process that runs it.
    pub by: Arc<str>,
    /// Since when, on this machine's clock. For people: it is not exact on every store.
    pub since: SystemTime,
}

impl Once {
    pub(crate) fn new(mut handle: Handle, period: Period) -> Self {
        let options = &mut handle.options;
        (options.owner, options.detached, options.auto_renew) = (None, false, true);
        Self { handle, period, start: None, retry_failed: false, skew: 0 }
    }

    /// Sets the slot by the time at which it begins, as a scheduler knows it. Default: the slot that it is now.
    ///
    /// The text is such as `2026-11-16T10:15`, in UTC or with an offset such as `+01:00`.
    #[must_use]
    pub fn slot(mut self, start: impl AsRef<str>) -> Self {
        self.start = Some(read_start(start.as_ref()));
        self
    }

    /// Sets whether a run that fails gives its slot back. Default: no, the slot counts as done.
    #[must_use]
    pub fn retry_failed(mut self, retry: bool) -> Self {
        self.retry_failed = retry;
        self
    }

    /// Sets how long a runner that dies keeps its slot. Default: as the client, or 30 seconds.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.handle.options.ttl = ttl;
        self
    }

    /// Sets the label that others see for the runner. Default: as the client.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.handle.options.set_label(label.as_ref());
        self
    }

    /// Lets the clock of this machine be off by so many seconds.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn skewed(mut self, seconds: i64) -> Self {
        self.skew = seconds;
        self
    }

    /// Runs the work, unless the slot is done or somebody runs it now.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost: the work was dropped, and somebody else may run the
    /// slot. [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store;
    /// if the text says that the slot could not be recorded, the work did run.
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for a period or slot that is not allowed, or a slot that has
    /// ended or not begun.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and frees the slot, unless the work had ended.
    pub async fn run<T, F, W>(&self, work: F) -> Result<Outcome<T>>
    where
        F: FnOnce(Holding) -> W,
        W: Future<Output = T>,
    {
        self.try_run(async |held| Ok(work(held).await)).await
    }

    /// Runs work that can fail, unless the slot is done or somebody runs it now.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// type Failed = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// let locks = tidelock::Locks::connect("memory:").await?;
    /// let import = locks.once("import", tidelock::Period::monthly()).retry_failed(true);
    /// let failed = import.try_run(|_held| async { Ok::<u32, Failed>("x".parse()?) }).await;
    /// assert!(failed.is_err());
    /// let done = import.try_run(|_held| async { Ok::<u32, Failed>("17".parse()?) }).await?;
    /// assert_eq!(done, tidelock::Outcome::Ran(17));
    /// # Ok::<(), Failed>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), converted to `E`, and the work's own error.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<T, E, F, W>(&self, work: F) -> Result<Outcome<T>, E>
    where
        E: From<Error>,
        F: FnOnce(Holding) -> W,
        W: Future<Output = Result<T, E>>,
    {
        let turn = match self.start().await? {
            Outcome::Ran(turn) => turn,
            Outcome::Done(done) => return Ok(Outcome::Done(done)),
            Outcome::Running(running) => return Ok(Outcome::Running(running)),
        };
        let done = tokio::select! {
            biased;
            why = turn.lost() => return Err(why.into()),
            done = work(turn.holding()) => done,
        };
        let ended = if done.is_ok() { turn.done().await } else { turn.failed().await };
        match ended {
            // The work's own error says more.
            Err(error) if done.is_ok() => Err(error.into()),
            ended => outcome(done.map(Outcome::Ran), ended),
        }
    }

    /// Gets the right to run the slot, for programs that run it in their own way.
    ///
    /// [`Outcome::Ran`] has the [`Turn`], with which the program says what came of it.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// Dropping the future frees the slot.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// use tidelock::{Locks, Outcome, Period};
    ///
    /// let locks = Locks::connect("memory:").await?;
    /// match locks.once("report", Period::weekly()).start().await? {
    ///     Outcome::Ran(turn) => turn.done().await?, // after the work
    ///     Outcome::Done(done) => println!("done already by {}", done.by),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn start(&self) -> Result<Outcome<Turn>> {
        let name = self.handle.name()?.clone();
        let (slot, now) = self.current_slot()?;
        let mut left_behind = self.names(&name, slot)?;
        let record = left_behind.remove(0);
        // Most who come late find it done, and need not disturb who runs.
        if let Some(done) = self.done(&record).await? {
            return Ok(Outcome::Done(done));
        }
        for attempt in 0.. {
            if let Some(guard) = self.handle.try_lock(Share::Exclusive).await? {
                // Somebody may have done it since. From here on nobody can.
                return match self.done(&record).await? {
                    Some(done) => guard.release().await.map(|()| Outcome::Done(done)),
                    None => {
                        let turn = Turn::new(guard, &self.handle, record, slot, now, self.retry_failed);
                        Ok(Outcome::Ran(turn.forgetting(left_behind)))
                    }
                };
            }
            if let Some(done) = self.done(&record).await? {
                return Ok(Outcome::Done(done));
            }
            let running = self.running(&name).await?;
            if let Some(running) = running.or_else(|| (attempt == TRIES).then(Running::unknown)) {
                return Ok(Outcome::Running(running));
            }
            // It was released between the two questions, or goes to the next in line.
            tokio::time::sleep(PAUSE).await;
        }
        unreachable!("the loop has no end")
    }

    /// Returns the slot, and the seconds of now.
    fn current_slot(&self) -> Result<(Slot, u64)> {
        let now = (wall_micros() / 1_000_000).saturating_add_signed(self.skew);
        let slot = match &self.start {
            None => self.period.slot_at(now)?,
            Some(start) => self.period.slot_from(start.clone()?)?,
        };
        if slot.end + MARGIN <= now {
            return Err(Error::invalid_option(format!(
                "the slot {slot} ended at {}, so nobody can tell whether it was done: give a later one",
                Slot { start: slot.end, end: slot.end }
            )));
        }
        if slot.start > now + MARGIN {
            return Err(Error::invalid_option(format!(
                "the slot {slot} has not begun: start the job when it has"
            )));
        }
        Ok((slot, now))
    }

    /// Returns the names of what is left behind: for this slot, and for some before it.
    fn names(&self, name: &Name, slot: Slot) -> Result<Vec<Name>> {
        let abilities = self.handle.engine.backend().abilities();
        let before = std::iter::successors(Some(slot), |slot| self.period.before(*slot)).take(4);
        before.map(|slot| record::name(name, slot, abilities)).collect()
    }

    async fn done(&self, record: &Name) -> Result<Option<Done>> {
        let views = self.handle.engine.look(&Scope::Names(vec![record.clone()])).await?;
        Ok(views.first().and_then(Done::of))
    }

    async fn running(&self, name: &Name) -> Result<Option<Running>> {
        let views = self.handle.engine.look(&Scope::Names(vec![name.clone()])).await?;
        Ok(views.first().and_then(Running::of))
    }
}

impl Running {
    fn of(view: &LockView) -> Option<Self> {
        let holder = view.holders.first()?;
        let since = Duration::from_micros(wall_micros()).saturating_sub(holder.age);
        Some(Self { by: Arc::clone(&holder.label), since: SystemTime::UNIX_EPOCH + since })
    }

    /// Somebody is in the way, and is never seen there.
    fn unknown() -> Self {
        Self {
            by: "another process".into(),
            since: SystemTime::UNIX_EPOCH + Duration::from_micros(wall_micros()),
        }
    }
}

/// By whom and since when, for people: `worker-7 since 2026-11-16T10:15:03Z`.
impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {}", self.by, to_text(self.since))
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.show("Once", f).field("period", &format_args!("{}", self.period)).finish()
    }
}
