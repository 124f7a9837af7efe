//! A violation as a small story: who did what when, and which faults were near.

use std::fmt::Write;

use super::{
    check::Violation,
    history::{Answer, Fault, History, Op, Released},
    record::Nanos,
};

/// How many faults a story names.
const FAULTS: usize = 12;

/// The moments around a violation: from a bit before its requests to a bit after them.
pub(super) fn scene(history: &History, violation: &Violation) -> (Nanos, Nanos) {
    let ops = || violation.ops.iter().map(|op| &history.ops[*op as usize]);
    let from = ops().map(|op| op.asked).chain([violation.at]).min().unwrap_or(violation.at);
    let to = ops()
        .flat_map(|op| [op.answered, op.freed, op.lost, op.until])
        .chain([violation.at])
        .max()
        .unwrap_or(violation.at);
    let ttl = history.plan.ttl;
    // A request may have waited for minutes: the story is about its end.
    let from = from.max(violation.at.saturating_sub(3 * ttl));
    let to = to.min(violation.at + 3 * ttl);
    let margin = (to - from) / 10 + 5_000_000;
    (from.saturating_sub(margin), to + margin)
}

/// The faults that touch a time, and the time that they may be felt afterwards.
pub(super) fn faults_near(history: &History, from: Nanos, to: Nanos) -> Vec<&Fault> {
    let from = from.saturating_sub(2 * history.plan.ttl);
    history
        .faults
        .iter()
        .filter(|fault| fault.began <= to && fault.healed.unwrap_or(Nanos::MAX) >= from)
        .collect()
}

/// The story.
pub(super) fn tell(history: &History, violation: &Violation) -> String {
    let mut text = format!("{}: {}\n", violation.rule, violation.what);
    for op in &violation.ops {
        let op = &history.ops[*op as usize];
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {} request {}: {}", history.who(op), op.number, life(op, violation.at));
    }
    let (from, to) = scene(history, violation);
    let faults = faults_near(history, from, to);
    if faults.is_empty() {
        text.push_str("  no fault was near\n");
    }
    for fault in faults.iter().rev().take(FAULTS).rev() {
        let healed = match fault.healed {
            Some(healed) => format!("healed {}", moment(healed, violation.at)),
            None => "not healed".to_owned(),
        };
        let began = moment(fault.began, violation.at);
        let _ = writeln!(text, "  fault {} {}: began {began}, {healed}", fault.kind, fault.target);
    }
    text
}

/// What happened to a request, with times from the violation.
fn life(op: &Op, at: Nanos) -> String {
    let mut words = vec![format!("asked {}", moment(op.asked, at))];
    let mut add = |word: &str, when: Nanos| {
        if when > 0 {
            words.push(format!("{word} {}", moment(when, at)));
        }
    };
    add("seen in the queue", op.queued);
    let answer = match op.answer {
        Answer::None => "never answered",
        Answer::Granted => "granted",
        Answer::Refused => "refused",
        Answer::TimedOut => "timed out",
        Answer::GaveUp => "gave up",
        Answer::Failed => "failed",
        Answer::Closed => "failed, because its client had ended",
        Answer::Unavailable => "failed, because the store did not answer",
    };
    add(answer, op.answered);
    add("could rely on it until", op.until);
    add("knew that it was lost", op.lost);
    add("began to release", op.releasing);
    add("keeps others out until", op.kept);
    add("was cut off by a shutdown", op.closed);
    let released =
        if op.released == Released::Freed { "released" } else { "release answered that it was lost" };
    add(released, op.freed);
    words.join(", ")
}

/// A time, seen from another one: `+1.250 s`.
fn moment(when: Nanos, from: Nanos) -> String {
    let sign = if when < from { '-' } else { '+' };
    format!("{sign}{:.4} s", when.abs_diff(from) as f64 / 1e9)
}
