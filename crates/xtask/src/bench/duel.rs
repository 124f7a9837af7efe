//! Rounds in which two contestants take turns.

use std::time::Duration;

use serde::Serialize;

use super::Effort;
use crate::progress::Progress;

/// The middle and the ends of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of at least one number.
    pub(super) fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let (min, max) = match (numbers.first(), numbers.last()) {
            (Some(min), Some(max)) => (*min, *max),
            _ => (f64::NAN, f64::NAN),
        };
        let middle = numbers.len() / 2;
        let median = match numbers.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => numbers[middle],
            _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
        };
        Self { median, min, max }
    }
}

/// What two contestants took for one operation, round by round.
#[derive(Clone, Debug, Default)]
pub(super) struct Duel {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Duel {
    /// Lets both take turns of about the same length. A contestant is told how many operations
    /// to do, and says what they took together.
    pub(super) fn fight(
        label: &str,
        effort: Effort,
        progress: &Progress,
        mut first: impl FnMut(u32) -> Result<Duration, String>,
        mut second: impl FnMut(u32) -> Result<Duration, String>,
    ) -> Result<Self, String> {
        progress.show(&format!("{label}: how many in a turn?"));
        let (n, m) = (in_a_turn(effort.turn, &mut first)?, in_a_turn(effort.turn, &mut second)?);
        Self::rounds(
            label,
            effort.rounds,
            progress,
            || Ok(first(n)?.as_secs_f64() / f64::from(n)),
            || Ok(second(m)?.as_secs_f64() / f64::from(m)),
        )
    }

    /// Lets both take turns. A turn says how many seconds it took for one operation.
    pub(super) fn rounds(
        label: &str,
        rounds: usize,
        progress: &Progress,
        mut first: impl FnMut() -> Result<f64, String>,
        mut second: impl FnMut() -> Result<f64, String>,
    ) -> Result<Self, String> {
        let mut duel = Self::default();
        // The first round only warms up caches, allocators and the clock of the processor.
        for round in 0..=rounds {
            progress.show(&format!("{label}: round {round} of {rounds}"));
            // Whoever comes second finds the processor hotter, so they change places.
            let (a, b) = if round % 2 == 0 {
                let a = first()?;
                (a, second()?)
            } else {
                let b = second()?;
                (first()?, b)
            };
            if round > 0 {
                duel.first.push(a);
                duel.second.push(b);
            }
        }
        Ok(duel)
    }

    /// Seconds per operation of the first.
    pub(super) fn first(&self) -> Spread {
        Spread::of(self.first.clone())
    }

    /// Seconds per operation of the second.
    pub(super) fn second(&self) -> Spread {
        Spread::of(self.second.clone())
    }

    /// How many times as long the first took.
    pub(super) fn cost(&self) -> Spread {
        Spread::of(self.first.iter().zip(&self.second).map(|(first, second)| first / second).collect())
    }

    /// How many times as much the first did in the same time.
    pub(super) fn throughput(&self) -> Spread {
        Spread::of(self.first.iter().zip(&self.second).map(|(first, second)| second / first).collect())
    }
}

/// How many operations of a contestant fill a turn.
fn in_a_turn(turn: Duration, work: &mut impl FnMut(u32) -> Result<Duration, String>) -> Result<u32, String> {
    let mut n = 1_024;
    while n < u32::MAX / 2 && work(n)? < turn {
        n *= 2;
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0]).median, 2.5);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The first turn is the warm-up.
        let mut turns = [1.0, 2.0, 40.0, 100.0].into_iter();
        let first = || turns.next().ok_or_else(|| "over".to_owned());
        let duel = Duel::rounds("test", 3, &Progress::new(), first, || Ok(20.0)).unwrap();
        assert_eq!(duel.first().min, 2.0);
        assert_eq!(duel.cost(), Spread { median: 2.0, min: 0.1, max: 5.0 });
        assert_eq!(duel.throughput().median, 0.5);
    }

    #[test]
    fn a_turn_is_filled_by_as_many_operations_as_it_takes() {
        let n = in_a_turn(Duration::from_millis(10), &mut |n| Ok(Duration::from_micros(1) * n));
        assert_eq!(n, Ok(16_384));
    }
}
