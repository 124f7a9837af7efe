//! The middle and the ends of what was measured.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    /// A quarter of the rounds was below the first, and a quarter above the second.
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Of at least one number.
    pub(super) fn of(mut numbers: Vec<f64>) -> Option<Self> {
        numbers.sort_by(f64::total_cmp);
        let at = |part: f64| numbers.get(((numbers.len() - 1) as f64 * part).round() as usize).copied();
        (!numbers.is_empty()).then(|| Some(Self { median: at(0.5)?, low: at(0.25)?, high: at(0.75)? }))?
    }

    /// Of ratios that were taken round by round.
    pub(super) fn of_ratios(first: &[f64], second: &[f64]) -> Option<Self> {
        Self::of(first.iter().zip(second).map(|(first, second)| first / second).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_outliers_do_not_count() {
        let spread = Spread::of(vec![5.0, 1.0, 900.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, low: 2.0, high: 5.0 });
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let spread = Spread::of_ratios(&[2.0, 20.0, 200.0], &[1.0, 10.0, 100.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.0, low: 2.0, high: 2.0 });
    }
}
