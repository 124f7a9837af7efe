//! Renewing claims: first their leases, then a look at their lines, or at as much of them as will do.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::{order::order, store::EtcdStore};
use crate::backend::{Claim, Failure, Standing};

impl EtcdStore {
    /// Renews claims, and says how each of them stands.
    pub(super) async fn renew_all(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let mut leases: HashMap<i64, Duration> = HashMap::new();
        let mut others = Vec::new();
        {
            let own = self.claims();
            for claim in claims {
                match own.lease_of(claim) {
                    Some(lease) => longest(&mut leases, lease, claim.ttl),
                    None => others.push(claim),
                }
            }
        }
        // Left to us by somebody else: found by name.
        let read = self.read_lines(others.iter().map(|claim| &claim.name)).await?;
        for ((line, _), claim) in read.iter().zip(&others) {
            let found = line.iter().find(|other| other.id == claim.id);
            if let Some(lease) = found.map(|found| found.lease).filter(|lease| *lease != 0) {
                longest(&mut leases, lease, claim.ttl);
            }
        }
        if self.epochs.base().await?.1 {
            self.begin_anew().await;
        }
        // First the leases, then the keys: some servers confirm a lease that they just ended.
        let kept = join_all(leases.into_iter().map(async |(lease, ttl)| {
            let is_kept = self.leases.keep(lease, ttl).await?;
            Ok(is_kept.then_some(lease))
        }));
        let kept = kept.await.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let mut confirmed = self.hear_of(claims).await?;
        self.look_for_unmoved(claims, &mut confirmed).await?;
        let unknown = claims.iter().zip(&confirmed).filter(|(_, confirmed)| confirmed.is_none());
        let mut names: Vec<_> = unknown.map(|(claim, _)| &claim.name).collect();
        names.sort();
        names.dedup();
        let before = self.epochs.before();
        let mut lines = self.read_lines(names.iter().copied()).await?;
        let at = lines.iter().map(|(_, at)| *at).min().unwrap_or(before);
        // A read may be late. What raises the base is not, and says whether revisions went back.
        if self.epochs.saw(before, at) && self.epochs.base().await?.1 {
            self.begin_anew().await;
            lines = self.read_lines(names.iter().copied()).await?;
        }
        let lines: HashMap<_, _> = names
            .into_iter()
            .zip(lines)
            .map(|(name, (line, at))| {
                let order = order(&line);
                (name, (line, order, at))
            })
            .collect();
        let mut standings = Vec::with_capacity(claims.len());
        for (claim, confirmed) in claims.iter().zip(confirmed) {
            if let Some((standing, lease)) = confirmed {
                standings.push(if kept.contains(&Some(lease)) { standing } else { Standing::Gone });
                continue;
            }
            let Some((line, order, at)) = lines.get(&claim.name) else { continue };
            let me = line.iter().find(|other| other.id == claim.id);
            let standing = self.stand(claim, line, order, *at).await?;
            // A key without its lease is about to be deleted.
            let has_lease = me.is_none_or(|me| kept.contains(&Some(me.lease)));
            standings.push(if has_lease { standing } else { Standing::Gone });
        }
        self.stir();
        Ok(standings)
    }
}

/// Of several claims under one lease, the longest counts.
fn longest(leases: &mut HashMap<i64, Duration>, lease: i64, ttl: Duration) {
    let known = leases.entry(lease).or_default();
    *known = (*known).max(ttl);
}
