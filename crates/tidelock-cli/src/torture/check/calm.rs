//! When no fault was near. Faults may delay anything for a while, so nothing is said about time around them.

use crate::torture::{history::History, record::Nanos};

/// How long after its end a fault may still be felt, beyond two leases: leases that are counted anew after an election,
/// sessions that the server ends late, pauses between attempts.
const RECOVERY: Nanos = 4_000_000_000;

/// The disturbed times, in order and apart from each other.
#[derive(Debug)]
pub(super) struct Calm(Vec<(Nanos, Nanos)>);

impl Calm {
    pub(super) fn new(history: &History) -> Self {
        let recovery = RECOVERY + 2 * history.plan.ttl;
        let mut times: Vec<_> = history
            .faults
            .iter()
            .map(|fault| (fault.began, fault.healed.unwrap_or(history.last).saturating_add(recovery)))
            .collect();
        times.sort_unstable();
        let mut disturbed: Vec<(Nanos, Nanos)> = Vec::new();
        for (from, to) in times {
            match disturbed.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => disturbed.push((from, to)),
            }
        }
        Self(disturbed)
    }

    /// Whether nothing disturbed this time.
    pub(super) fn covers(&self, from: Nanos, to: Nanos) -> bool {
        let after = self.0.partition_point(|(began, _)| *began <= to);
        after == 0 || self.0[after - 1].1 < from
    }

    /// Since when it was calm at a moment; `None` if it was not.
    pub(super) fn since(&self, at: Nanos) -> Option<Nanos> {
        let after = self.0.partition_point(|(began, _)| *began <= at);
        match after.checked_sub(1).map(|last| self.0[last].1) {
            None => Some(0),
            Some(ended) if ended < at => Some(ended),
            Some(_) => None,
        }
    }

    /// How much of a time was calm.
    pub(super) fn within(&self, from: Nanos, to: Nanos) -> Nanos {
        let disturbed: Nanos =
            self.0.iter().map(|(began, ended)| (*ended).min(to).saturating_sub((*began).max(from))).sum();
        to.saturating_sub(from).saturating_sub(disturbed)
    }
}
