//! What holders and their processes must know: that they were taken out, that a lock they hand on is theirs, and that a
//! claim which nobody of them wants is given back.

use std::collections::HashMap;

use super::{
    Findings, Rule,
    calm::{HARMLESS, LIGHT, Undisturbed},
    epoch, guests, hold, millis,
};
use crate::torture::{
    history::{Break, History, Op, Released},
    record::{Nanos, Share},
};

/// How late a task may note what it was given, on a busy machine.
const SLACK: Nanos = 1_500_000_000;

/// For how long a process hands a lock on among its tasks.
const HAND_OFFS: Nanos = 50_000_000;

/// How long after a light fault a client may still be busy with connecting again.
const FORGOTTEN: Nanos = 1_000_000_000;

/// How long after one a claim that nobody wants may still be in the store: it is left on the new connection, behind all
/// else that is asked again, on a busy machine.
const TIDIED: Nanos = 2_000_000_000;

/// Checks the requests of all locks, each in the order in which they were answered.
pub(super) fn check(history: &History, by_name: &[Vec<u32>], findings: &mut Findings) {
    // Who hears nothing asks, and who hangs does not lose what it asked before.
    let undisturbed = Undisturbed::new(history, &[&HARMLESS[..], &["hang"]].concat());
    let awake = Undisturbed::new(history, &HARMLESS);
    // What was asked when a connection was closed is asked again at once: soon all is as if it had not been.
    let steady = Undisturbed::new(history, &[&HARMLESS[..], &LIGHT].concat());
    let light = Undisturbed::light(history, FORGOTTEN);
    let tidied = Undisturbed::light(history, TIDIED);
    let mut breaks: HashMap<(u16, u64), &Break> = HashMap::new();
    for it in history.breaks.iter().filter(|it| it.done.is_some()) {
        breaks.entry((it.name, epoch(it.token))).or_insert(it);
    }
    for ops in by_name {
        let mut holds: Vec<u32> =
            ops.iter().copied().filter(|op| counts(&history.ops[*op as usize])).collect();
        holds.sort_unstable_by_key(|op| history.ops[*op as usize].token);
        for of_epoch in holds.chunk_by(|one, other| {
            epoch(history.ops[*one as usize].token) == epoch(history.ops[*other as usize].token)
        }) {
            hand_offs(history, of_epoch, &awake, findings);
            let Some(last) = of_epoch.last() else { continue };
            let op = &history.ops[*last as usize];
            if let Some(broke) = breaks.get(&(op.name, epoch(op.token))) {
                taken_out(history, (*last, ops), broke, (&undisturbed, &steady, &light), findings);
            }
        }
    }
    let ends = guests::ends(history);
    for (index, op) in (0_u32..).zip(&history.ops).filter(|(_, op)| op.taken_away > 0) {
        // A client that is shut down gives back what it is granted at this moment: the guard was never of use.
        if ends.get(&(op.process, op.guest)).is_some_and(|end| op.taken_away >= *end) {
            continue;
        }
        findings.add(Rule::TakenAway, op.taken_away, &[index], || {
            format!(
                "{} held {:?}, which was released by nobody's wish",
                hold(history, index),
                history.name(op)
            )
        });
    }
    // A deployment that forgets a grant may forget a release as well, which ends with its lease then.
    for (at, op) in history.strays.iter().filter(|_| !history.plan.overlaps_allowed) {
        let it = &history.ops[*op as usize];
        if steady.covers(history, it.process, it.asked, *at) && tidied.covers(history, it.process, *at, *at) {
            findings.add(Rule::Stray, *at, &[*op], || {
                format!(
                    "{} had ended its request {} for {:?}, and its claim was still in the store",
                    history.who(it),
                    it.number,
                    history.name(it)
                )
            });
        }
    }
}

/// Owners share a token, so their holds have no order.
fn counts(op: &Op) -> bool {
    op.is_granted() && op.owner == 0
}

/// The holds of one grant of the store, in the order in which they were handed on.
fn hand_offs(history: &History, holds: &[u32], awake: &Undisturbed, findings: &mut Findings) {
    let Some(first) = holds.first().map(|first| &history.ops[*first as usize]) else { return };
    for pair in holds.windows(2) {
        let [before, index] = *pair else { continue };
        let (from, op) = (&history.ops[before as usize], &history.ops[index as usize]);
        if op.token != from.token + 1 || op.share != Share::Exclusive {
            continue;
        }
        if from.let_go_lost || from.lost > 0 {
            findings.add(Rule::HandedOnLost, op.answered, &[before, index], || {
                let (one, other) = (hold(history, before), hold(history, index));
                format!("{one} had lost {:?} and handed it on to {other}", history.name(op))
            });
        }
        let time = op.answered.saturating_sub(first.answered);
        if time > HAND_OFFS + SLACK && awake.covers(history, op.process, first.answered, op.answered) {
            findings.add(Rule::KeptToItself, op.answered, &[before, index], || {
                let who = hold(history, index);
                format!("{who} had {:?} handed on {} after its grant", history.name(op), millis(time))
            });
        }
    }
}

/// The last hold of a grant that was taken out, and all requests for its lock.
fn taken_out(
    history: &History,
    (index, ops): (u32, &[u32]),
    it: &Break,
    (undisturbed, steady, light): (&Undisturbed, &Undisturbed, &Undisturbed),
    findings: &mut Findings,
) {
    let op = &history.ops[index as usize];
    let broke = it.done.unwrap_or(it.at);
    // A question whose answer was lost is asked again, and then finds what the first one did. A client waits this long.
    let is_asked_once = |from: Nanos, to: Nanos, ttl: Nanos| to.saturating_sub(from) < ttl / 4;
    // Only one of the two can have taken the claim out of the store, unless others are still kept out by it.
    let had_to_know = if op.kept > 0 { op.releasing > broke } else { op.freed > it.at };
    if op.released == Released::Freed
        && had_to_know
        && is_asked_once(op.releasing, op.freed, history.ttls[usize::from(op.name)])
        && is_asked_once(it.at, broke, history.plan.ttl)
        && undisturbed.covers(history, op.process, it.at.min(op.answered), op.freed)
        && undisturbed.covers(history, it.process, it.at, broke)
        && !may_have_handed_on(history, op, ops)
    {
        findings.add(Rule::Unreported, op.freed, &[index], || {
            let who = hold(history, index);
            let late = millis(op.freed - it.at);
            format!(
                "{who} released {:?} {late} after it was about to be taken out, which was done, and heard of no loss",
                history.name(op)
            )
        });
    }
    let asks_by = broke + history.ttls[usize::from(op.name)] / 3;
    if op.checked > asks_by + SLACK
        && steady.covers(history, op.process, broke, op.checked)
        && light.covers(history, op.process, asks_by, asks_by + SLACK)
    {
        findings.add(Rule::Unaware, op.checked, &[index], || {
            let late = millis(op.checked - broke);
            let who = hold(history, index);
            format!("{who} relied on {:?} {late} after it was taken out", history.name(op))
        });
    }
}

/// Whether another task of the process asked for the lock at that time: it may have been handed on to one that had just
/// gone away, who then is told of the loss.
fn may_have_handed_on(history: &History, op: &Op, ops: &[u32]) -> bool {
    ops.iter().map(|other| &history.ops[*other as usize]).any(|other| {
        let is_other = other.process == op.process && other.number != op.number;
        is_other && other.asked < op.freed && (other.answered == 0 || other.answered > op.releasing)
    })
}
