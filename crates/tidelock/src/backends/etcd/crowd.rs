//! Very many claims that wait: of the line of each, two keys are read instead of all.
//!
//! Nobody comes ahead of a claim later, and an exclusive claim without an owner waits while anybody is ahead. So if its
//! own key and that of the claim directly ahead are there, it waits; whatever else happened in the line, the stream of
//! watches tells. Where one of the two is gone, the line is read as ever.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    claims::Behind,
    hearing::Confirmed,
    proto::{KeyValue, RequestOp, TxnRequest, revision},
    store::EtcdStore,
};
use crate::{
    backend::{Claim, Failure, Place, Standing},
    backends::shared::order::count,
};

/// The lines of so few are read as a whole: then it is known how many are ahead.
const FEW: usize = 32;
/// Of how many claims one transaction reads both keys; a server takes 128 operations unless it was told otherwise.
const TOGETHER: usize = 50;

impl EtcdStore {
    /// Finds out for as many of the claims as possible of which nothing is known yet that they wait.
    pub(super) async fn look_ahead(
        &self,
        claims: &[Arc<Claim>],
        known: &mut [Confirmed],
    ) -> Result<(), Failure> {
        let behind: Vec<(usize, Behind)> = {
            let own = self.claims();
            let unknown = claims.iter().enumerate().filter(|(index, _)| known[*index].is_none());
            unknown.filter_map(|(index, claim)| Some((index, own.behind(claim)?))).collect()
        };
        if behind.len() <= FEW {
            return Ok(());
        }
        let before = self.epochs.before();
        let reads = join_all(behind.chunks(TOGETHER).map(|some| self.read_both(some))).await;
        let reads = reads.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let at = reads.iter().map(|(at, _)| *at).min().unwrap_or(before);
        if self.epochs.saw(before, at) {
            // Revisions went back, or the read was late: that is found out with the lines.
            return Ok(());
        }
        let own = self.claims();
        let found = reads.into_iter().flat_map(|(_, found)| found);
        for ((index, behind), lease) in behind.iter().zip(found) {
            let claim = &claims[*index];
            // It may have been granted since: then this is older.
            if let Some(lease) = lease.filter(|_| own.waits(&claim.name, claim.id)) {
                let place = Place { ahead: count(behind.ahead), lapse_in: None };
                known[*index] = Some((Standing::Waiting(place), lease));
            }
        }
        Ok(())
    }

    /// Reads the keys of some claims and of those ahead. Says for each claim, if both are there, under which lease it is.
    async fn read_both(&self, some: &[(usize, Behind)]) -> Result<(i64, Vec<Option<i64>>), Failure> {
        let keys = some.iter().flat_map(|(_, behind)| [&behind.own.0, &behind.next.0]);
        let success = keys.map(|key| RequestOp::range(key.clone(), Vec::new())).collect();
        let answer = self.link.ask(TxnRequest { success, ..TxnRequest::default() }).await?.answer;
        if answer.responses.len() != 2 * some.len() {
            return Err(Failure::unknown("the server answered another question"));
        }
        let found = answer.responses.iter().map(|response| response.range.as_ref()?.kvs.first());
        let found: Vec<Option<&KeyValue>> = found.collect();
        let lease = |(behind, found): (&Behind, &[Option<&KeyValue>])| match found {
            [Some(own), Some(next)] => {
                let is_same = own.create_revision == behind.own.1 && next.create_revision == behind.next.1;
                is_same.then_some(own.lease)
            }
            _ => None,
        };
        let leases = some.iter().map(|(_, behind)| behind).zip(found.chunks(2)).map(lease).collect();
        Ok((revision(answer.header.as_ref()), leases))
    }
}
