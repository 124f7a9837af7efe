//! Options of a lock, checked in one place.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::{Abilities, Share},
    engine::{Request, usable},
    error::{Error, Result},
    model::name::{MAX_NAME_BYTES, Name},
    model::owner::{self, Owner},
};

/// The default lease.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The longest lease: a holder that dies excludes others for up to this long.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3_600);

/// The options of a lock. Every handle has them as methods.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    /// For how long others are kept out, even if the lock is released earlier.
    pub(crate) at_least: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) owner: Option<Owner>,
    pub(crate) label: Arc<str>,
    pub(crate) detached: bool,
    pub(crate) fail_fast: bool,
    /// Whether an exclusive claim is a write lock, for stores that share their queues with other programs.
    pub(crate) writes: bool,
    /// Whether the claim is never handed to another task of this process, as that of a candidate.
    pub(crate) alone: bool,
    /// Whether nobody relies on the claim as on a lock: it says that a slot is done, for as long as that matters.
    pub(crate) record: bool,
    /// The first mistake made while setting options; reported when the lock is acquired.
    mistake: Option<Error>,
}

impl Options {
    pub(crate) fn new(label: Arc<str>) -> Self {
        Self {
            ttl: DEFAULT_TTL,
            auto_renew: true,
            max_hold: None,
            at_least: None,
            wait: None,
            owner: None,
            label,
            detached: false,
            fail_fast: false,
            writes: false,
            alone: false,
            record: false,
            mistake: None,
        }
    }

    pub(crate) fn set_owner(&mut self, text: &str) {
        match Owner::new(text) {
            Ok(owner) => self.owner = Some(owner),
            Err(error) => self.mistake = self.mistake.take().or(Some(error)),
        }
    }

    pub(crate) fn set_label(&mut self, text: &str) {
        match owner::label(text) {
            Ok(label) => self.label = label,
            Err(error) => self.mistake = self.mistake.take().or(Some(error)),
        }
    }

    /// Checks all options against what the store can do.
    pub(crate) fn request<'a>(
        &'a self,
        name: &'a Name,
        share: Share,
        abilities: &Abilities,
    ) -> Result<Request<'a>> {
        self.check()?;
        self.check_for(abilities)?;
        self.check_at_least()?;
        if self.detached && self.owner.is_some() {
            return Err(Error::invalid_option(
                "a detached lock is known by its ticket and has no owner: leave one of them out",
            ));
        }
        check_permits(share, abilities)?;
        Ok(Request {
            name,
            share,
            owner: self.owner.as_ref(),
            // If this process dies, its lease alone keeps others out.
            ttl: self.at_least.map_or(self.ttl, |time| time.max(self.ttl)),
            auto_renew: self.auto_renew,
            max_hold: self.max_hold,
            label: &self.label,
            detached: self.detached || self.at_least.is_some(),
            fail_fast: self.fail_fast,
            writes: self.writes && share == Share::Exclusive,
            alone: self.alone,
            store_reenters: abilities.reentry,
        })
    }

    /// Checks what is wrong on every store.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::invalid_option(
                "max_hold is zero, so the lock would be lost at once: leave it out or set a longer one",
            ));
        }
        let ttl = self.ttl;
        if ttl > MAX_TTL && !self.record {
            return Err(Error::invalid_option(format!(
                "a ttl of {ttl:?} is too long, at most {MAX_TTL:?} are allowed: a shorter one can be renewed"
            )));
        }
        Ok(())
    }

    /// Checks what contradicts a shortest time to hold.
    fn check_at_least(&self) -> Result<()> {
        let Some(time) = self.at_least else { return Ok(()) };
        let text = if time > MAX_TTL {
            format!(
                "hold_at_least of {time:?} is too long, at most {MAX_TTL:?} are allowed: use `once` for a job that runs once per period"
            )
        } else if self.owner.is_some() {
            "a lock with an owner is free when its last guard is gone: leave out owner or hold_at_least"
                .to_owned()
        } else if let Some(limit) = self.max_hold.filter(|limit| *limit < time) {
            format!("max_hold of {limit:?} is shorter than hold_at_least of {time:?}: change one of them")
        } else if !self.auto_renew && self.ttl < time {
            format!(
                "without renewal the lock is lost after its ttl of {:?}, before hold_at_least of {time:?}: set a longer ttl",
                self.ttl
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid_option(text))
    }

    /// Checks the options against what the store can do.
    pub(crate) fn check_for(&self, abilities: &Abilities) -> Result<()> {
        let (ttl, store, least) = (self.ttl, abilities.store, abilities.min_ttl);
        if ttl < least || usable(ttl).is_zero() {
            return Err(Error::invalid_option(format!(
                "a ttl of {ttl:?} is too short: {store} keeps leases of {least:?} or more"
            )));
        }
        Ok(())
    }
}

/// Checks a name, also against what the store can do.
pub(crate) fn checked_name(text: &str, abilities: &Abilities) -> Result<Name> {
    let name = Name::new(text)?;
    let (len, most) = (text.len(), abilities.max_name);
    if len > most {
        return Err(Error::invalid_name(format!(
            "lock name has {len} bytes, and {most} of {MAX_NAME_BYTES} are left for it by the client's namespace or by {}: shorten it or use a hash of it",
            abilities.store
        )));
    }
    Ok(name)
}

fn check_permits(share: Share, abilities: &Abilities) -> Result<()> {
    let Share::Permits { n, of } = share else {
        return Ok(());
    };
    let text = if of == 0 {
        "a semaphore with 0 permits can never be acquired: give it at least 1".to_owned()
    } else if n == 0 {
        "acquiring 0 permits would hold nothing: ask for at least 1".to_owned()
    } else if n > of {
        format!("acquiring {n} of {of} permits can never succeed: ask for at most {of}")
    } else if let Err(why) = abilities.permits {
        format!("{} does not count permits: {why}; use a mutex or a read-write lock there", abilities.store)
    } else {
        return Ok(());
    };
    Err(Error::invalid_option(text))
}

/// The option methods of a handle with a field `handle`.
macro_rules! option_methods {
    ($($reach:ident).+) => {
        /// Sets how long the lock lives after this process dies. Default: as the client, or 30 seconds.
        ///
        /// The lock is renewed automatically every `ttl / 3`; a shorter ttl only means more messages.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.$($reach).+.options.ttl = ttl;
            self
        }

        /// Sets whether the lock is renewed automatically. Default: as the client, or yes.
        ///
        /// Without renewal, the lock is lost when its ttl expires, however long the work takes.
        #[must_use]
        pub fn auto_renew(mut self, auto_renew: bool) -> Self {
            self.$($reach).+.options.auto_renew = auto_renew;
            self
        }

        /// Sets the longest time to hold the lock. Default: as the client, or no limit.
        ///
        /// After this time, the lock is lost and released, so work that hangs does not block others.
        #[must_use]
        pub fn max_hold(mut self, limit: std::time::Duration) -> Self {
            self.$($reach).+.options.max_hold = Some(limit);
            self
        }

        /// Sets the shortest time to hold the lock, counted from when it was acquired. Default: none.
        ///
        /// If the guard is released or dropped earlier, nobody else gets the lock before this time has passed.
        /// Use it for short jobs that several machines start by their own clocks, so that a machine whose
        /// clock is behind does not run the job again. If the lock is lost, others get it as usual.
        ///
        /// [`release`](crate::Guard::release) returns at once; the client gives the lock back when the time has
        /// come. If the process ends before that, or the client is shut down, the lock is free when its lease
        /// ends. The lease is at least this long, even if [`ttl`](Self::ttl) is shorter.
        ///
        /// ```
        /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        /// # rt.block_on(async {
        /// # use std::time::Duration;
        /// let locks = tidelock::Locks::connect("memory:").await?;
        /// let job = locks.mutex("report").hold_at_least(Duration::from_secs(30));
        /// job.run(|_held| async {}).await?;
        /// assert!(job.try_lock().await?.is_none());
        /// # Ok::<(), tidelock::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub fn hold_at_least(mut self, time: std::time::Duration) -> Self {
            self.$($reach).+.options.at_least = Some(time).filter(|time| !time.is_zero());
            self
        }

        /// Sets the longest time to wait in calls without their own limit. Default: as the client, or none.
        ///
        /// The limit also covers a store that is not reachable or does not answer: it is retried with growing
        /// pauses until it answers or the time is up. Zero means not to wait at all.
        #[must_use]
        pub fn wait(mut self, limit: std::time::Duration) -> Self {
            self.$($reach).+.options.wait = Some(limit);
            self
        }

        /// Sets the owner, which makes the lock reentrant. Default: none.
        ///
        /// While an owner holds a lock, the same owner can acquire it again from any task without waiting.
        /// The lock is free when all of the guards are gone.
        #[must_use]
        pub fn owner(mut self, owner: impl AsRef<str>) -> Self {
            self.$($reach).+.options.set_owner(owner.as_ref());
            self
        }

        /// Sets whether the lock may outlive this process. Default: no.
        ///
        /// See [`leave_behind`](crate::Guard::leave_behind).
        ///
        /// If so, the death of this process does not free the lock before its ttl expires, even on a store
        /// that would notice the death at once.
        #[must_use]
        pub fn detached(mut self, detached: bool) -> Self {
            self.$($reach).+.options.detached = detached;
            self
        }

        /// Sets whether an unavailable store is an error after three tries. Default: as the client, or no.
        ///
        /// A store is unavailable when it is not reachable or does not answer. If it refuses connections,
        /// three tries take well under a second.
        ///
        /// Without this option, waiting continues until the store answers or the time set by
        /// [`wait`](Self::wait) is up.
        #[must_use]
        pub fn fail_fast(mut self, fail_fast: bool) -> Self {
            self.$($reach).+.options.fail_fast = fail_fast;
            self
        }

        /// Sets the label that others see for the holder. Default: as the client.
        #[must_use]
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.$($reach).+.options.set_label(label.as_ref());
            self
        }
    };
}

pub(crate) use option_methods;
