//! Holds that go on by a ticket: one hold with one token, which nothing revives after its end.

use std::collections::HashMap;

use super::{
    Findings, Rule,
    calm::{HARMLESS, Undisturbed},
    epoch, hold, millis,
};
use crate::torture::{
    history::{History, Released},
    record::Nanos,
};

/// How late a store may end a lease, beyond another ttl.
const LATE: Nanos = 1_500_000_000;

/// Checks all renewals by ticket.
///
/// A server that fails may forget a release that it confirmed, as long as nobody else was granted the lock since: the next
/// grant is what the rules of exclusion are about.
pub(super) fn check(history: &History, findings: &mut Findings) {
    let undisturbed = Undisturbed::new(history, &HARMLESS);
    let mut breaks: HashMap<(u16, u64), Nanos> = HashMap::new();
    for it in &history.breaks {
        if let Some(done) = it.done {
            breaks.entry((it.name, epoch(it.token))).or_insert(done);
        }
    }
    for resume in &history.resumes {
        let op = &history.ops[resume.op as usize];
        let ttl = history.ttls[usize::from(op.name)];
        let ends = [
            ("it was released", Some(op.freed).filter(|_| op.released == Released::Freed)),
            ("it was taken out", breaks.get(&(op.name, epoch(op.token))).copied()),
            ("its lease had ended", Some(resume.promised.saturating_add(ttl + LATE))),
        ];
        let ended = ends.into_iter().find_map(|(how, end)| {
            let end = end.filter(|end| resume.at > *end)?;
            undisturbed.covers(history, op.process, end, resume.at).then_some((how, end))
        });
        if resume.token != op.token {
            findings.add(Rule::Ticket, resume.at, &[resume.op], || {
                format!(
                    "{} has a ticket of {:?} with another token",
                    hold(history, resume.op),
                    history.name(op)
                )
            });
        } else if let Some((how, end)) = ended {
            findings.add(Rule::Ticket, resume.at, &[resume.op], || {
                let late = millis(resume.at - end);
                let who = hold(history, resume.op);
                format!("{who} went on with {:?} by its ticket {late} after {how}", history.name(op))
            });
        }
    }
}
