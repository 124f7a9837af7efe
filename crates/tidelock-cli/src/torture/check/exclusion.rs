//! Holds of one lock: who held at the same time, and whether tokens grow.

use std::collections::HashMap;

use super::{Findings, Rule, epoch, hold, millis, window_end};
use crate::torture::{
    history::{History, Op},
    record::{Nanos, Share},
};

/// A hold and the end of its window.
struct Held<'a> {
    index: u32,
    op: &'a Op,
    end: Nanos,
}

/// Checks the requests of one lock, in the order in which they were answered.
pub(super) fn check(history: &History, ops: &[u32], findings: &mut Findings) {
    let Some(first) = ops.first() else { return };
    let name = history.ops[*first as usize].name;
    // A holder that was taken out hears of it a moment after the next one holds: tokens are the protection there.
    let mut broken: HashMap<u64, Nanos> = HashMap::new();
    for broke in history.breaks.iter().filter(|broke| broke.name == name) {
        let at = broken.entry(epoch(broke.token)).or_insert(broke.at);
        *at = broke.at.min(*at);
    }
    let holds: Vec<_> = ops
        .iter()
        .map(|index| (*index, &history.ops[*index as usize]))
        .filter(|(_, op)| op.is_granted())
        .map(|(index, op)| Held {
            index,
            op,
            end: window_end(history, op, broken.get(&epoch(op.token)).copied()),
        })
        .collect();
    overlaps(history, &holds, findings);
    same_tokens(history, &holds, findings);
    let unbroken: Vec<_> = holds.iter().filter(|held| !broken.contains_key(&epoch(held.op.token))).collect();
    token_order(history, &unbroken, findings);
}

/// Sweeps over the holds by the time they were granted, keeping those still inside their windows.
fn overlaps(history: &History, holds: &[Held<'_>], findings: &mut Findings) {
    let mut in_use: Vec<&Held<'_>> = Vec::new();
    for held in holds.iter().filter(|held| held.end > held.op.answered) {
        in_use.retain(|other| other.end > held.op.answered);
        for other in &in_use {
            if !other.op.is_of_owner_of(held.op) && other.op.share.conflicts(held.op.share) {
                overlap(history, findings, &[other.index, held.index], held.op.answered, || {
                    let both = other.end.min(held.end) - held.op.answered;
                    format!(
                        "{} held {:?} and relied on it when it was granted to {}: both for {}",
                        hold(history, other.index),
                        history.name(held.op),
                        hold(history, held.index),
                        millis(both)
                    )
                });
            }
        }
        in_use.push(held);
        if let Share::Permits { of, .. } = held.op.share {
            let used = permits(&in_use);
            if used > u32::from(of) {
                let who: Vec<_> = in_use.iter().map(|held| held.index).collect();
                overlap(history, findings, &who, held.op.answered, || {
                    let name = history.name(held.op);
                    format!("{used} of {of} permits of {name:?} were held with {}", hold(history, held.index))
                });
            }
        }
    }
}

fn overlap(
    history: &History,
    findings: &mut Findings,
    ops: &[u32],
    at: Nanos,
    what: impl FnOnce() -> String,
) {
    if history.plan.overlaps_allowed {
        findings.overlaps_allowed += 1;
    } else {
        findings.add(Rule::Overlap, at, ops, what);
    }
}

/// The permits in use: an owner that holds several times takes the most it asked for once.
fn permits(in_use: &[&Held<'_>]) -> u32 {
    let mut of_owner: HashMap<u32, u32> = HashMap::new();
    let mut used = 0;
    for held in in_use {
        let Share::Permits { n, .. } = held.op.share else { continue };
        if held.op.owner == 0 {
            used += u32::from(n);
        } else {
            let most = of_owner.entry(held.op.owner).or_default();
            *most = u32::from(n).max(*most);
        }
    }
    used + of_owner.values().sum::<u32>()
}

fn same_tokens(history: &History, holds: &[Held<'_>], findings: &mut Findings) {
    let mut by_token: Vec<_> = holds.iter().map(|held| (held.op.token, held.index)).collect();
    by_token.sort_unstable();
    for pair in by_token.windows(2) {
        let [(token, one), (other_token, other)] = pair else { continue };
        let (first, second) = (&history.ops[*one as usize], &history.ops[*other as usize]);
        if token == other_token && !first.is_of_owner_of(second) && !may_share(first, second) {
            findings.add(Rule::SameToken, second.answered, &[*one, *other], || {
                format!(
                    "{} and {} hold {:?}",
                    hold(history, *one),
                    hold(history, *other),
                    history.name(first)
                )
            });
        }
    }
}

/// Whether two holds may have the same token. Only a later grant is promised a larger one, and of readers that ask at
/// the same time none is later.
fn may_share(one: &Op, other: &Op) -> bool {
    let are_readers = [one, other].iter().all(|op| op.share == Share::Shared);
    are_readers && one.asked < other.answered && other.asked < one.answered
}

/// Of all that were granted before one was asked for, the largest token must be smaller.
fn token_order(history: &History, holds: &[&Held<'_>], findings: &mut Findings) {
    let asked = since_asked(history, holds);
    let mut by_asked: Vec<_> = holds.iter().zip(asked).collect();
    by_asked.sort_unstable_by_key(|(_, asked)| *asked);
    let mut granted = holds.iter().peekable();
    let mut largest: Option<&Held<'_>> = None;
    for (held, asked) in by_asked {
        while let Some(earlier) = granted.next_if(|earlier| earlier.op.answered < asked) {
            if largest.is_none_or(|largest| earlier.op.token > largest.op.token) {
                largest = Some(earlier);
            }
        }
        // An owner that re-enters has the token it had: others may have got a share with a larger one since.
        let re_enters = held.op.owner != 0 && held.op.share != Share::Exclusive;
        if let Some(largest) = largest
            && largest.op.token > held.op.token
            && !largest.op.is_of_owner_of(held.op)
            && !re_enters
        {
            findings.add(Rule::TokenOrder, held.op.answered, &[largest.index, held.index], || {
                format!(
                    "{:?} was granted to {}, and later asked for by {}, whose token is smaller",
                    history.name(held.op),
                    hold(history, largest.index),
                    hold(history, held.index)
                )
            });
        }
    }
}

/// Since when each of these was asked for. Where two may hold at once, a grant may be handed on inside a process after
/// somebody else got a later one, so a hold that was handed on counts from the begin of its grant.
fn since_asked(history: &History, holds: &[&Held<'_>]) -> Vec<Nanos> {
    let mut of_grant: HashMap<_, Nanos> = HashMap::new();
    let grant = |held: &Held<'_>| (held.op.process, epoch(held.op.token));
    for held in holds.iter().filter(|_| history.plan.overlaps_allowed) {
        let first = of_grant.entry(grant(held)).or_insert(held.op.asked);
        *first = held.op.asked.min(*first);
    }
    holds.iter().map(|held| of_grant.get(&grant(held)).copied().unwrap_or(held.op.asked)).collect()
}
