//! What those hear and see who watch locks: how claims end, who holds, and who leads.

use std::collections::{HashMap, HashSet};

use super::{
    Findings, Rule,
    calm::{Calm, HARMLESS, Undisturbed},
    epoch, hold, millis, window_end,
};
use crate::torture::{
    history::{History, Op, Released, label_of},
    record::{Nanos, Share},
};

/// How late a task may note what it was told, on a busy machine.
const SLACK: Nanos = 1_500_000_000;

/// How long a watch may show a leader that has given the lead back, if nothing disturbs: by asking it knows within a second.
const STALE: Nanos = 2_500_000_000;

/// Checks what was told and shown. Takes the requests of all locks.
pub(super) fn check(history: &History, calm: &Calm, by_name: &[Vec<u32>], findings: &mut Findings) {
    let awake = Undisturbed::new(history, &HARMLESS);
    told(history, &awake, by_name, findings);
    evictions(history, findings);
    shown(history, calm, by_name, findings);
    sights(history, &awake, findings);
}

/// The end of a claim is told to those who listen to its client. Tasks of a process share one claim one after another, so
/// the last of them counts, and only where it cannot have handed it on.
fn told(history: &History, awake: &Undisturbed, by_name: &[Vec<u32>], findings: &mut Findings) {
    let mut told: HashMap<(u32, u16), Vec<Nanos>> = HashMap::new();
    for it in &history.told {
        told.entry((it.process, it.name)).or_default().push(it.at);
    }
    for ops in by_name {
        let mut last: HashMap<(u32, u64), u32> = HashMap::new();
        for index in ops.iter().filter(|index| is_clear(history, &history.ops[**index as usize])) {
            let op = &history.ops[*index as usize];
            let last = last.entry((op.process, epoch(op.token))).or_insert(*index);
            if history.ops[*last as usize].token < op.token {
                *last = *index;
            }
        }
        for index in last.into_values() {
            let op = &history.ops[index as usize];
            let process = &history.processes[op.process as usize];
            let end = if op.lost > 0 { op.lost } else { op.freed };
            let due = end.saturating_add(SLACK);
            // In the end nobody may be left who notes it.
            let ends = process.killed.into_iter().chain(process.ended).min().unwrap_or(process.last_line);
            let is_told = || {
                let told = told.get(&(op.process, op.name)).map(Vec::as_slice).unwrap_or_default();
                told.get(told.partition_point(|at| *at < op.answered)).is_some_and(|at| *at <= due)
            };
            if due < ends
                && awake.covers(history, op.process, op.answered, due)
                && !may_have_handed_on(history, op, ops, end)
                && !is_told()
            {
                findings.add(Rule::Untold, due, &[index], || {
                    format!(
                        "the end of {} on {:?} was told to nobody",
                        hold(history, index),
                        history.name(op)
                    )
                });
            }
        }
    }
}

/// Whether it is certain whose end it was, and when, and whether somebody listened. The ends of locks that are held for
/// moments are too many to be noted, unless they were lost.
fn is_clear(history: &History, op: &Op) -> bool {
    let process = &history.processes[op.process as usize];
    let is_alone =
        op.share == Share::Exclusive && op.owner == 0 && op.guest == 0 && op.kept == 0 && !op.left_behind;
    let has_ended = op.lost > 0 || op.released == Released::Freed && !is_quick(history, op);
    let listened = process.listens.is_some_and(|since| since < op.asked);
    op.is_granted() && is_alone && has_ended && op.taken_away == 0 && listened
}

/// Locks with the ttl of the run are held for moments or a while, the others for long.
fn is_quick(history: &History, op: &Op) -> bool {
    history.ttls[usize::from(op.name)] == history.plan.ttl
}

/// Whether another task of the process asked for the lock at that time.
fn may_have_handed_on(history: &History, op: &Op, ops: &[u32], end: Nanos) -> bool {
    ops.iter().map(|other| &history.ops[*other as usize]).any(|other| {
        let is_other = other.process == op.process && other.number != op.number;
        is_other && other.asked <= end && (other.answered == 0 || other.answered >= op.releasing)
    })
}

/// A claim is told to have been evicted only after somebody set about to do that, and for the reason that was given.
fn evictions(history: &History, findings: &mut Findings) {
    for it in history.told.iter().filter(|it| it.how.starts_with("evicted")) {
        let process = &history.processes[it.process as usize];
        let holder = Some((process.client, process.generation));
        let is_known = history.breaks.iter().any(|broke| {
            let is_its = broke.holder == holder && broke.guest == 0;
            broke.name == it.name && broke.at <= it.at && (broke.holder.is_none() || is_its)
        });
        if !is_known || it.how != "evicted" {
            findings.add(Rule::Untold, it.at, &[], || {
                let who = label_of(process.client, process.generation);
                let name = &history.names[usize::from(it.name)];
                format!("{who} was told that its claim on {name:?} was {}, which nobody had done", it.how)
            });
        }
    }
}

/// A lock that was held from before a look until after it is among those that are held.
fn shown(history: &History, calm: &Calm, by_name: &[Vec<u32>], findings: &mut Findings) {
    if history.looks.is_empty() || history.plan.overlaps_allowed {
        return;
    }
    let mut broken: HashMap<(u16, u64), Nanos> = HashMap::new();
    for it in &history.breaks {
        let at = broken.entry((it.name, epoch(it.token))).or_insert(it.at);
        *at = it.at.min(*at);
    }
    for (name, ops) in (0_u16..).zip(by_name) {
        // In the order of their begins, each with the last end until then and whose it is.
        let mut holds: Vec<(Nanos, Nanos, u32)> = ops
            .iter()
            .map(|index| (*index, &history.ops[*index as usize]))
            .filter(|(_, op)| op.is_granted())
            .map(|(index, op)| {
                let end = window_end(history, op, broken.get(&(name, epoch(op.token))).copied());
                (op.answered, end, index)
            })
            .filter(|(from, end, _)| end > from && calm.covers(*from, *end))
            .collect();
        let mut last = (0, 0);
        for it in &mut holds {
            last = last.max((it.1, it.2));
            (it.1, it.2) = last;
        }
        for look in history.looks.iter().filter(|look| look.asked.has(name) && !look.held.has(name)) {
            let before = holds.partition_point(|(from, ..)| *from < look.from);
            let Some((_, end, index)) = before.checked_sub(1).map(|place| holds[place]) else { continue };
            if end > look.at {
                findings.add(Rule::Unseen, look.at, &[index], || {
                    let who = &history.processes[look.process as usize];
                    format!(
                        "{} looked at {:?} and was shown no holder, while {} held it",
                        label_of(who.client, who.generation),
                        history.names[usize::from(name)],
                        hold(history, index)
                    )
                });
            }
        }
    }
}

/// Terms grow, as a watch shows them, and one that has ended is not shown.
fn sights(history: &History, awake: &Undisturbed, findings: &mut Findings) {
    let names: HashSet<u16> = history.sights.iter().map(|sight| sight.name).collect();
    // When each term was given back.
    let mut freed: HashMap<(u16, u64), (Nanos, u32)> = HashMap::new();
    for (index, op) in (0_u32..).zip(&history.ops).filter(|(_, op)| names.contains(&op.name)) {
        if op.is_granted() {
            let end = if op.released == Released::Freed { op.freed } else { Nanos::MAX };
            let known = freed.entry((op.name, epoch(op.token))).or_insert((end, index));
            *known = (*known).max((end, index));
        }
    }
    let mut largest: HashMap<(u32, u32, u16), u64> = HashMap::new();
    for sight in history.sights.iter().filter(|sight| sight.token > 0) {
        let who = &history.processes[sight.process as usize];
        let said = |what: String| {
            let name = &history.names[usize::from(sight.name)];
            format!("{} watched {name:?} and saw {what}", label_of(who.client, who.generation))
        };
        let largest = largest.entry((sight.process, sight.watch, sight.name)).or_default();
        if sight.token < *largest {
            let (token, before) = (sight.token, *largest);
            findings.add(Rule::Watch, sight.at, &[], || said(format!("the term {token} after {before}")));
        }
        *largest = sight.token.max(*largest);
        if let Some((end, index)) = freed.get(&(sight.name, epoch(sight.token))).copied()
            && sight.at > end.saturating_add(STALE)
            && awake.covers(history, sight.process, end, sight.at)
        {
            findings.add(Rule::Watch, sight.at, &[index], || {
                let late = millis(sight.at - end);
                said(format!("{} lead {late} after the lead was given back", hold(history, index)))
            });
        }
    }
}
