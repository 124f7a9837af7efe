//! The lock, or the locks, that were asked for.

use std::time::Duration;

use tidelock::{Error, Guard, Guards, Holding, Locks, Name, Result, Slot, Ticket, Token, Turn};

use crate::{
    output::Trouble,
    plan::{Ask, Share},
};

/// What is held.
#[derive(Debug)]
pub(crate) enum Hold {
    One(Guard),
    Several(Guards),
    /// The right to run a slot.
    Turn(Box<Turn>),
}

/// Asks for a lock: for ever, for a while, or once.
macro_rules! ask {
    ($lock:expr, $ask:expr, $limit:expr, $wait:ident, $attempt:ident $(, $n:expr)?) => {{
        let mut lock = $lock.ttl($ask.ttl).label(&$ask.label).detached($ask.detached).fail_fast($ask.fail_fast);
        lock = lock.hold_at_least($ask.at_least);
        if let Some(owner) = &$ask.owner {
            lock = lock.owner(owner);
        }
        if let Some(limit) = $ask.max_hold {
            lock = lock.max_hold(limit);
        }
        match $limit {
            None => Some(lock.$wait($($n)?).await?),
            Some(Duration::ZERO) => lock.$attempt($($n)?).await?,
            Some(limit) => Some(lock.wait(limit).$wait($($n)?).await?),
        }
    }};
}

impl Hold {
    /// Takes what is asked for, waiting up to `limit`: `None` if it was not to wait and there was something
    /// to wait for.
    pub(crate) async fn acquire(locks: &Locks, ask: &Ask, limit: Option<Duration>) -> Result<Option<Self>> {
        let name = ask.names[0].as_str();
        Ok(match ask.share {
            _ if ask.names.len() > 1 => {
                let names = ask.names.iter().map(Name::as_str);
                ask!(locks.multi(names), ask, limit, lock, try_lock).map(Self::Several)
            }
            Share::Exclusive => ask!(locks.mutex(name), ask, limit, lock, try_lock).map(Self::One),
            Share::Write => ask!(locks.rw_lock(name), ask, limit, write, try_write).map(Self::One),
            Share::Shared => ask!(locks.rw_lock(name), ask, limit, read, try_read).map(Self::One),
            Share::Permits(permits) => {
                ask!(locks.semaphore(name, permits.of), ask, limit, acquire, try_acquire, permits.n)
                    .map(Self::One)
            }
        })
    }

    /// The token of a lock that is held.
    pub(crate) fn token(&self, name: &Name) -> Option<Token> {
        match self {
            Self::One(guard) => Some(guard.token()),
            Self::Turn(turn) => Some(turn.holding().token()),
            Self::Several(guards) => {
                guards.iter().find(|guard| guard.name() == name).map(|guard| guard.token())
            }
        }
    }

    /// The token of other programs for a lock that is held, if they have one.
    pub(crate) fn foreign_token(&self, name: &Name) -> Option<u64> {
        match self {
            Self::One(guard) => guard.foreign_token(),
            Self::Turn(turn) => turn.holding().foreign_token(),
            Self::Several(guards) => guards.iter().find(|guard| guard.name() == name)?.foreign_token(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_held(),
            Self::Several(guards) => guards.is_held(),
            Self::Turn(turn) => turn.holding().is_held(),
        }
    }

    /// Resolves when the first of them is lost.
    pub(crate) async fn lost(&self) -> Error {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Several(guards) => guards.lost().await,
            Self::Turn(turn) => turn.lost().await,
        }
    }

    /// Leaves it held when this process ends.
    pub(crate) fn leave_behind(self) -> Result<Ticket, Trouble> {
        match self {
            Self::One(guard) => Ok(guard.leave_behind()?),
            Self::Several(_) | Self::Turn(_) => {
                Err(Trouble::Usage("several locks cannot be left held together".into()))
            }
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guards) => guards.release().await,
            Self::Turn(turn) => turn.give_back().await,
        }
    }

    /// Releases it; of a slot, says that it was run.
    pub(crate) async fn done(self) -> Result<()> {
        match self {
            Self::Turn(turn) => turn.done().await,
            hold => hold.release().await,
        }
    }

    /// Releases it; of a slot, says that it was not run to its end.
    pub(crate) async fn failed(self) -> Result<()> {
        match self {
            Self::Turn(turn) => turn.failed().await,
            hold => hold.release().await,
        }
    }

    /// Views of all that is held.
    pub(crate) fn holdings(&self) -> Vec<Holding> {
        match self {
            Self::One(guard) => vec![guard.holding()],
            Self::Several(guards) => guards.iter().map(|guard| guard.holding()).collect(),
            Self::Turn(turn) => vec![turn.holding()],
        }
    }

    /// The slot that is run, if any.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Turn(turn) => Some(turn.slot()),
            Self::One(_) | Self::Several(_) => None,
        }
    }
}
