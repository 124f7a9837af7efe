//! What tasks ask for, and how they ask the library for it.

use std::{pin::Pin, time::Duration};

use tidelock::{Guard, Result};
use tokio::time::timeout;

use super::{
    player::{Player, nanos},
    record::{Event, Nanos, Share},
    work::{Lock, Use},
};

/// A request in progress.
pub(super) type Asking<'a> = Pin<Box<dyn Future<Output = Result<Option<Guard>>> + Send + 'a>>;

/// How a request waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Wait,
    Try,
    TryFor(Duration),
    /// Its future is dropped after this time.
    Drop(Duration),
    /// Its future is dropped after so many turns of other tasks: between any two steps of a request.
    DropAfter(u64),
}

impl Way {
    pub(super) fn patience(self) -> Nanos {
        match self {
            Self::Wait => Nanos::MAX,
            Self::Try | Self::DropAfter(_) => 0,
            Self::TryFor(limit) | Self::Drop(limit) => nanos(limit),
        }
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hold {
    /// Let go at once.
    Not,
    /// For this long, looked at so often.
    For(Duration, u32),
    /// With the thread of the process blocked for this long: nobody hears what happens meanwhile.
    Hang(Duration),
    /// Left behind after this long, and renewed so often by its ticket, with as long between.
    ByTicket(Duration, u32),
    /// For at least this long, and let go after that: sooner, so that others are kept out by the lease.
    Keep(Duration, Duration),
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Which lock.
    pub(super) lock: usize,
    pub(super) share: Share,
    pub(super) way: Way,
    /// Zero is none.
    pub(super) owner: u32,
    pub(super) renews: bool,
    pub(super) hold: Hold,
}

impl Player {
    /// Notes a request that is about to be made, and whose it is.
    pub(super) fn note_ask(&self, lock: usize, share: Share, owner: u32, patience: Nanos) -> u32 {
        let op = self.journal.ask(lock, share, owner, patience);
        if let Some(guest) = &self.guest {
            guest.asks(lock, op);
            self.journal.note(&Event::By { op, guest: guest.number });
        }
        op
    }

    /// A request that is about to be made.
    pub(super) fn asking<'a>(&self, request: &Request) -> Asking<'a> {
        let Request { lock, share, way, owner, renews, hold } = *request;
        let detached = matches!(hold, Hold::ByTicket(..));
        let Lock { name, usage, ttl_ms, .. } = &self.work.locks[lock];
        let (locks, ttl) = (&self.locks, Duration::from_millis(*ttl_ms));
        let at_least = if let Hold::Keep(time, _) = hold { Some(time) } else { None };
        /// The three ways to ask a handle.
        macro_rules! ask {
            ($handle:expr, $wait:ident, $try:ident, $try_for:ident $(, $n:expr)?) => {{
                let handle = $handle.ttl(ttl).auto_renew(renews).detached(detached);
                let handle = match at_least {
                    Some(time) => handle.hold_at_least(time),
                    None => handle,
                };
                Box::pin(async move {
                    match way {
                        Way::Wait | Way::Drop(_) | Way::DropAfter(_) => handle.$wait($($n)?).await.map(Some),
                        Way::Try => handle.$try($($n)?).await,
                        Way::TryFor(limit) => handle.$try_for($($n,)? limit).await,
                    }
                })
            }};
        }
        match (usage, share) {
            (Use::Election, _) => {
                let election = locks.election(name).ttl(ttl);
                Box::pin(async move {
                    let campaign = election.campaign();
                    match way {
                        // An election has no limit of its own.
                        Way::TryFor(limit) => {
                            timeout(limit, campaign).await.map_or(Ok(None), |won| won.map(Some))
                        }
                        _ => campaign.await.map(Some),
                    }
                })
            }
            (_, Share::Shared) => ask!(locks.rw_lock(name), read, try_read, try_read_for),
            (Use::ReadWrite, _) => ask!(locks.rw_lock(name), write, try_write, try_write_for),
            (_, Share::Permits { n, of }) => {
                let n = u32::from(n);
                ask!(locks.semaphore(name, of.into()), acquire, try_acquire, try_acquire_for, n)
            }
            (_, Share::Exclusive) if owner != 0 => {
                ask!(locks.mutex(name).owner(format!("torture-{owner}")), lock, try_lock, try_lock_for)
            }
            (_, Share::Exclusive) => ask!(locks.mutex(name), lock, try_lock, try_lock_for),
        }
    }
}
