//! What must happen in the end: answers, and locks that are handed on.

use super::{Findings, Rule, calm::Calm, hold, millis};
use crate::torture::{
    history::{Answer, History, Released},
    record::{Nanos, Share},
};

/// How much later than its limit a request may be answered, on a busy machine.
const SLACK: Nanos = 5_000_000_000;

/// After how long a waiter hears of a free lock by asking, and as long again for a busy machine.
const FALLBACK: Nanos = 4_000_000_000;

/// Checks that requests are answered in their time, when nothing is in the way.
pub(super) fn check_answers(history: &History, calm: &Calm, findings: &mut Findings) {
    for (index, op) in (0_u32..).zip(&history.ops) {
        let process = &history.processes[op.process as usize];
        if op.answer == Answer::None {
            // One that was killed cannot note an answer, and of one that ended on its own the crash is told.
            if process.killed.is_none() && process.ended.is_some() {
                findings.add(Rule::Unanswered, op.asked, &[index], || {
                    format!("{} asked for {:?} and got no answer", history.who(op), history.name(op))
                });
            }
            continue;
        }
        if op.answer == Answer::Unavailable && op.patience == Nanos::MAX {
            findings.add(Rule::Impatient, op.answered, &[index], || {
                format!("{} waited for {:?} and got an error", history.who(op), history.name(op))
            });
        }
        let Some(calm_since) = calm.since(op.answered) else { continue };
        let due = op.asked.saturating_add(op.patience).max(calm_since);
        if op.answered > due.saturating_add(SLACK) {
            findings.add(Rule::Unanswered, op.answered, &[index], || {
                let late = millis(op.answered - due);
                format!(
                    "{} asked for {:?} and was answered {late} after its limit",
                    history.who(op),
                    history.name(op)
                )
            });
        }
    }
}

/// Checks that a lock is not free while somebody waits for it. Takes the requests of one lock, in the order in which
/// they were answered.
pub(super) fn check_free(history: &History, calm: &Calm, ops: &[u32], findings: &mut Findings) {
    // The last end of a hold until now, and whose it was.
    let mut free: (Nanos, Option<u32>) = (0, None);
    for index in ops {
        let op = &history.ops[*index as usize];
        if !op.is_granted() || matches!(op.share, Share::Permits { .. }) {
            continue;
        }
        let since = free.0.max(op.asked);
        if op.answered > since + FALLBACK && calm.covers(since, op.answered) {
            let waited = millis(op.answered - since);
            let before = free.1.map(|before| &history.ops[before as usize]);
            let (rule, ops) = match (before, free.1) {
                (Some(before), Some(at)) if op.answered > before.until && before.until > before.freed => {
                    (Rule::NotFreed, vec![at, *index])
                }
                (_, Some(at)) => (Rule::LateWakeUp, vec![at, *index]),
                (_, None) => (Rule::LateWakeUp, vec![*index]),
            };
            findings.add(rule, op.answered, &ops, || {
                format!(
                    "{:?} was free, and {} waited {waited} for it",
                    history.name(op),
                    hold(history, *index)
                )
            });
        }
        let end = match op.released {
            Released::Freed => op.freed,
            // Its lease ends it, and a store may count a second one.
            Released::NotHeld | Released::Unknown => {
                op.until.max(op.freed).max(op.lost) + 2 * history.plan.ttl
            }
        };
        if end > free.0 {
            free = (end, Some(*index));
        }
    }
}
