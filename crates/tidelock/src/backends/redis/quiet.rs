//! When a server grants nothing though it answers: it may have forgotten who holds what, or ended leases too early.

use std::time::Duration;

use crate::{backend::Failure, clock::Moment};

/// Why a server grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// It may have forgotten who held what.
    Forgot,
    /// Its clock was wrong, so leases may have ended there too early.
    WrongClock,
}

/// Until when a server grants nothing, and whether anybody knows better.
#[derive(Debug, Default)]
pub(super) struct QuietTime {
    until: Option<(Moment, Quiet)>,
    /// The number of the connection on which somebody vouched for the server.
    vouched: u64,
}

impl QuietTime {
    pub(super) fn begin(&mut self, until: Moment, why: Quiet) {
        self.until = Some((until, why));
    }

    /// A connection was made to a server of which nothing is known that it cannot have made up: it is as old as the
    /// connection. What is known of its clock stays.
    pub(super) fn begin_unknown(&mut self, now: Moment, longest: Duration) {
        let why = self.until.filter(|(until, _)| *until > now).map_or(Quiet::Forgot, |(_, why)| why);
        self.begin(now + longest, why);
    }

    /// Somebody knows for how long the server on this connection has to be kept from granting, if at all.
    pub(super) fn vouch(&mut self, number: u64, now: Moment, left: Duration, why: Quiet) {
        self.vouched = number;
        self.until = (!left.is_zero()).then(|| (now + left, why));
    }

    /// Whether somebody vouched for the server on this connection.
    pub(super) fn is_over_for(&self, number: u64) -> bool {
        self.vouched == number
    }

    /// Refuses while it lasts. `votes` says that the server is one of several.
    pub(super) fn check(&mut self, now: Moment, address: &str, votes: bool) -> Result<(), Failure> {
        let Some((until, why)) = self.until else { return Ok(()) };
        if now >= until {
            self.until = None;
            return Ok(());
        }
        let left = until.since(now);
        let seconds = left.as_secs() + 1;
        Err(Failure::unreachable(match why {
            Quiet::WrongClock => format!(
                "{address}: its clock differed from those of the other servers, so leases may have ended there too early, and it has no vote for another {seconds} s; let chronyd or ntpd keep its time"
            ),
            Quiet::Forgot if votes => format!(
                "{address}: it was started a short time ago, may have forgotten who holds what, and has no vote for another {seconds} s; with appendonly yes and appendfsync always it would have"
            ),
            Quiet::Forgot => format!(
                "{address} was restarted and has forgotten who holds what: it grants nothing for another {left:?}; set appendonly yes to keep locks over a restart"
            ),
        }))
    }
}
