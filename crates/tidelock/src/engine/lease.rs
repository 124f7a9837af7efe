//! The life of a lease, as a pure state machine.
//!
//! A lease is counted from *before* the question was sent: the store's clock started somewhere
//! between question and answer, and the earlier end can only make us stop too soon. Of the ttl one
//! percent and two milliseconds are not used: clocks may run at slightly different rates.
//!
//! # States and events
//!
//! | state | renewed, asked at *t* | no answer | gone | deadline passed | limit passed | ended |
//! |---|---|---|---|---|---|---|
//! | `Held` | `Held`, deadline from *t* | `Uncertain` | `Lost(Gone)` | `Lost(Expired)` | `Lost(MaxHold)` | `Ended` |
//! | `Uncertain` | `Held`, deadline from *t* | `Uncertain` | `Lost(Gone)` | `Lost(Expired)` | `Lost(MaxHold)` | `Ended` |
//! | `Lost` | `Lost` | `Lost` | `Lost` | `Lost` | `Lost` | `Lost` |
//! | `Ended` | `Ended` | `Ended` | `Ended` | `Ended` | `Ended` | `Ended` |
//!
//! Whether the deadline or the limit has passed is looked at first in every event: an answer that
//! comes too late revives nothing, because `is_held` may already have said no.
//!
//! A claim that waits has a lease too: the time for which its place is known to be kept.

use std::time::Duration;

use super::backoff;
use crate::{
    clock::{Moment, nanos},
    error::LossReason,
};

/// Of a ttl, the part that may be used: two clocks may differ in rate by one percent.
const DRIFT_DIVISOR: u64 = 100;
const GRANULARITY: u64 = 2_000_000;

/// How much of a ttl counts.
pub(crate) fn usable(ttl: Duration) -> Duration {
    Duration::from_nanos(usable_of(nanos(ttl)))
}

fn usable_of(ttl: u64) -> u64 {
    ttl.saturating_sub(ttl / DRIFT_DIVISOR + GRANULARITY)
}

/// Where a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The last question was answered with yes.
    Held,
    /// The last question was not answered; the lease still runs.
    Uncertain,
    /// It ended, though nobody gave it back.
    Lost(LossReason),
    /// It was given back.
    Ended,
}

/// What to do about a lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing before `late`; from `early` on it may ride along with others.
    Nothing {
        /// From when on it is worth renewing.
        early: Moment,
        /// When it must be looked at.
        late: Moment,
    },
    /// Ask the store to renew it.
    Renew,
    /// It is lost: say so.
    Lost(LossReason),
    /// It ended and everybody knows.
    Over,
}

/// One lease.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// In nanoseconds: looked at often.
    ttl: u64,
    /// When the last question that was answered with yes was asked.
    confirmed: Moment,
    /// Whether a renewal is under way.
    is_asking: bool,
    /// When to ask again after one that was not answered.
    retry: Option<Moment>,
    /// Whether to renew at all.
    renew: bool,
    /// The end that `max_hold` sets.
    limit: Option<Moment>,
    state: State,
}

impl Lease {
    /// A lease that a question asked at `asked` began.
    pub(crate) fn new(asked: Moment, ttl: Duration, renew: bool) -> Self {
        Self {
            ttl: nanos(ttl),
            confirmed: asked,
            is_asking: false,
            retry: None,
            renew,
            limit: None,
            state: State::Held,
        }
    }

    /// The state at this moment.
    pub(crate) fn state(&mut self, now: Moment) -> State {
        if matches!(self.state, State::Held | State::Uncertain) {
            if self.limit.is_some_and(|limit| now >= limit) {
                self.state = State::Lost(LossReason::MaxHold);
            } else if now >= self.confirmed + self.usable() {
                self.state = State::Lost(LossReason::Expired);
            }
        }
        self.state
    }

    /// Until when it may be relied on, if nothing else happens.
    pub(crate) fn deadline(&self) -> Moment {
        let lease = self.confirmed + self.usable();
        self.limit.map_or(lease, |limit| limit.min(lease))
    }

    /// How much of the ttl counts. Not kept: of a large number of leases every byte is one too many.
    fn usable(&self) -> Duration {
        Duration::from_nanos(usable_of(self.ttl))
    }

    /// How long ago the store last confirmed it.
    pub(crate) fn silent(&self, now: Moment) -> Duration {
        now.since(self.confirmed)
    }

    /// The ttl the store gave.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl)
    }

    /// Sets or lifts the end that `max_hold` sets. Says whether it changed.
    pub(crate) fn limit(&mut self, limit: Option<Moment>) -> bool {
        std::mem::replace(&mut self.limit, limit) != limit
    }

    /// Whether it is renewed from now on.
    pub(crate) fn renew(&mut self, renew: bool) {
        self.renew = renew;
    }

    /// Whether a question is under way.
    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// A renewal is sent.
    pub(crate) fn asking(&mut self) {
        self.is_asking = true;
        self.retry = None;
    }

    /// The store said yes to what was asked at `asked`.
    pub(crate) fn confirmed(&mut self, asked: Moment, ttl: Duration, now: Moment) {
        self.is_asking = false;
        self.retry = None;
        if matches!(self.state(now), State::Held | State::Uncertain) {
            // Answers may overtake each other: an older question never shortens the lease.
            if asked >= self.confirmed {
                self.confirmed = asked;
                self.ttl = nanos(ttl);
            }
            self.state = State::Held;
        }
    }

    /// It is worth no more than this from when it was last confirmed.
    pub(crate) fn at_most(&mut self, ttl: Duration) {
        self.ttl = self.ttl.min(nanos(ttl));
    }

    /// No answer came to what was asked.
    pub(crate) fn unanswered(&mut self, now: Moment) {
        self.is_asking = false;
        self.retry = Some(now + backoff::of_renewal(self.ttl()));
        if self.state(now) == State::Held {
            self.state = State::Uncertain;
        }
    }

    /// The store does not know the claim, or the client gives it up for this reason.
    pub(crate) fn lose(&mut self, reason: LossReason, now: Moment) {
        if matches!(self.state(now), State::Held | State::Uncertain) {
            self.state = State::Lost(reason);
        }
    }

    /// It was given back.
    pub(crate) fn end(&mut self, now: Moment) {
        if matches!(self.state(now), State::Held | State::Uncertain) {
            self.state = State::Ended;
        }
    }

    /// What to do now. `jitter` in 0..256 spreads renewals that began together.
    pub(crate) fn due(&mut self, now: Moment, jitter: u8) -> Due {
        match self.state(now) {
            State::Lost(reason) => return Due::Lost(reason),
            State::Ended => return Due::Over,
            State::Held | State::Uncertain => {}
        }
        let deadline = self.deadline();
        if !self.renew || self.is_asking {
            return Due::Nothing { early: deadline, late: deadline };
        }
        let (early, late) = match self.retry {
            Some(retry) => (retry, retry),
            None => {
                let third = self.ttl / 3;
                let late =
                    self.confirmed + Duration::from_nanos(third - third / 10 * u64::from(jitter) / 256);
                // One that wakes the keeper takes along those that are nearly due.
                (late - Duration::from_nanos((third / 4).min(2_500_000_000)), late)
            }
        };
        if now >= late {
            Due::Renew
        } else {
            Due::Nothing { early: early.min(deadline), late: late.min(deadline) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(1_000_000_000_000 + ms * 1_000_000)
    }

    fn held() -> Lease {
        Lease::new(at(0), TTL, true)
    }

    fn uncertain() -> Lease {
        let mut lease = held();
        lease.asking();
        lease.unanswered(at(3_100));
        lease
    }

    fn lost() -> Lease {
        let mut lease = held();
        lease.lose(LossReason::Gone, at(1));
        lease
    }

    fn ended() -> Lease {
        let mut lease = held();
        lease.end(at(1));
        lease
    }

    /// The table of the module's documentation, row by row.
    #[test]
    fn every_state_answers_every_event_as_the_table_says() {
        type Event = fn(&mut Lease);
        type Row = (fn() -> Lease, [State; 6]);
        let renewed: Event = |lease| lease.confirmed(at(3_000), TTL, at(3_200));
        let no_answer: Event = |lease| lease.unanswered(at(3_200));
        let gone: Event = |lease| lease.lose(LossReason::Gone, at(3_200));
        let late: Event = |lease| lease.confirmed(at(3_000), TTL, at(9_898));
        let over_limit: Event = |lease| {
            lease.limit(Some(at(3_150)));
            lease.confirmed(at(3_000), TTL, at(3_200));
        };
        let end: Event = |lease| lease.end(at(3_200));
        let (gone_, expired) = (State::Lost(LossReason::Gone), State::Lost(LossReason::Expired));
        let limit = State::Lost(LossReason::MaxHold);
        let events = [renewed, no_answer, gone, late, over_limit, end];
        let table: [Row; 4] = [
            (held, [State::Held, State::Uncertain, gone_, expired, limit, State::Ended]),
            (uncertain, [State::Held, State::Uncertain, gone_, expired, limit, State::Ended]),
            (lost, [gone_; 6]),
            (ended, [State::Ended; 6]),
        ];
        for (row, (make, expected)) in table.into_iter().enumerate() {
            for (column, (event, expected)) in events.into_iter().zip(expected).enumerate() {
                let mut lease = make();
                event(&mut lease);
                assert_eq!(lease.state, expected, "row {row}, column {column}");
            }
        }
    }

    #[test]
    fn a_lease_counts_from_the_question_and_not_from_the_answer() {
        let mut lease = held();
        lease.asking();
        lease.confirmed(at(3_000), TTL, at(5_000));
        assert_eq!(lease.deadline(), at(3_000) + Duration::from_millis(9_898));
    }

    #[test]
    fn an_older_answer_does_not_shorten_the_lease() {
        let mut lease = held();
        lease.confirmed(at(4_000), TTL, at(4_100));
        lease.confirmed(at(2_000), TTL, at(4_200));
        assert_eq!(lease.deadline(), at(4_000) + usable(TTL));
    }

    #[test]
    fn a_shorter_lease_counts_from_the_same_question() {
        let mut lease = held();
        lease.at_most(TTL * 2);
        assert_eq!(lease.deadline(), at(0) + usable(TTL));
        lease.at_most(TTL / 2);
        assert_eq!(lease.deadline(), at(0) + usable(TTL / 2));
    }

    #[test]
    fn an_answer_after_the_deadline_revives_nothing() {
        let mut lease = held();
        lease.asking();
        lease.confirmed(at(9_000), TTL, at(9_898));
        assert_eq!(lease.state(at(9_898)), State::Lost(LossReason::Expired));
    }

    #[test]
    fn it_is_renewed_after_a_third_and_tried_again_until_the_deadline() {
        let mut lease = held();
        let Due::Nothing { early, late } = lease.due(at(0), 0) else { panic!("nothing is due") };
        assert_eq!(late, at(0) + TTL / 3);
        assert!(early < late);
        assert_eq!(lease.due(at(3_334), 0), Due::Renew);
        lease.asking();
        assert_eq!(lease.due(at(3_334), 0), Due::Nothing { early: lease.deadline(), late: lease.deadline() });
        lease.unanswered(at(5_000));
        assert_eq!(lease.due(at(5_000), 0), Due::Nothing { early: at(5_625), late: at(5_625) });
        assert_eq!(lease.due(at(5_625), 0), Due::Renew);
        assert_eq!(lease.due(at(9_898), 0), Due::Lost(LossReason::Expired));
    }

    #[test]
    fn without_renewal_only_the_deadline_is_due() {
        let mut lease = Lease::new(at(0), TTL, false);
        assert_eq!(lease.due(at(5_000), 0), Due::Nothing { early: at(9_898), late: at(9_898) });
        assert_eq!(lease.due(at(9_898), 0), Due::Lost(LossReason::Expired));
    }
}
