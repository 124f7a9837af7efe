//! Strays: claims in line that their client does not know, under a lease that it keeps alive.
//!
//! A network may deliver a question twice. If the copy of an enter arrives after the claim was left, it puts the claim's
//! key back. Nobody uses that claim or gives it back, and the lock would be blocked for as long as the client renews
//! anything: all its claims share a lease. A mark that the claim was left would prevent it, and would cost every release
//! a second write, and history.
//!
//! So a client lists the keys of its shared leases once in a ttl, and takes out those that belong to no claim it
//! knows. A stray blocks its lock for about a ttl, as on stores where each claim has a lease of its own. A client that has
//! forgotten no claim lately lists nothing.
//!
//! No claim that is in use can be taken out. It is known before its question is sent, and until it was left or found to
//! be gone. A key is read first, then its claim is looked for, and the key is deleted only if it is still the one that was
//! read. Nobody else puts claims under this client's shared leases: a claim that may go to another client has a lease
//! of its own.

use std::time::Duration;

use super::{
    proto::{LeaseTimeToLiveRequest, RangeRequest, TxnRequest},
    store::EtcdStore,
};
use crate::{backend::Failure, backends::shared::order::count, clock::Moment};

/// Very many keys are listed less often: a listing of 10,000 costs the server about 4 ms.
const PER_KEY: Duration = Duration::from_millis(1);

/// When the keys of a lease are listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing {
    next: Moment,
    /// When the last listing began that was answered.
    last: Moment,
}

impl Listing {
    /// A lease that was granted now has no keys.
    pub(super) fn new(now: Moment, ttl: Duration) -> Self {
        Self { next: now + ttl, last: now }
    }

    /// When to see whether it has to be listed.
    pub(super) fn due(self) -> Moment {
        self.next
    }

    /// Says whether to list it now: it is time to, and a copy may have arrived since the last time.
    pub(super) fn begins(&mut self, now: Moment, ttl: Duration, copies_until: Option<Moment>) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + ttl;
        copies_until.is_some_and(|until| self.last < until)
    }

    /// It was listed, with so many keys.
    pub(super) fn ended(&mut self, began: Moment, ttl: Duration, keys: usize) {
        (self.last, self.next) = (began, began + ttl.max(PER_KEY * count(keys)));
    }
}

impl EtcdStore {
    /// Lists the keys of a lease, and deletes those that belong to no claim of this client.
    pub(super) async fn take_out_strays(&self, lease: i64) -> Result<(), Failure> {
        let began = self.clock.now();
        let answer = self.link.ask(LeaseTimeToLiveRequest { id: lease, keys: true }).await?.answer;
        if answer.ttl < 0 {
            self.leases.forget(lease);
            return Ok(());
        }
        let keys = answer.keys.len();
        for key in answer.keys {
            self.take_out_stray(lease, key).await?;
        }
        self.leases.listed(lease, began, keys);
        Ok(())
    }

    async fn take_out_stray(&self, lease: i64, key: Vec<u8>) -> Result<(), Failure> {
        // What belongs to no lock blocks none.
        let Some((name, _)) = self.space.name(&key) else { return Ok(()) };
        if self.claims().knows(&name, &key, None) {
            return Ok(());
        }
        let kvs = self.link.ask(RangeRequest::one(key)).await?.answer.kvs;
        for found in self.space.contenders(&name, kvs) {
            // After it was read: the key may be used for another claim by now.
            let is_known = self.claims().knows(&name, &found.key, Some(found.id));
            if !is_known && found.lease == lease {
                self.link.ask(TxnRequest::delete_created_at(found.key, found.created)).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> Moment {
        Moment::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_listed_once_in_a_ttl_while_copies_may_arrive() {
        let mut listing = Listing::new(at(0), TTL);
        let until = Some(at(20));
        assert!(!listing.begins(at(8), TTL, until));
        assert!(listing.begins(at(9), TTL, until));
        // Not answered yet.
        assert!(!listing.begins(at(10), TTL, until));
        listing.ended(at(9), TTL, 3);
        assert_eq!(listing.due(), at(18));
        assert!(listing.begins(at(18), TTL, until));
        listing.ended(at(18), TTL, 3);
        // The last copy may have arrived after that.
        assert!(listing.begins(at(27), TTL, until));
        listing.ended(at(27), TTL, 3);
        assert!(!listing.begins(at(36), TTL, until));
        // Another claim was forgotten.
        assert!(listing.begins(at(45), TTL, Some(at(300))));
    }

    #[test]
    fn a_listing_without_an_answer_is_repeated_even_if_no_copy_may_arrive_any_more() {
        let mut listing = Listing::new(at(0), TTL);
        assert!(listing.begins(at(9), TTL, Some(at(5))));
        assert!(listing.begins(at(18), TTL, Some(at(5))));
    }

    #[test]
    fn a_client_that_forgot_no_claim_lists_nothing() {
        let mut listing = Listing::new(at(0), TTL);
        assert!(!listing.begins(at(9), TTL, None));
        assert_eq!(listing.due(), at(18));
    }

    #[test]
    fn very_many_keys_are_listed_less_often() {
        let mut listing = Listing::new(at(0), TTL);
        listing.ended(at(9), TTL, 1_000);
        assert_eq!(listing.due(), at(18));
        listing.ended(at(9), TTL, 20_000);
        assert_eq!(listing.due(), at(29));
    }
}
