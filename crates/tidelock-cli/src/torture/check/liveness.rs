//! What must happen in the end: answers, and locks that are handed on.

use super::{Findings, Rule, calm::Calm, guests, hold, millis};
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
    let ends = guests::ends(history);
    for (index, op) in (0_u32..).zip(&history.ops) {
        let process = &history.processes[op.process as usize];
        let has_ended =
            op.guest > 0 && ends.get(&(op.process, op.guest)).is_some_and(|end| op.answered >= *end);
        if op.answer == Answer::None {
            // One that was killed cannot note an answer, and of one that ended on its own the crash is told.
            if process.killed.is_none() && process.ended.is_some() {
                findings.add(Rule::Unanswered, op.asked, &[index], || {
                    format!("{} asked for {:?} and got no answer", history.who(op), history.name(op))
                });
            }
            continue;
        }
        if has_ended && op.answer != Answer::Granted {
            // Whatever it was told: the rules of such clients are in `guests.rs`.
            continue;
        }
        if op.answer == Answer::Unavailable && op.patience == Nanos::MAX {
            findings.add(Rule::Impatient, op.answered, &[index], || {
                format!("{} waited for {:?} and got an error", history.who(op), history.name(op))
            });
        }
        if matches!(op.answer, Answer::Failed | Answer::Closed) && calm.covers(op.asked, op.answered) {
            findings.add(Rule::Denied, op.answered, &[index], || {
                format!("{} asked for {:?} and was denied it", history.who(op), history.name(op))
            });
        }
        let Some(calm_since) = calm.since(op.answered) else { continue };
        if op.answer == Answer::Unavailable && op.answered > op.asked.max(calm_since).saturating_add(FALLBACK)
        {
            findings.add(Rule::Denied, op.answered, &[index], || {
                let since = millis(op.answered - op.asked.max(calm_since));
                let (who, name) = (history.who(op), history.name(op));
                format!(
                    "{who} asked for {name:?} and heard that the store is not there, which it was for {since}"
                )
            });
        }
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
    // The last end of a hold until now, and whose it was: of all, and of exclusive ones with the requests for them, which
    // are all that readers wait for.
    let mut free: (Nanos, Option<u32>) = (0, None);
    let mut readable: (Nanos, Option<u32>) = (0, None);
    let writers = Writers::new(history, ops);
    let left = guests::may_be_left(history, ops);
    for (place, index) in ops.iter().enumerate() {
        let op = &history.ops[*index as usize];
        if matches!(op.share, Share::Permits { .. }) {
            continue;
        }
        let is_shared = op.share == Share::Shared;
        let (ended, by) = if is_shared { readable } else { free };
        // Judged from when the last fault was over.
        let since = calm.since(op.answered).map(|calm| ended.max(op.asked).max(calm));
        // What a client could not give back before it ended stays until its lease ends.
        let left = left.iter().filter(|(end, _)| *end <= op.answered).map(|(_, until)| *until).max();
        let since = since.map(|since| since.max(left.unwrap_or_default()));
        let waited_in_vain = op.is_granted() || op.answer == Answer::TimedOut;
        if let Some(since) = since
            && waited_in_vain
            && op.answered > since + FALLBACK
            && !(is_shared && writers.waits_after(place, since))
            && !(op.answer == Answer::TimedOut && writers.holds_after(place, op.answered))
        {
            let waited = millis(op.answered - since);
            let before = by.map(|before| &history.ops[before as usize]);
            let (rule, ops) = match (before, by) {
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
        if !op.is_granted() {
            if op.share == Share::Exclusive && op.answered > readable.0 {
                readable = (op.answered, Some(*index));
            }
            continue;
        }
        let end = match op.released {
            _ if op.kept > 0 => history.kept_end(op),
            Released::Freed => op.freed,
            // Its lease ends it, and a store may count a second one.
            Released::NotHeld | Released::Unknown => {
                op.until.max(op.freed).max(op.lost) + 2 * history.ttls[usize::from(op.name)]
            }
        };
        if end > free.0 {
            free = (end, Some(*index));
        }
        if op.share == Share::Exclusive && end > readable.0 {
            readable = (end, Some(*index));
        }
    }
}

/// Who asked for what before a moment and was answered after it.
struct Writers {
    /// For each place in the order of answers: when the first exclusive request of those after it was made.
    asked: Vec<Nanos>,
    /// The same for requests that were granted.
    granted: Vec<Nanos>,
}

impl Writers {
    fn new(history: &History, ops: &[u32]) -> Self {
        let (mut asked, mut granted) = (vec![Nanos::MAX; ops.len() + 1], vec![Nanos::MAX; ops.len() + 1]);
        for (place, index) in ops.iter().enumerate().rev() {
            let op = &history.ops[*index as usize];
            let is = |yes: bool| if yes { op.asked } else { Nanos::MAX };
            asked[place] = asked[place + 1].min(is(op.share == Share::Exclusive));
            granted[place] = granted[place + 1].min(is(op.is_granted()));
        }
        Self { asked, granted }
    }

    /// Whether somebody who is answered after this place may have waited in front of a reader that was there at `since`.
    fn waits_after(&self, place: usize, since: Nanos) -> bool {
        self.asked[place + 1] < since.saturating_add(FALLBACK)
    }

    /// Whether somebody who is answered after this place asked before `at`, so that the lock may have been on its way.
    fn holds_after(&self, place: usize, at: Nanos) -> bool {
        self.granted[place + 1] < at
    }
}
