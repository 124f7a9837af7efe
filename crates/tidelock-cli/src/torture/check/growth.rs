//! What a store keeps: so much for each lock and client, and nothing for a request that was answered.

use super::{Counts, Findings, Rule};
use crate::torture::history::History;

/// What is kept however little is done: scripts, a schema, a base of tokens.
const AT_ALL: u64 = 100;
/// What is kept for a lock: its last token, marks, parts of a queue.
const OF_A_LOCK: u64 = 8;
/// What is kept for a client, until it has ended for long.
const OF_A_CLIENT: u64 = 4;

/// How many of the requests that ended without a grant may leave a mark, so that they take nothing if they still arrive:
/// one in so many. Only those whose question was not answered do.
const PER_MARK: u64 = 4;

/// By how many entries a store may have grown.
fn allowed(history: &History, counts: &Counts) -> u64 {
    let marks = (counts.timed_out + counts.gave_up) / PER_MARK;
    // An eviction is kept until its holder has heard of it.
    let open = counts.failed + counts.killed_while_waiting + counts.broken;
    let (locks, clients) = (history.names.len() as u64, history.processes.len() as u64);
    AT_ALL + OF_A_LOCK * locks + OF_A_CLIENT * clients + marks + open
}

/// Checks by how much the store has grown, if it was counted before and after the run.
pub(super) fn check(history: &History, findings: &mut Findings) {
    let [(_, before), (at, after)] = history.counted[..] else { return };
    let allowed = allowed(history, &findings.counts);
    if after > before + allowed {
        findings.add(Rule::Growth, at, &[], || {
            format!(
                "the store had {before} entries before and {after} after, which is more than {allowed} more"
            )
        });
    }
}
