//! Clients that are not the first one of their process: they are shut down or dropped, or their runtime ends, with requests
//! under way. And those that knock with a wrong password.

use std::collections::{HashMap, HashSet};

use super::{
    Findings, Rule,
    calm::{Calm, HARMLESS, Undisturbed},
    hold, millis,
};
use crate::torture::{
    history::{Answer, Closing, History, label_of},
    record::Nanos,
};

/// How late a request of a client that ended may be answered, on a busy machine.
const SLACK: Nanos = 5_000_000_000;

/// How long it may take until a wrong password is refused, if nothing disturbs.
const REFUSED: Nanos = 5_000_000_000;

/// How long it may take until it is clear that a server is none of the store's. It may say nothing.
const UNKNOWN: Nanos = 15_000_000_000;

/// When each client was about to end, by its process and number.
pub(super) fn ends(history: &History) -> HashMap<(u32, u32), Nanos> {
    history.closings.iter().map(|it| ((it.process, it.guest), it.at)).collect()
}

/// When clients ended that had used a lock, and until when a claim may be there that they did not give back. Takes the
/// requests of the lock.
pub(super) fn may_be_left(history: &History, ops: &[u32]) -> Vec<(Nanos, Nanos)> {
    let used: HashSet<_> = ops
        .iter()
        .map(|index| &history.ops[*index as usize])
        .filter(|op| op.guest > 0)
        .map(|op| (op.process, op.guest))
        .collect();
    let Some(first) = ops.first() else { return Vec::new() };
    let ttl = history.ttls[usize::from(history.ops[*first as usize].name)];
    let ended = history.closings.iter().filter(|it| used.contains(&(it.process, it.guest)));
    ended.map(|it| (it.at, it.done.max(it.at).saturating_add(ttl))).collect()
}

pub(super) fn check(history: &History, calm: &Calm, findings: &mut Findings) {
    let awake = Undisturbed::new(history, &HARMLESS);
    let closings: HashMap<(u32, u32), &Closing> =
        history.closings.iter().map(|it| ((it.process, it.guest), it)).collect();
    for (index, op) in (0_u32..).zip(&history.ops).filter(|(_, op)| op.guest > 0) {
        let Some(closing) = closings.get(&(op.process, op.guest)) else { continue };
        if closing.done > 0 && op.is_granted() && op.asked > closing.done {
            findings.add(Rule::Closed, op.answered, &[index], || {
                let (who, late) = (hold(history, index), millis(op.asked - closing.done));
                format!("{who} was granted {:?}, asked for {late} after its client ended", history.name(op))
            });
        }
        // Where the runtime has ended, leases go on until they end.
        if closing.done > 0 && !closing.ends_tasks && op.checked > closing.done {
            findings.add(Rule::Closed, op.checked, &[index], || {
                let (who, late) = (hold(history, index), millis(op.checked - closing.done));
                format!("{who} relied on {:?} {late} after its client was shut down", history.name(op))
            });
        }
        // Those that ask for a fixed time are not answered sooner by anything else.
        let due = op.asked.max(closing.at).saturating_add(SLACK);
        let is_late = op.answered > due && op.answer != Answer::GaveUp;
        if is_late && awake.covers(history, op.process, closing.at, op.answered) {
            findings.add(Rule::Unanswered, op.answered, &[index], || {
                let late = millis(op.answered - op.asked.max(closing.at));
                let (who, name) = (history.who(op), history.name(op));
                format!("{who} asked for {name:?} and was answered {late} after its client ended")
            });
        }
    }
    for (at, op) in &history.unheard {
        let it = &history.ops[*op as usize];
        if awake.covers(history, it.process, it.answered, *at) {
            findings.add(Rule::Unaware, *at, &[*op], || {
                let who = hold(history, *op);
                format!("{who} had lost {:?}, and its guard told nobody", history.name(it))
            });
        }
    }
    for knock in &history.knocks {
        let is_calm = calm.covers(knock.from, knock.at);
        let (is_right, limit) = match &*knock.answer {
            // Some stores let everybody in.
            "Denied" | "open" => (true, REFUSED),
            "refused" => (true, UNKNOWN),
            _ => (false, 0),
        };
        let is_late = knock.at > knock.from.saturating_add(limit);
        let was_let_in = matches!(&*knock.answer, "ok" | "tells-password");
        if was_let_in || is_calm && (!is_right || is_late) {
            findings.add(Rule::LetIn, knock.at, &[], || {
                let process = &history.processes[knock.process as usize];
                let took = millis(knock.at.saturating_sub(knock.from));
                format!(
                    "{} came with a wrong password, or to a wrong server, and was answered {:?} after {took}",
                    label_of(process.client, process.generation),
                    knock.answer
                )
            });
        }
    }
}
