//! The checker: decides from histories alone whether a run kept its promises. No rule searches: each is a sweep over
//! sorted operations, so that a million of them take seconds.
//!
//! | file | rules |
//! |---|---|
//! | `exclusion.rs` | conflicting holds inside their windows, permits, tokens |
//! | `fence.rs` | writes that came too late and were accepted |
//! | `calm.rs` | when no fault was near: only then is anything said about time |
//! | `order.rs` | the order of arrival |
//! | `liveness.rs` | requests without an answer, locks that stay free while somebody waits |
//! | `growth.rs` | what the store keeps of all that |
//! | `tickets.rs` | holds that go on by a ticket |
//! | `guests.rs` | clients that are shut down, outlive their runtimes, or have a wrong password |
//! | `watchers.rs` | what those hear and see who watch locks |
//! | `holders.rs` | what holders and their processes know: losses, hand-offs, claims that nobody wants |

mod calm;
mod exclusion;
mod fence;
mod growth;
mod guests;
mod holders;
mod liveness;
mod order;
#[cfg(test)]
mod tests;
mod tickets;
mod watchers;

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use self::calm::Calm;
use super::{
    history::{Answer, History, Op, epoch, label_of},
    record::{Nanos, Share},
};

/// How many violations of a rule are kept: the first ones tell the story, the rest is a number.
const KEPT: usize = 20;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rule {
    /// Two holds that exclude each other were both inside their windows, or permits were more than there are.
    Overlap,
    /// A hold that was asked for after another one was granted has no larger token.
    TokenOrder,
    /// Two holds have the same token.
    SameToken,
    /// The fence accepted a write of a holder after one of a later holder.
    StaleWrite,
    /// A request was granted before one that was in the queue when it was made.
    Order,
    /// A request was not answered in its time.
    Unanswered,
    /// A request that waits without limit gave up because the store did not answer.
    Impatient,
    /// A request failed for good, though nothing was wrong with the store.
    Denied,
    /// A lock was released, and came free only with the end of its lease.
    NotFreed,
    /// A lock was free, and those who waited heard of it later than by asking.
    LateWakeUp,
    /// A lock that was known to be lost was handed on inside a process.
    HandedOnLost,
    /// A process handed a lock on among its own tasks for too long.
    KeptToItself,
    /// A release was reported as a success though the holder had been taken out.
    Unreported,
    /// A holder that was taken out did not know it when it must have.
    Unaware,
    /// A lock was released though its holder had not let it go.
    TakenAway,
    /// A ticket was used after the end of its hold, or had another token.
    Ticket,
    /// A claim stayed in the store though its process did not want it any more.
    Stray,
    /// A client that was shut down, or whose runtime had ended, went on.
    Closed,
    /// A client with a wrong password was let in, or was not told that it is wrong.
    LetIn,
    /// The end of a claim was not told to its client, or told as it was not.
    Untold,
    /// A lock that was held was not in a list of those that are.
    Unseen,
    /// A watch of an election went back, or showed a leader whose term had ended.
    Watch,
    /// A client ended, though nobody killed it.
    Crash,
    /// Something was left in the store.
    Leftover,
    /// The store keeps something of each request.
    Growth,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "two held at once",
            Self::TokenOrder => "a token did not grow",
            Self::SameToken => "two holds had one token",
            Self::StaleWrite => "a stale write was accepted",
            Self::Order => "the order of arrival was broken",
            Self::Unanswered => "a request was not answered in its time",
            Self::Impatient => "a request gave up that was to wait",
            Self::Denied => "a request was denied without a reason",
            Self::NotFreed => "a release did not free the lock",
            Self::LateWakeUp => "a waiter was woken late",
            Self::HandedOnLost => "a lost lock was handed on",
            Self::KeptToItself => "a process kept a lock to itself",
            Self::Unreported => "a release did not report a loss",
            Self::Unaware => "a holder did not hear that it was taken out",
            Self::TakenAway => "a lock was taken from its holder",
            Self::Ticket => "a ticket went on after its end",
            Self::Stray => "a claim was not given back",
            Self::Closed => "a client went on after its end",
            Self::LetIn => "a wrong password was not refused",
            Self::Untold => "the end of a claim was not told as it was",
            Self::Unseen => "a holder was not shown",
            Self::Watch => "a watch showed a leader of the past",
            Self::Crash => "a client ended without being killed",
            Self::Leftover => "something was left in the store",
            Self::Growth => "the store grows with each request",
        })
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) rule: Rule,
    pub(super) at: Nanos,
    /// Indexes in [`History::ops`], in the order in which the sentence names them.
    pub(super) ops: Vec<u32>,
    /// In one sentence.
    pub(super) what: String,
}

/// What the checker found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first violations of each rule.
    pub(super) violations: Vec<Violation>,
    /// All of them, by rule.
    pub(super) totals: BTreeMap<Rule, u64>,
    /// Overlaps where the deployment does not promise to exclude them.
    pub(super) overlaps_allowed: u64,
    pub(super) counts: Counts,
}

impl Findings {
    pub(super) fn is_clean(&self) -> bool {
        self.totals.is_empty()
    }

    pub(super) fn add(&mut self, rule: Rule, at: Nanos, ops: &[u32], what: impl FnOnce() -> String) {
        let total = self.totals.entry(rule).or_default();
        *total += 1;
        if *total <= KEPT as u64 {
            self.violations.push(Violation { rule, at, ops: ops.to_vec(), what: what() });
        }
    }
}

/// How much was checked.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) operations: u64,
    pub(super) grants: u64,
    pub(super) refused: u64,
    pub(super) timed_out: u64,
    pub(super) gave_up: u64,
    pub(super) failed: u64,
    pub(super) killed_while_waiting: u64,
    pub(super) lost: u64,
    pub(super) broken: u64,
    pub(super) writes_accepted: u64,
    pub(super) writes_refused: u64,
    /// Requests that the store showed in its queue, which the order of arrival can be checked with.
    pub(super) seen_in_queue: u64,
    pub(super) faults: Vec<FaultCount>,
    /// How many entries the store had before the run, if they were counted.
    pub(super) entries_before: Option<u64>,
    pub(super) entries_after: Option<u64>,
    pub(super) seconds: f64,
    pub(super) calm_seconds: f64,
}

/// Faults of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FaultCount {
    pub(super) kind: String,
    pub(super) times: u64,
    /// The longest time from the end of one until somebody was granted a lock, in milliseconds.
    pub(super) longest_until_grant_ms: u64,
}

/// Checks a history.
pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    // Of each ttl: how long a fault may be felt depends on it.
    let mut calms: BTreeMap<Nanos, Calm> = BTreeMap::new();
    for ttl in history.ttls.iter().chain([&history.plan.ttl]) {
        calms.entry(*ttl).or_insert_with(|| Calm::new(history, *ttl));
    }
    let calm = &calms[&history.plan.ttl];
    findings.counts = count(history, calm);
    let mut by_name: Vec<Vec<u32>> = vec![Vec::new(); history.names.len()];
    for (index, op) in (0_u32..).zip(&history.ops) {
        by_name[usize::from(op.name)].push(index);
    }
    for (ops, ttl) in by_name.iter_mut().zip(&history.ttls) {
        let calm = &calms[ttl];
        ops.sort_unstable_by_key(|op| history.ops[*op as usize].answered);
        exclusion::check(history, ops, &mut findings);
        if history.plan.fair {
            order::check(history, calm, ops, &mut findings);
        }
        liveness::check_free(history, calm, ops, &mut findings);
    }
    fence::check(history, &mut findings);
    liveness::check_answers(history, calm, &mut findings);
    holders::check(history, &by_name, &mut findings);
    tickets::check(history, &mut findings);
    growth::check(history, &mut findings);
    guests::check(history, calm, &mut findings);
    watchers::check(history, calm, &by_name, &mut findings);
    for process in history.processes.iter().filter(|it| it.killed.is_none() && it.ended.is_none()) {
        findings.add(Rule::Crash, process.last_line, &[], || {
            format!("{} ended without a reason", label_of(process.client, process.generation))
        });
    }
    findings.violations.sort_by_key(|violation| violation.at);
    findings
}

fn count(history: &History, calm: &Calm) -> Counts {
    let mut counts = Counts {
        operations: history.ops.len() as u64,
        broken: history.breaks.len() as u64,
        entries_before: history.counted.first().map(|(_, entries)| *entries),
        entries_after: history.counted.get(1).map(|(_, entries)| *entries),
        seconds: history.last.saturating_sub(history.first) as f64 / 1e9,
        calm_seconds: calm.within(history.first, history.last) as f64 / 1e9,
        ..Counts::default()
    };
    let mut grants = Vec::new();
    for op in &history.ops {
        counts.lost += u64::from(op.lost > 0);
        counts.seen_in_queue += u64::from(op.queued > 0);
        *match op.answer {
            Answer::Granted => {
                grants.push(op.answered);
                &mut counts.grants
            }
            Answer::Refused => &mut counts.refused,
            Answer::TimedOut => &mut counts.timed_out,
            Answer::GaveUp => &mut counts.gave_up,
            Answer::Failed | Answer::Unavailable | Answer::Closed => &mut counts.failed,
            Answer::None => &mut counts.killed_while_waiting,
        } += 1;
    }
    for write in &history.writes {
        *if write.accepted { &mut counts.writes_accepted } else { &mut counts.writes_refused } += 1;
    }
    grants.sort_unstable();
    let mut faults: BTreeMap<&str, FaultCount> = BTreeMap::new();
    for fault in &history.faults {
        let count = faults.entry(&fault.kind).or_default();
        count.times += 1;
        let healed = fault.healed.unwrap_or(fault.began);
        if let Some(next) = grants.get(grants.partition_point(|grant| *grant <= healed)) {
            count.longest_until_grant_ms = count.longest_until_grant_ms.max((next - healed) / 1_000_000);
        }
    }
    let named = faults.into_iter().map(|(kind, count)| FaultCount { kind: kind.to_owned(), ..count });
    counts.faults = named.collect();
    counts
}

/// The end of the time in which a hold could rely on its lock.
fn window_end(history: &History, op: &Op, broken: Option<Nanos>) -> Nanos {
    let process = &history.processes[op.process as usize];
    // What is kept by its lease outlives its guard and its process.
    let let_go = [Some(op.releasing), process.killed].map(|cut| cut.filter(|_| op.kept == 0));
    let cuts = let_go.into_iter().chain([Some(op.lost), Some(op.closed), broken]);
    cuts.flatten().filter(|cut| *cut > 0).fold(op.until, Nanos::min)
}

/// A hold in words: `client-3.1 (token 17)`.
fn hold(history: &History, index: u32) -> String {
    let op = &history.ops[index as usize];
    let share = match op.share {
        Share::Exclusive => String::new(),
        share => format!(", {share}"),
    };
    format!("{} (request {}, token {}{share})", history.who(op), op.number, op.token)
}

/// A time in words.
fn millis(nanos: Nanos) -> String {
    format!("{:.1} ms", nanos as f64 / 1e6)
}
