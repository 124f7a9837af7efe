//! Grants, places in line and views, from the numbers that scripts, functions and procedures answer.

use super::units::{count, from_micros, natural};
use crate::{
    backend::{ClaimView, Grant, LockView, Place, Share},
    model::name::Name,
};

/// A claim holds with this epoch, for so many microseconds, while others wait.
pub(crate) fn grant(epoch: i64, ttl: i64, waiting: i64) -> Grant {
    Grant::new(natural(epoch), from_micros(ttl), count(waiting))
}

/// A claim waits behind others. The first of those ahead lapses in so many microseconds; a negative number if none does.
pub(crate) fn place(ahead: i64, lapse_in: i64) -> Place {
    Place { ahead: count(ahead), lapse_in: (lapse_in >= 0).then(|| from_micros(lapse_in)) }
}

/// Adds a claim to the view of its lock. The claims of a lock come one after the other, in order.
pub(crate) fn add_to_views(
    views: &mut Vec<LockView>,
    name: &Name,
    last_epoch: u64,
    share: Share,
    claim: ClaimView,
) {
    if views.last().is_none_or(|view| view.name != *name) {
        views.push(LockView::new(name.clone(), None, last_epoch));
    }
    if let Some(view) = views.last_mut() {
        view.capacity = view.capacity.or(share.capacity());
        if claim.epoch.is_some() { view.holders.push(claim) } else { view.waiters.push(claim) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::{Capacity, Claim, ClaimId};

    #[test]
    fn numbers_become_grants_and_places() {
        let granted = Grant::new(17, Duration::from_secs(30), 2);
        assert_eq!(grant(17, 30_000_000, 2), granted);
        assert_eq!(place(3, 5), Place { ahead: 3, lapse_in: Some(Duration::from_micros(5)) });
        assert_eq!(place(3, -1), Place { ahead: 3, lapse_in: None });
    }

    #[test]
    fn the_claims_of_a_lock_are_one_view() {
        let mut views = Vec::new();
        let share = Share::Permits { n: 1, of: 5 };
        for (name, epoch) in [("a", Some(7)), ("a", None), ("b", None)] {
            let name = Name::new(name).unwrap();
            let claim = Claim {
                id: ClaimId::from_u128(1),
                name: name.clone(),
                share,
                owner: None,
                ttl: Duration::from_secs(1),
                label: "".into(),
                detached: false,
                writes: false,
                auto_renew: true,
            };
            let claim = ClaimView::new(&claim, epoch, Duration::ZERO, Duration::ZERO);
            add_to_views(&mut views, &name, 9, share, claim);
        }
        let seen: Vec<_> =
            views.iter().map(|view| (view.name.as_str(), view.holders.len(), view.waiters.len())).collect();
        assert_eq!(seen, [("a", 1, 1), ("b", 0, 1)]);
        assert_eq!((views[0].capacity, views[0].epoch), (Some(Capacity::Of(5)), 9));
    }
}
