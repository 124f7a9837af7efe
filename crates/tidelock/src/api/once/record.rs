//! What is left behind for a slot that is done: a claim whose label has the runner, and behind it a line of numbers.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::slot::{Slot, to_text};
use crate::{
    api::options::checked_name,
    backend::{Abilities, LockView},
    error::Result,
    model::{name::Name, owner::DONE},
};

/// A slot that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// The label of the process that ran it.
    pub by: Arc<str>,
    /// When the run began, on the runner's clock.
    pub began: SystemTime,
    /// When the run ended, on the runner's clock.
    pub ended: SystemTime,
    /// When the slot is forgotten, on the runner's clock.
    pub forgotten: SystemTime,
    /// Whether the run failed.
    pub failed: bool,
}

impl Done {
    /// Returns what a lock shows of a slot that is done; `None` for all other locks.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// use tidelock::{Done, Locks, Period};
    ///
    /// let locks = Locks::builder("memory:").label("worker-7").connect().await?;
    /// locks.once("report", Period::weekly()).run(|_held| async {}).await?;
    /// let seen = locks.look_all().await?;
    /// assert_eq!(&*Done::of(&seen[0]).unwrap().by, "worker-7");
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn of(view: &LockView) -> Option<Self> {
        let holder = view.holders.first()?;
        let numbers = holder.advertised.as_deref()?.strip_prefix(DONE)?;
        let mut fields = numbers.split(' ');
        let mut time = || {
            let millis = fields.next()?.parse().ok()?;
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
        };
        let (began, ended, forgotten) = (time()?, time()?, time()?);
        let failed = fields.next()? == "failed";
        Some(Self { by: Arc::clone(&holder.label), began, ended, forgotten, failed })
    }
}

/// By whom and when, for people: `worker-7 at 2026-11-16T10:15:03Z`.
impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = if self.failed { ", and failed" } else { "" };
        write!(f, "{} at {}{failed}", self.by, to_text(self.ended))
    }
}

/// The text behind the label. Times are milliseconds since 1970.
pub(super) fn text(began: u64, ended: u64, forgotten: u64, failed: bool) -> String {
    format!("{DONE}{began} {ended} {forgotten} {}", if failed { "failed" } else { "ok" })
}

/// The name under which a slot is left behind.
pub(super) fn name(job: &Name, slot: Slot, abilities: &Abilities) -> Result<Name> {
    checked_name(&format!("{job}@{slot}"), abilities)
}
