//! The lock, or the locks, that a command runs under.

use std::time::Duration;

use tidelock::{Error, Guard, Guards, Locks, Name, Result, Token};

use crate::plan::{Run, Share};

/// What is held.
#[derive(Debug)]
pub(crate) enum Hold {
    One(Guard),
    Several(Guards),
}

/// Asks for a lock as the plan says: for ever, for a while, or once.
macro_rules! ask {
    ($lock:expr, $plan:expr, $wait:ident, $attempt:ident $(, $n:expr)?) => {{
        let mut lock = $lock.ttl($plan.ttl).label(&$plan.label);
        if let Some(owner) = &$plan.owner {
            lock = lock.owner(owner);
        }
        match $plan.wait {
            None => Some(lock.$wait($($n)?).await?),
            Some(Duration::ZERO) => lock.$attempt($($n)?).await?,
            Some(limit) => Some(lock.wait(limit).$wait($($n)?).await?),
        }
    }};
}

impl Hold {
    /// Takes what the plan says: `None` if it was not to wait and there was something to wait for.
    pub(crate) async fn acquire(locks: &Locks, plan: &Run) -> Result<Option<Self>> {
        let name = plan.names[0].as_str();
        Ok(match plan.share {
            _ if plan.names.len() > 1 => {
                let names = plan.names.iter().map(Name::as_str);
                ask!(locks.multi(names), plan, lock, try_lock).map(Self::Several)
            }
            Share::Exclusive => ask!(locks.mutex(name), plan, lock, try_lock).map(Self::One),
            Share::Shared => ask!(locks.rw_lock(name), plan, read, try_read).map(Self::One),
            Share::Permits(permits) => {
                ask!(locks.semaphore(name, permits.of), plan, acquire, try_acquire, permits.n).map(Self::One)
            }
        })
    }

    /// The token of a lock that is held.
    pub(crate) fn token(&self, name: &Name) -> Option<Token> {
        match self {
            Self::One(guard) => Some(guard.token()),
            Self::Several(guards) => {
                guards.iter().find(|guard| guard.name() == name).map(|guard| guard.token())
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_held(),
            Self::Several(guards) => guards.is_held(),
        }
    }

    /// Resolves when the first of them is lost.
    pub(crate) async fn lost(&self) -> Error {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Several(guards) => guards.lost().await,
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guards) => guards.release().await,
        }
    }
}
