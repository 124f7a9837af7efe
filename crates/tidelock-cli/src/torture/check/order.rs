//! The order of arrival, on stores that promise it.
//!
//! A client cannot know when its request reached the store, so clients look now and then: a request that was *seen* in
//! the queue was there before any request that was made later. Requests of one process stand behind each other and share
//! a place in the queue, so only requests that are alone in their process count.

use std::collections::HashMap;

use super::{Findings, Rule, calm::Calm, hold};
use crate::torture::{
    history::{History, Op},
    record::{Nanos, Share},
};

/// Checks the requests of one lock, in the order in which they were answered.
pub(super) fn check(history: &History, calm: &Calm, ops: &[u32], findings: &mut Findings) {
    let alone = alone(history, ops);
    // Of those granted until now, who asked last.
    let mut exclusive: Option<u32> = None;
    let mut any: Option<u32> = None;
    for index in ops.iter().filter(|op| alone.contains_key(op)) {
        let op = &history.ops[*index as usize];
        if !op.is_granted() || op.owner != 0 || matches!(op.share, Share::Permits { .. }) {
            continue;
        }
        let later = if op.share == Share::Exclusive { any } else { exclusive };
        if let Some(later) = later
            && op.queued > 0
            && history.ops[later as usize].asked > op.queued
            && calm.covers(op.asked, op.answered)
        {
            findings.add(Rule::Order, op.answered, &[*index, later], || {
                format!(
                    "{} was in the queue of {:?} when {} asked, which was granted first",
                    hold(history, *index),
                    history.name(op),
                    hold(history, later)
                )
            });
        }
        // A grant that was handed on inside a process is not one of the store.
        if op.token == super::epoch(op.token) << 10 {
            keep_later(history, &mut any, *index);
            if op.share == Share::Exclusive {
                keep_later(history, &mut exclusive, *index);
            }
        }
    }
}

fn keep_later(history: &History, kept: &mut Option<u32>, index: u32) {
    if kept.is_none_or(|kept| history.ops[kept as usize].asked < history.ops[index as usize].asked) {
        *kept = Some(index);
    }
}

/// The requests during which their process had no other one for the same lock.
fn alone(history: &History, ops: &[u32]) -> HashMap<u32, ()> {
    let mut of_process: HashMap<u32, Vec<u32>> = HashMap::new();
    for index in ops {
        of_process.entry(history.ops[*index as usize].process).or_default().push(*index);
    }
    let mut alone = HashMap::new();
    for mut ops in of_process.into_values() {
        ops.sort_unstable_by_key(|op| history.ops[*op as usize].asked);
        // The end of all before this one.
        let mut busy_until = 0;
        for (place, index) in ops.iter().enumerate() {
            let op = &history.ops[*index as usize];
            let next = ops.get(place + 1).map_or(Nanos::MAX, |next| history.ops[*next as usize].asked);
            if op.asked > busy_until && next > op.answered {
                alone.insert(*index, ());
            }
            busy_until = busy_until.max(end(op));
        }
    }
    alone
}

/// When a request and its hold ended.
fn end(op: &Op) -> Nanos {
    if op.answered == 0 {
        return Nanos::MAX;
    }
    [op.answered, op.freed, op.lost, op.kept].into_iter().fold(0, Nanos::max).max(
        if op.is_granted() && op.freed == 0 {
            // Its end is not known: it was dropped, or its process was killed.
            op.until
        } else {
            0
        },
    )
}
