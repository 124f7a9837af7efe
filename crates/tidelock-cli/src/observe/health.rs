//! How the store answers: errors, and how long looks take.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::clock::Moment;

/// How many of the latest looks count for the round-trip times.
const SAMPLES: usize = 64;

/// How the store answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// Why the latest look failed, if it did.
    pub(crate) error: Option<Arc<str>>,
    /// Since when it is so; nothing before the first look.
    pub(crate) since: Option<Moment>,
    /// How many looks failed since the start.
    pub(crate) errors: u64,
    /// Whether the store tells of changes at this time.
    pub(crate) tells: bool,
    /// How many times the store's clock was seen to jump.
    pub(crate) jumps: u64,
    /// When it was last seen to.
    pub(crate) jumped: Option<Moment>,
    /// The latest look at everything, how long it took, and the pause after it.
    pub(crate) all: Option<All>,
    /// How long the latest looks at some names took.
    round_trips: VecDeque<Duration>,
}

/// A look at everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct All {
    pub(crate) at: Moment,
    pub(crate) took: Duration,
    pub(crate) pause: Duration,
}

impl Health {
    /// Whether the store answered the latest look.
    pub(crate) fn is_well(&self) -> bool {
        self.since.is_some() && self.error.is_none()
    }

    /// Median and longest time of the latest looks at some names.
    pub(crate) fn round_trip(&self) -> Option<(Duration, Duration)> {
        let mut times: Vec<_> = self.round_trips.iter().copied().collect();
        times.sort_unstable();
        Some((*times.get(times.len() / 2)?, *times.last()?))
    }

    pub(super) fn took(&mut self, time: Duration) {
        self.round_trips.push_back(time);
        if self.round_trips.len() > SAMPLES {
            self.round_trips.pop_front();
        }
    }

    /// The store's clock was seen to jump.
    pub(super) fn clock_jumped(&mut self, now: Moment) {
        self.jumps += 1;
        self.jumped = Some(now);
    }

    /// The store answered. Says whether that is news.
    pub(super) fn answered(&mut self, now: Moment) -> bool {
        let is_news = !self.is_well();
        if is_news {
            (self.error, self.since) = (None, Some(now));
        }
        is_news
    }

    /// The store did not answer. Says whether that is news.
    pub(super) fn failed(&mut self, now: Moment, error: &str) -> bool {
        self.errors += 1;
        let is_news = self.error.is_none();
        if is_news {
            self.since = Some(now);
        }
        if self.error.as_deref() != Some(error) {
            self.error = Some(error.into());
            return true;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_once_and_so_is_its_end() {
        let (mut health, now) = (Health::default(), Moment::from_nanos(5));
        assert!(!health.is_well() && health.round_trip().is_none());
        assert!(health.answered(now) && health.is_well());
        assert!(!health.answered(now.plus(Duration::from_secs(1))));
        assert_eq!(health.since, Some(now));
        assert!(health.failed(now, "down") && !health.failed(now, "down") && health.failed(now, "denied"));
        assert_eq!(health.errors, 3);
        assert!(health.answered(now));
    }

    #[test]
    fn round_trips_are_those_of_the_latest_looks() {
        let mut health = Health::default();
        (0..1_000).for_each(|ms| health.took(Duration::from_millis(ms)));
        assert_eq!(health.round_trip(), Some((Duration::from_millis(968), Duration::from_millis(999))));
    }
}
