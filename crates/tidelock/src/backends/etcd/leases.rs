//! Leases: one for each client and ttl, shared by all claims, and those that belong to one claim.
//!
//! A claim lives from when it was asked for, but a lease that was there before is older than that. So a lease is
//! used for a claim only if it was last confirmed so lately that all of the claim's ttl is left of it; else it is
//! kept alive once more, together with the question. From ten seconds on a lease is given one second more than
//! the ttl, so that this happens once in a second at most, however many claims there are.
//!
//! What is kept alive is looked at from time to time: see `strays`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    codec::has_own_lease,
    link::{Link, Missed},
    proto::{LeaseGrantRequest, LeaseRevokeRequest},
    strays::Listing,
};
use crate::{
    backend::{Claim, Failure},
    backends::shared::{
        mutex::lock,
        units::{natural, natural_or_most},
    },
    clock::{Clock, Moment},
};

/// Leases at least so long are given a second more.
const LONG: u64 = 10;

#[derive(Debug)]
pub(super) struct Leases {
    link: Arc<Link>,
    clock: Clock,
    known: Mutex<Known>,
    granting: tokio::sync::Mutex<()>,
    /// Told when there is a lease whose keys have to be listed later.
    stirred: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Known {
    /// The lease that claims with a ttl share.
    shared: HashMap<Duration, i64>,
    leases: HashMap<i64, Lease>,
}

#[derive(Clone, Debug)]
struct Lease {
    /// What the server gave.
    ttl: Duration,
    /// When the last question was asked that it answered with yes.
    confirmed: Moment,
    /// One question at a time: the others are answered by it, too.
    asking: Arc<tokio::sync::Mutex<()>>,
    listing: Listing,
}

impl Leases {
    pub(super) fn new(link: Arc<Link>, clock: Clock, stirred: Arc<Notify>) -> Self {
        Self { link, clock, known: Mutex::default(), granting: tokio::sync::Mutex::default(), stirred }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// The lease that a claim may share, if it is there and not nearly over.
    pub(super) fn at_hand(&self, claim: &Claim) -> Option<i64> {
        if has_own_lease(claim) {
            return None;
        }
        let known = self.known();
        let id = *known.shared.get(&claim.ttl)?;
        let lease = known.leases.get(&id)?;
        (self.clock.now().since(lease.confirmed) < lease.ttl / 2).then_some(id)
    }

    /// The lease for a claim, granted if there is none.
    pub(super) async fn for_claim(&self, claim: &Claim) -> Result<i64, Failure> {
        if has_own_lease(claim) {
            return self.grant(claim.ttl).await;
        }
        if let Some(id) = self.at_hand(claim) {
            return Ok(id);
        }
        let _alone = self.granting.lock().await;
        if let Some(id) = self.at_hand(claim) {
            return Ok(id);
        }
        let old = self.known().shared.get(&claim.ttl).copied();
        if let Some(id) = old
            && self.keep(id, claim.ttl).await?
        {
            return Ok(id);
        }
        let id = self.grant(claim.ttl).await?;
        self.known().shared.insert(claim.ttl, id);
        self.stirred.notify_one();
        Ok(id)
    }

    /// Grants a lease that nobody shares yet.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<i64, Failure> {
        let asked = self.clock.now();
        let answer = self.link.ask(LeaseGrantRequest { ttl: seconds(ttl) }).await?.answer;
        let granted = Duration::from_secs(natural(answer.ttl));
        if granted < ttl || answer.id == 0 {
            return Err(Failure::denied(format!(
                "it gave a lease of {granted:?} instead of {ttl:?} {}",
                answer.error
            )));
        }
        let listing = Listing::new(asked, granted);
        let lease = Lease { ttl: granted, confirmed: asked, asking: Arc::default(), listing };
        self.known().leases.insert(answer.id, lease);
        Ok(answer.id)
    }

    /// Whether all of a ttl is left of a lease.
    pub(super) fn is_fresh(&self, id: i64, ttl: Duration) -> bool {
        let now = self.clock.now();
        self.known().leases.get(&id).is_some_and(|lease| now.since(lease.confirmed) + ttl <= lease.ttl)
    }

    /// Sees to it that all of a ttl is left of a lease, from now on. Says whether the lease is there.
    pub(super) async fn keep(&self, id: i64, ttl: Duration) -> Result<bool, Failure> {
        let began = self.clock.now();
        let asking = self.known().leases.get(&id).map(|lease| Arc::clone(&lease.asking));
        let Some(asking) = asking else {
            return Ok(self.keep_alive(id).await?.is_some_and(|granted| granted >= ttl));
        };
        let _alone = asking.lock().await;
        let lease = self.known().leases.get(&id).cloned();
        let Some(lease) = lease else { return Ok(false) };
        if lease.confirmed >= began || self.is_fresh(id, ttl) {
            return Ok(true);
        }
        let asked = self.clock.now();
        let granted = self.keep_alive(id).await?.filter(|granted| *granted >= ttl);
        let mut known = self.known();
        match (granted, known.leases.get_mut(&id)) {
            (Some(granted), Some(lease)) => (lease.ttl, lease.confirmed) = (granted, asked),
            (Some(_), None) => {}
            (None, _) => known.forget(id),
        }
        Ok(granted.is_some())
    }

    async fn keep_alive(&self, id: i64) -> Result<Option<Duration>, Failure> {
        match self.link.keep_alive(id).await {
            Ok(answer) => Ok(Some(natural(answer.ttl)).filter(|ttl| *ttl > 0).map(Duration::from_secs)),
            Err(Missed::Lease) => Ok(None),
            Err(missed) => Err(missed.into()),
        }
    }

    /// When the keys of a shared lease may have to be listed next. Those that belong to one claim are not renewed without
    /// it, so what else is under them ends in time.
    pub(super) fn listing_due(&self) -> Option<Moment> {
        let known = self.known();
        let shared = known.shared.values().filter_map(|id| known.leases.get(id));
        shared.map(|lease| lease.listing.due()).min()
    }

    /// Takes the shared leases whose keys have to be listed now, if copies of questions may arrive until then.
    pub(super) fn take_unlisted(&self, copies_until: Option<Moment>) -> Vec<i64> {
        let now = self.clock.now();
        let mut known = self.known();
        let Known { shared, leases } = &mut *known;
        let mut unlisted = Vec::new();
        for id in shared.values() {
            if let Some(lease) = leases.get_mut(id)
                && lease.listing.begins(now, lease.ttl, copies_until)
            {
                unlisted.push(*id);
            }
        }
        unlisted
    }

    /// The keys of a lease were listed, and none of them is a stray.
    pub(super) fn listed(&self, id: i64, began: Moment, keys: usize) {
        if let Some(lease) = self.known().leases.get_mut(&id) {
            lease.listing.ended(began, lease.ttl, keys);
        }
    }

    /// A lease is over.
    pub(super) fn forget(&self, id: i64) {
        self.known().forget(id);
    }

    /// Ends all leases of this client, and with them all its keys.
    pub(super) async fn revoke_all(&self) {
        let all: Vec<_> = self.known().leases.keys().copied().collect();
        for id in all {
            self.revoke(id).await;
        }
    }

    /// Ends a lease that nobody needs any more. If that fails it ends by itself.
    pub(super) async fn revoke(&self, id: i64) {
        self.forget(id);
        let _ = self.link.ask(LeaseRevokeRequest { id }).await;
    }
}

impl Known {
    fn forget(&mut self, id: i64) {
        self.leases.remove(&id);
        self.shared.retain(|_, shared| *shared != id);
    }
}

/// How long a lease to ask for: etcd counts whole seconds.
fn seconds(ttl: Duration) -> i64 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let spare = u64::from(whole >= LONG);
    natural_or_most(whole + spare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_the_ttl() {
        for (millis, given) in [(1, 1), (1_000, 1), (1_001, 2), (9_000, 9), (9_001, 11), (30_000, 31)] {
            assert_eq!(seconds(Duration::from_millis(millis)), given);
        }
    }
}
