//! Claims that wait as they did, seen from a few keys instead of their whole lines.

use std::{collections::HashMap, sync::Arc};

use futures_util::future::join_all;

use super::{
    hearing::Confirmed,
    proto::{KeyValue, RangeRequest, TxnRequest, revision},
    store::EtcdStore,
    view::{LINES, kvs},
};
use crate::{
    backend::{Claim, Failure},
    model::name::Name,
};

/// What was found of the keys of one claim, and at which revision.
type Found = (Vec<KeyValue>, i64);

impl EtcdStore {
    /// Finds out which of the claims wait as they did, of those of which nothing is known yet.
    pub(super) async fn look_for_unmoved(
        &self,
        claims: &[Arc<Claim>],
        confirmed: &mut [Confirmed],
    ) -> Result<(), Failure> {
        let asked = self.asked_of_unmoved(claims, confirmed);
        if asked.is_empty() {
            return Ok(());
        }
        let before = self.epochs.before();
        let found = self.find(asked).await?;
        let at = found.values().map(|(_, at)| *at).min().unwrap_or(before);
        if self.epochs.saw(before, at) {
            // Revisions went back: what was known of these claims is of another life of the cluster.
            return Ok(());
        }
        let mut own = self.claims();
        for (index, (found, at)) in found {
            confirmed[index] = own.unmoved(&claims[index], &found, at);
        }
        Ok(())
    }

    /// What to read, each time with the number of the claim that it is for.
    fn asked_of_unmoved(&self, claims: &[Arc<Claim>], confirmed: &[Confirmed]) -> Vec<(usize, RangeRequest)> {
        let unknown = || claims.iter().enumerate().filter(|(index, _)| confirmed[*index].is_none());
        let mut of_line: HashMap<&Name, u32> = HashMap::new();
        for (_, claim) in unknown() {
            *of_line.entry(&claim.name).or_default() += 1;
        }
        let own = self.claims();
        // Of a line with several claims of this client one reading answers for all.
        let alone = unknown().filter(|(_, claim)| of_line[&claim.name] == 1);
        let asked = alone.filter_map(|(index, claim)| Some((index, own.unmoved_if(claim)?)));
        asked.flat_map(|(index, keys)| keys.into_iter().map(move |key| (index, key))).collect()
    }

    async fn find(&self, asked: Vec<(usize, RangeRequest)>) -> Result<HashMap<usize, Found>, Failure> {
        let answers = asked.chunks(LINES).map(async |some| {
            let success = some.iter().map(|(_, range)| range.clone().into()).collect();
            let answer = self.link.ask(TxnRequest { success, ..TxnRequest::default() }).await?.answer;
            let at = revision(answer.header.as_ref());
            if answer.responses.len() != some.len() {
                return Err(Failure::unknown("the server answered another question"));
            }
            Ok((some, answer.responses, at))
        });
        let mut all: HashMap<usize, Found> = HashMap::new();
        for answer in join_all(answers).await {
            let (some, responses, at) = answer?;
            for ((index, _), response) in some.iter().zip(responses) {
                // Of several answers the earliest: what is there later was there then, if it is as old.
                let found = all.entry(*index).or_insert((Vec::new(), at));
                found.0.extend(kvs(vec![response]));
                found.1 = found.1.min(at);
            }
        }
        Ok(all)
    }
}
