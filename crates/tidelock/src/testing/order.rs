//! Watches a line from above: does anybody overtake, and does anybody stand there for nobody?

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{
    backend::{ClaimId, LockView},
    model::name::Name,
};

/// What was seen of the lines so far.
#[derive(Debug, Default)]
pub struct OrderWatch {
    lines: BTreeMap<Name, LineLog>,
    arrivals: u64,
}

/// What was seen of one line.
#[derive(Debug, Default)]
struct LineLog {
    /// When those who stand there now arrived.
    arrived: BTreeMap<ClaimId, u64>,
    /// Those who hold without a grant of their own.
    riders: BTreeSet<ClaimId>,
    largest_epoch: u64,
}

impl OrderWatch {
    /// Looks at a line after something happened to it.
    ///
    /// # Errors
    /// A sentence about who overtook whom.
    pub fn look(&mut self, view: &LockView) -> Result<(), String> {
        let seen = self.lines.entry(view.name.clone()).or_default();
        let all = || view.holders.iter().chain(&view.waiters);
        // A claim that left and came back stands at the end.
        let here: BTreeSet<ClaimId> = all().map(|claim| claim.id).collect();
        seen.arrived.retain(|id, _| here.contains(id));
        seen.riders.retain(|id| here.contains(id));
        for claim in all() {
            if let Entry::Vacant(newcomer) = seen.arrived.entry(claim.id) {
                self.arrivals += 1;
                newcomer.insert(self.arrivals);
                // On the hold of an owner that was there already: that is no new grant.
                if claim.epoch.is_some_and(|epoch| epoch <= seen.largest_epoch) {
                    seen.riders.insert(claim.id);
                }
            }
        }
        // Of those who hold together the first got the lock, and the others came along.
        for claim in &view.holders {
            let together = view.holders.iter().filter(|other| other.epoch == claim.epoch);
            let first = together.min_by_key(|other| seen.arrived.get(&other.id));
            if first.is_some_and(|first| first.id != claim.id) {
                seen.riders.insert(claim.id);
            }
        }
        let newest = view.holders.iter().filter_map(|claim| claim.epoch).max();
        seen.largest_epoch = seen.largest_epoch.max(newest.unwrap_or(0));
        let holders = view.holders.iter().filter(|claim| !seen.riders.contains(&claim.id));
        let holds = holders.max_by_key(|claim| seen.arrived.get(&claim.id));
        let waits = view.waiters.iter().min_by_key(|claim| seen.arrived.get(&claim.id));
        match (holds, waits) {
            (Some(holds), Some(waits)) if seen.arrived.get(&holds.id) > seen.arrived.get(&waits.id) => {
                Err(format!("{} overtook {} on {:?}", holds.id, waits.id, view.name))
            }
            _ => Ok(()),
        }
    }

    /// Forgets all: the store did.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        Name,
        backend::{Claim, ClaimView, ClientId, Share},
    };

    fn seen(serial: u64, epoch: Option<u64>) -> ClaimView {
        let claim = Claim {
            id: ClaimId::new(ClientId::from_u64(1), serial),
            name: Name::new("x").unwrap(),
            share: Share::Shared,
            owner: None,
            ttl: Duration::from_secs(1),
            label: Arc::from("test"),
            detached: false,
            writes: false,
            auto_renew: true,
        };
        ClaimView::new(&claim, epoch, Duration::ZERO, Duration::ZERO)
    }

    fn view(holders: Vec<ClaimView>, waiters: Vec<ClaimView>) -> LockView {
        let mut view = LockView::new(Name::new("x").unwrap(), None, 0);
        view.holders = holders;
        view.waiters = waiters;
        view
    }

    #[test]
    fn a_newcomer_that_holds_before_one_that_waits_is_found() {
        let mut watch = OrderWatch::default();
        watch.look(&view(vec![seen(1, Some(1))], vec![seen(2, None)])).unwrap();
        watch.look(&view(vec![seen(2, Some(2))], vec![])).unwrap();
        watch.look(&view(vec![seen(2, Some(2))], vec![seen(3, None)])).unwrap();
        assert!(watch.look(&view(vec![seen(2, Some(2)), seen(4, Some(3))], vec![seen(3, None)])).is_err());
    }

    #[test]
    fn a_rider_overtakes_nobody() {
        let mut watch = OrderWatch::default();
        watch.look(&view(vec![seen(1, Some(1))], vec![seen(2, None)])).unwrap();
        watch.look(&view(vec![seen(1, Some(1)), seen(3, Some(1))], vec![seen(2, None)])).unwrap();
    }
}
