//! Options of a lock, checked in one place.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::{Abilities, Share},
    engine::{Request, usable},
    error::{Error, Result},
    name::Name,
    owner::{self, Owner},
};

/// The lease when nothing else is said.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The longest lease: a holder that dies keeps others out for this long.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3_600);

/// What can be set for a lock. Every handle has these as methods.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) owner: Option<Owner>,
    pub(crate) label: Arc<str>,
    pub(crate) detached: bool,
    /// Whether an exclusive claim is a write lock, for stores that share their lines with other programs.
    pub(crate) writes: bool,
    /// The first mistake made while setting them; said when the lock is asked for.
    mistake: Option<Error>,
}

impl Options {
    pub(crate) fn new(label: Arc<str>) -> Self {
        Self {
            ttl: DEFAULT_TTL,
            auto_renew: true,
            max_hold: None,
            wait: None,
            owner: None,
            label,
            detached: false,
            writes: false,
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

    /// Checks everything against what the store can do.
    pub(crate) fn request<'a>(
        &'a self,
        name: &'a Name,
        share: Share,
        abilities: &Abilities,
    ) -> Result<Request<'a>> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        self.check_ttl(abilities)?;
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::invalid_option(
                "max_hold is zero, so the lock would be lost at once: leave it out or set a longer one",
            ));
        }
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
            ttl: self.ttl,
            auto_renew: self.auto_renew,
            max_hold: self.max_hold,
            label: &self.label,
            detached: self.detached,
            writes: self.writes && share == Share::Exclusive,
            store_reenters: abilities.reentry,
        })
    }

    fn check_ttl(&self, abilities: &Abilities) -> Result<()> {
        let (ttl, store, least) = (self.ttl, abilities.store, abilities.min_ttl);
        if ttl < least || usable(ttl).is_zero() {
            return Err(Error::invalid_option(format!(
                "a ttl of {ttl:?} is too short: {store} keeps leases of {least:?} or more"
            )));
        }
        if ttl > MAX_TTL {
            return Err(Error::invalid_option(format!(
                "a ttl of {ttl:?} is too long, at most {MAX_TTL:?} are allowed: a shorter one can be renewed"
            )));
        }
        Ok(())
    }
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
        /// How long the lock lives when this process dies. Default: 30 seconds.
        ///
        /// It is renewed by itself at a third of it, so a short one costs messages, not work.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.$($reach).+.options.ttl = ttl;
            self
        }

        /// Whether the lock is renewed by itself. Default: yes.
        ///
        /// Without renewal it is lost when its ttl is over, however long the work takes.
        #[must_use]
        pub fn auto_renew(mut self, auto_renew: bool) -> Self {
            self.$($reach).+.options.auto_renew = auto_renew;
            self
        }

        /// The longest time to hold it. Default: no limit.
        ///
        /// When it is over the lock is lost and given back: work that hangs keeps nobody out.
        #[must_use]
        pub fn max_hold(mut self, limit: std::time::Duration) -> Self {
            self.$($reach).+.options.max_hold = Some(limit);
            self
        }

        /// The longest time to wait in calls that do not say it themselves. Default: no limit.
        #[must_use]
        pub fn wait(mut self, limit: std::time::Duration) -> Self {
            self.$($reach).+.options.wait = Some(limit);
            self
        }

        /// On whose behalf. Whoever holds a lock may take it again under the same owner, from any
        /// task, without waiting; it is free when each of the guards is gone. Default: nobody.
        #[must_use]
        pub fn owner(mut self, owner: impl AsRef<str>) -> Self {
            self.$($reach).+.options.set_owner(owner.as_ref());
            self
        }

        /// Whether the lock may outlive this process: see
        /// [`leave_behind`](crate::Guard::leave_behind). Default: no.
        ///
        /// Then the death of this process does not free it before its ttl is over, even on a store
        /// that would notice at once.
        #[must_use]
        pub fn detached(mut self, detached: bool) -> Self {
            self.$($reach).+.options.detached = detached;
            self
        }

        /// What others see of the holder. Default: program and process id.
        #[must_use]
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.$($reach).+.options.set_label(label.as_ref());
            self
        }
    };
}

pub(crate) use option_methods;
