//! How often the store is asked. Pure.
//!
//! Watching must not hurt: a look at everything goes through the whole database of some stores. All looks together take
//! at most a fiftieth of the time, measured by how long the store took for them.

use std::time::Duration;

/// Of the time, looks at everything take at most one part in this many, and looks at names one in as many as
/// [`NAMES_SHARE`]: 1.5 % and 0.5 %.
const ALL_SHARE: u32 = 67;
const NAMES_SHARE: u32 = 200;

/// However fast the store is, it is not asked more often.
const LEAST: Duration = Duration::from_millis(500);
/// However slow a look at names was, it is not later than this: their number is bounded, so what took the time is the
/// way to the store and not its work.
const MOST_NAMES: Duration = Duration::from_secs(2);
/// The least time between looks at names that are known to have changed.
const LEAST_TOLD: Duration = Duration::from_millis(100);
/// How soon a store is asked again that did not answer.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// If the store tells of changes, everything is looked at this often, in case that it missed one.
const TOLD_ALL: Duration = Duration::from_secs(30);

/// When to ask.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// What the user wants for looks at everything.
    pub(crate) interval: Option<Duration>,
}

impl Pace {
    /// The pause after a look at everything that took this long.
    pub(crate) fn after_all(self, took: Duration) -> Duration {
        self.interval.unwrap_or((took * ALL_SHARE).max(LEAST))
    }

    /// The further pause while the store tells of changes and did not miss any.
    pub(crate) fn while_told(self, pause: Duration) -> Duration {
        if self.interval.is_some() { Duration::ZERO } else { TOLD_ALL.saturating_sub(pause) }
    }

    /// The pause after a look at some names that took this long.
    pub(crate) fn after_names(self, took: Duration, has_changed: bool) -> Duration {
        let least = if has_changed { LEAST_TOLD } else { LEAST };
        (took * NAMES_SHARE).clamp(least, MOST_NAMES)
    }

    /// The pause after a look that failed.
    pub(crate) fn after_error(self) -> Duration {
        AFTER_ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn looks_take_at_most_a_fiftieth_of_the_time() {
        let pace = Pace::default();
        for took in [10, 50, 300, 5_000].map(|ms| ms * MS) {
            let share = took.as_secs_f64() / (took + pace.after_all(took)).as_secs_f64();
            assert!(share <= 0.02, "{took:?}: {share}");
        }
        for took in [1, 3, 9].map(|ms| ms * MS) {
            assert!(pace.after_names(took, true) >= took * NAMES_SHARE, "{took:?}");
        }
    }

    #[test]
    fn a_fast_store_is_not_asked_all_the_time() {
        let pace = Pace::default();
        assert_eq!(pace.after_all(MS / 10), LEAST);
        assert_eq!(pace.after_names(MS / 10, false), LEAST);
        assert_eq!(pace.after_names(MS / 10, true), LEAST_TOLD);
    }

    #[test]
    fn a_store_far_away_is_still_asked_for_names() {
        assert_eq!(Pace::default().after_names(300 * MS, true), MOST_NAMES);
    }

    #[test]
    fn the_user_decides_and_a_store_that_tells_is_asked_seldom() {
        let pace = Pace { interval: Some(3 * MS) };
        assert_eq!((pace.after_all(1_000 * MS), pace.while_told(3 * MS)), (3 * MS, Duration::ZERO));
        assert_eq!(Pace::default().while_told(500 * MS), TOLD_ALL - 500 * MS);
        assert_eq!(Pace::default().while_told(2 * TOLD_ALL), Duration::ZERO);
    }
}
