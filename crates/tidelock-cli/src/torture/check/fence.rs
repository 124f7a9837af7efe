//! Writes through the fence. What is stale is decided by time and not by tokens: a holder is later than another one if
//! it asked after that one was granted.

use super::{Findings, Rule, hold};
use crate::torture::history::History;

/// Checks all writes in the order of the fence.
pub(super) fn check(history: &History, findings: &mut Findings) {
    // Of each lock, the writer that asked last.
    let mut latest: Vec<Option<u32>> = vec![None; history.names.len()];
    for write in history.writes.iter().filter(|write| write.accepted) {
        let op = &history.ops[write.op as usize];
        if !op.is_granted() {
            // Killed after it wrote and before it could note its grant: it did not.
            continue;
        }
        let latest = &mut latest[usize::from(op.name)];
        match *latest {
            Some(index) if history.ops[index as usize].asked > op.answered => {
                if history.ops[index as usize].token != op.token {
                    findings.add(Rule::StaleWrite, write.at, &[write.op, index], || {
                        format!(
                            "{} wrote to {:?} after {}, which asked when the first one held already",
                            hold(history, write.op),
                            history.name(op),
                            hold(history, index)
                        )
                    });
                }
            }
            Some(index) if history.ops[index as usize].asked >= op.asked => {}
            _ => *latest = Some(write.op),
        }
    }
}
