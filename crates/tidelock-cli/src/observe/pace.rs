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
/// However slow a look at names was, the next is not later than this: their number is bounded, so what took the time is
/// the way to the store and not its work. What changed is to be seen within 2 s.
const MOST_NAMES: Duration = Duration::from_millis(500);
/// The least and the longest time between looks at names that are known to have changed and are new or on a screen,
/// also if one of them changes all the time. Mostly they are few.
const LEAST_TOLD: Duration = Duration::from_millis(150);
const MOST_TOLD: Duration = Duration::from_millis(300);
/// How often others are looked at that are known to have changed: most of them were renewed.
const LATER: Duration = Duration::from_millis(500);
/// If the store tells of changes, names on screens that did not change are looked at this often.
const TOLD_FOCUS: Duration = Duration::from_secs(2);
/// How many names are looked at together follows from how long that takes: some milliseconds.
const SHORT_LOOK: Duration = Duration::from_micros(2_500);
const LONG_LOOK: Duration = Duration::from_millis(10);
const FEWEST_NAMES: usize = 64;
const MOST_TOGETHER: usize = 2_048;
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
        let (least, most) = if has_changed { (LEAST_TOLD, MOST_TOLD) } else { (LEAST, MOST_NAMES) };
        (took * NAMES_SHARE).clamp(least, most)
    }

    /// How many names are looked at together after so many, of which some took this long.
    pub(crate) fn names_after(self, most: usize, asked: usize, took: Duration) -> usize {
        if took > LONG_LOOK {
            (most / 2).max(FEWEST_NAMES)
        } else if took < SHORT_LOOK && asked >= most {
            (most * 2).min(MOST_TOGETHER)
        } else {
            most
        }
    }

    /// How often names are looked at that changed and are neither new nor on a screen.
    pub(crate) fn later(self) -> Duration {
        LATER
    }

    /// How often names on screens are looked at while the store tells of changes.
    pub(crate) fn focus_while_told(self) -> Duration {
        TOLD_FOCUS
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
        for took in [0, 1, 2].map(|ms| ms * MS) {
            assert!(pace.after_names(took, false) >= took * NAMES_SHARE, "{took:?}");
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
    fn as_many_names_are_looked_at_together_as_take_some_milliseconds() {
        let pace = Pace::default();
        assert_eq!(pace.names_after(256, 256, MS), 512);
        assert_eq!(pace.names_after(256, 30, MS), 256, "few were asked for");
        assert_eq!(pace.names_after(256, 256, 5 * MS), 256);
        assert_eq!(pace.names_after(256, 256, 50 * MS), 128);
        assert_eq!((pace.names_after(64, 64, 50 * MS), pace.names_after(2_048, 2_048, MS)), (64, 2_048));
    }

    #[test]
    fn a_store_far_away_is_still_asked_for_names() {
        assert_eq!(Pace::default().after_names(300 * MS, false), MOST_NAMES);
        assert_eq!(Pace::default().after_names(300 * MS, true), MOST_TOLD);
    }

    #[test]
    fn the_user_decides_and_a_store_that_tells_is_asked_seldom() {
        let pace = Pace { interval: Some(3 * MS) };
        assert_eq!((pace.after_all(1_000 * MS), pace.while_told(3 * MS)), (3 * MS, Duration::ZERO));
        assert_eq!(Pace::default().while_told(500 * MS), TOLD_ALL - 500 * MS);
        assert_eq!(Pace::default().while_told(2 * TOLD_ALL), Duration::ZERO);
    }
}
