//! What people see of lines on several servers: what a majority of them shows.

use std::collections::BTreeMap;

use super::quorum::majority;
use crate::{
    backend::{ClaimId, ClaimView, LockView},
    model::name::Name,
};

/// One claim, as the servers show it.
#[derive(Default)]
struct Merged<'a> {
    holding: Vec<&'a ClaimView>,
    /// With their places in line.
    waiting: Vec<(usize, &'a ClaimView)>,
}

/// One picture of what each of the servers that answered shows. `servers` is the number of all.
pub(super) fn merged(views: &[Vec<LockView>], servers: usize) -> Vec<LockView> {
    let mut by_name: BTreeMap<&Name, Vec<&LockView>> = BTreeMap::new();
    for view in views.iter().flatten() {
        by_name.entry(&view.name).or_default().push(view);
    }
    by_name.into_values().filter_map(|views| picture(&views, majority(servers))).collect()
}

fn picture(views: &[&LockView], needed: usize) -> Option<LockView> {
    let mut claims: BTreeMap<ClaimId, Merged<'_>> = BTreeMap::new();
    for view in views {
        for claim in &view.holders {
            claims.entry(claim.id).or_default().holding.push(claim);
        }
        for (place, claim) in view.waiters.iter().enumerate() {
            claims.entry(claim.id).or_default().waiting.push((place, claim));
        }
    }
    let first = views.first()?;
    let epoch = views.iter().map(|view| view.epoch).max()?;
    let mut picture = LockView::new(first.name.clone(), None, epoch);
    let mut waiters = Vec::new();
    for seen in claims.into_values() {
        if seen.holding.len() >= needed {
            picture.holders.push(common(&seen.holding)?);
        } else if seen.holding.len() + seen.waiting.len() >= needed {
            // First on one server and third on two others: somewhere between.
            let places: usize = seen.waiting.iter().map(|(place, _)| place + 1).sum();
            let all = seen.holding.len() + seen.waiting.len();
            let &(_, claim) = seen.waiting.first()?;
            waiters.push((places * 1_000 / all, claim.clone()));
        }
    }
    picture.holders.sort_by_key(|claim| claim.epoch);
    waiters.sort_by_key(|(place, claim)| (*place, claim.id));
    picture.waiters = waiters.into_iter().map(|(_, claim)| claim).collect();
    let shares = picture.holders.iter().chain(&picture.waiters);
    picture.capacity = shares.filter_map(|claim| claim.share.capacity()).next();
    (!picture.holders.is_empty() || !picture.waiters.is_empty()).then_some(picture)
}

/// A holder with the epoch that most servers have.
fn common(holding: &[&ClaimView]) -> Option<ClaimView> {
    let count = |claim: &&ClaimView| holding.iter().filter(|other| other.epoch == claim.epoch).count();
    holding.iter().copied().max_by_key(|claim| (count(claim), claim.epoch)).cloned()
}
