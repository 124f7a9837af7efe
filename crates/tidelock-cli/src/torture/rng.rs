//! Random numbers that a seed repeats.

use std::time::Duration;

/// A small generator (splitmix64): good enough to choose faults, and the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// The generator of a seed and of a purpose, so that purposes do not disturb each other.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ 0x6a09_e667_f3bc_c908);
        let seed = rng.bits() ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(seed)
    }

    /// Goes another way than other generators that were the same until now.
    pub(super) fn fork(&mut self, way: u64) {
        *self = Self::new(self.bits(), way);
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; zero if there is none.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.bits() % end }
    }

    /// A number of `from..=to`.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// Whether something happens that happens in so many of a thousand cases.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of several.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }

    /// A time of `from..=to` milliseconds.
    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// This time, times something between the two percentages.
    pub(super) fn around(&mut self, time: Duration, from: u32, to: u32) -> Duration {
        let percent = self.between(u64::from(from), u64::from(to));
        time * u32::try_from(percent).unwrap_or(to) / 100
    }
}
