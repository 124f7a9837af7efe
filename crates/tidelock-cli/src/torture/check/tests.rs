//! Every rule finds a history that breaks it, and passes one that does not.

use proptest::prelude::{Strategy, any, proptest};

use super::{Rule, check};
use crate::torture::{
    history::{Answer, Break, Decision, Fault, History, Op, Process, Released},
    record::{Nanos, Plan, Share},
};

const MS: Nanos = 1_000_000;
const TTL: Nanos = 3_000 * MS;

/// A history that is written by hand. Times are in milliseconds after a second; the clients are `0..4`.
struct Tale(History);

impl Tale {
    fn new() -> Self {
        let plan = Plan { seed: 1, store: "any".to_owned(), ttl: TTL, fair: true, overlaps_allowed: false };
        let mut history = History::new(plan);
        history.intern("torture/a");
        for client in 0..4 {
            let process = Process { client, ended: Some(Nanos::MAX), ..Process::default() };
            history.processes.push(process);
        }
        (history.first, history.last) = (0, 1_000_000 * MS);
        Self(history)
    }

    /// A request of a client that nobody answered yet.
    fn asks(&mut self, client: u32, share: Share, asked: u64) -> usize {
        let number = self.0.ops.iter().filter(|op| op.process == client).count() as u32;
        self.0.ops.push(Op::new(client, number, 0, share, at(asked)));
        self.0.ops.len() - 1
    }

    /// A hold of an exclusive lock, with a window up to its release.
    fn holds(&mut self, client: u32, epoch: u64, asked: u64, granted: u64, released: u64) -> usize {
        self.shares(client, Share::Exclusive, epoch, (asked, granted, released))
    }

    fn shares(
        &mut self,
        client: u32,
        share: Share,
        epoch: u64,
        (asked, granted, released): (u64, u64, u64),
    ) -> usize {
        let index = self.asks(client, share, asked);
        let op = &mut self.0.ops[index];
        (op.answer, op.answered, op.token) = (Answer::Granted, at(granted), epoch << 10);
        op.until = at(released).max(at(granted) + TTL);
        (op.releasing, op.freed, op.released) = (at(released), at(released) + MS / 2, Released::Freed);
        index
    }

    fn writes(&mut self, op: usize, when: u64) {
        self.0.writes.push(Decision { at: at(when), op: op as u32, accepted: true });
    }

    fn fault(&mut self, began: u64, healed: u64) {
        let (kind, target) = ("cut".to_owned(), "client-0.0".to_owned());
        self.0.faults.push(Fault { kind, target, began: at(began), healed: Some(at(healed)) });
    }

    /// The rules that are broken.
    fn broken(&self) -> Vec<Rule> {
        check(&self.0).totals.into_keys().collect()
    }
}

fn at(millis: u64) -> Nanos {
    1_000 * MS + millis * MS
}

#[test]
fn holds_that_follow_each_other_are_clean() {
    let mut tale = Tale::new();
    let first = tale.holds(0, 1, 0, 1, 10);
    let second = tale.holds(1, 2, 2, 12, 20);
    tale.shares(2, Share::Shared, 3, (15, 22, 40));
    tale.shares(3, Share::Shared, 4, (16, 23, 30));
    tale.writes(first, 5);
    tale.writes(second, 13);
    assert_eq!(tale.broken(), []);
}

#[test]
fn two_holders_inside_their_windows_are_found() {
    for share in [Share::Exclusive, Share::Shared, Share::Permits { n: 1, of: 5 }] {
        let mut tale = Tale::new();
        tale.holds(0, 1, 0, 1, 10);
        tale.shares(1, share, 2, (2, 9, 20));
        assert_eq!(tale.broken(), [Rule::Overlap], "{share}");
    }
}

#[test]
fn a_holder_that_is_stopped_keeps_its_window_until_its_end() {
    let mut tale = Tale::new();
    let stopped = tale.holds(0, 1, 0, 1, 9_000);
    tale.0.ops[stopped].until = at(2_900);
    let next = tale.holds(1, 2, 2, 2_901, 2_950);
    assert_eq!(tale.broken(), []);
    tale.0.ops[next].answered = at(2_899);
    assert_eq!(tale.broken(), [Rule::Overlap]);
}

#[test]
fn a_holder_that_is_killed_or_taken_out_excludes_nobody() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 2_000);
    tale.holds(1, 2, 2, 500, 600);
    assert_eq!(tale.broken(), [Rule::Overlap]);
    tale.0.processes[0].killed = Some(at(499));
    assert_eq!(tale.broken(), []);
    tale.0.processes[0].killed = None;
    // By its epoch: the token that others see may be one of an earlier hand-off.
    tale.0.ops[held].token += 3;
    tale.0.breaks.push(Break { at: at(499), name: 0, token: 1 << 10 });
    assert_eq!(tale.broken(), []);
}

#[test]
fn overlaps_are_counted_where_they_are_allowed() {
    let mut tale = Tale::new();
    tale.holds(0, 1, 0, 1, 10);
    tale.holds(1, 2, 2, 9, 20);
    tale.0.plan.overlaps_allowed = true;
    let findings = check(&tale.0);
    assert!(findings.is_clean());
    assert_eq!(findings.overlaps_allowed, 1);
}

#[test]
fn an_owner_re_enters_and_others_do_not() {
    let mut tale = Tale::new();
    let first = tale.holds(0, 1, 0, 1, 30);
    let again = tale.holds(1, 1, 2, 3, 20);
    assert_eq!(tale.broken(), [Rule::Overlap, Rule::SameToken]);
    (tale.0.ops[first].owner, tale.0.ops[again].owner) = (7, 7);
    assert_eq!(tale.broken(), []);
}

#[test]
fn permits_are_added_up() {
    let mut tale = Tale::new();
    let permits = |n| Share::Permits { n, of: 3 };
    tale.shares(0, permits(2), 1, (0, 1, 30));
    tale.shares(1, permits(1), 2, (0, 2, 30));
    assert_eq!(tale.broken(), []);
    tale.shares(2, permits(1), 3, (0, 3, 30));
    assert_eq!(tale.broken(), [Rule::Overlap]);
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    let mut tale = Tale::new();
    tale.holds(0, 7, 0, 1, 2);
    let second = tale.holds(1, 6, 3, 4, 5);
    assert_eq!(tale.broken(), [Rule::TokenOrder]);
    // Asked for before the other one was granted: either order is right.
    tale.0.ops[second].asked = at(0);
    assert_eq!(tale.broken(), []);
    tale.0.ops[second].token = 7 << 10;
    assert_eq!(tale.broken(), [Rule::SameToken]);
}

#[test]
fn a_stale_write_that_was_accepted_is_found() {
    let mut tale = Tale::new();
    let first = tale.holds(0, 1, 0, 1, 2);
    let second = tale.holds(1, 2, 3, 4, 5);
    tale.writes(second, 4);
    assert_eq!(tale.broken(), []);
    tale.writes(first, 6);
    assert_eq!(tale.broken(), [Rule::StaleWrite]);
    tale.0.writes[1].accepted = false;
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_request_that_is_overtaken_is_found_where_arrival_counts() {
    let mut tale = Tale::new();
    tale.holds(0, 1, 0, 1, 100);
    let waited = tale.holds(1, 3, 10, 220, 300);
    tale.holds(2, 2, 50, 101, 200);
    // Nobody saw it in the queue: it may have arrived late.
    assert_eq!(tale.broken(), []);
    tale.0.ops[waited].queued = at(40);
    assert_eq!(tale.broken(), [Rule::Order]);
    tale.0.ops[waited].queued = at(60);
    assert_eq!(tale.broken(), [], "it was seen after the other one asked");
    tale.0.ops[waited].queued = at(40);
    tale.0.plan.fair = false;
    assert_eq!(tale.broken(), []);
    tale.0.plan.fair = true;
    tale.fault(0, 20);
    assert_eq!(tale.broken(), [], "it may have lost its place in a fault");
}

#[test]
fn requests_of_one_process_share_a_place() {
    let mut tale = Tale::new();
    tale.holds(0, 1, 0, 1, 100);
    let waited = tale.holds(1, 3, 10, 220, 300);
    tale.holds(2, 2, 50, 101, 200);
    tale.0.ops[waited].queued = at(40);
    // What was seen in the queue may have been the place of this one.
    let other = tale.asks(1, Share::Exclusive, 5);
    (tale.0.ops[other].answer, tale.0.ops[other].answered) = (Answer::TimedOut, at(60));
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_request_without_an_answer_is_found_unless_its_client_was_killed() {
    let mut tale = Tale::new();
    tale.asks(0, Share::Exclusive, 0);
    assert_eq!(tale.broken(), [Rule::Unanswered]);
    tale.0.processes[0].killed = Some(at(5));
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_patient_request_that_gives_up_is_found() {
    let mut tale = Tale::new();
    let patient = tale.asks(0, Share::Exclusive, 0);
    (tale.0.ops[patient].answer, tale.0.ops[patient].answered) = (Answer::Unavailable, at(100));
    assert_eq!(tale.broken(), [Rule::Impatient]);
    tale.0.ops[patient].patience = 50 * MS;
    assert_eq!(tale.broken(), []);
}

#[test]
fn an_answer_that_comes_late_is_found_unless_a_fault_was_near() {
    let mut tale = Tale::new();
    let late = tale.asks(0, Share::Exclusive, 0);
    let op = &mut tale.0.ops[late];
    (op.patience, op.answer, op.answered) = (100 * MS, Answer::TimedOut, at(100));
    assert_eq!(tale.broken(), []);
    tale.0.ops[late].answered = at(6_000);
    assert_eq!(tale.broken(), [Rule::Unanswered]);
    tale.fault(50, 60);
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_lock_that_stays_free_while_somebody_waits_is_found() {
    let mut tale = Tale::new();
    let first = tale.holds(0, 1, 0, 1, 100);
    let next = tale.holds(1, 2, 10, 102, 200);
    assert_eq!(tale.broken(), []);
    tale.0.ops[next].answered = at(5_000);
    assert_eq!(tale.broken(), [Rule::NotFreed], "it came with the end of the lease");
    tale.0.ops[first].until = at(10_000);
    assert_eq!(tale.broken(), [Rule::LateWakeUp], "before the end of the lease");
    tale.fault(50, 60);
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_client_that_ends_on_its_own_is_found() {
    let mut tale = Tale::new();
    tale.0.processes[3].ended = None;
    assert_eq!(tale.broken(), [Rule::Crash]);
    tale.0.processes[3].killed = Some(at(1));
    assert_eq!(tale.broken(), []);
}

/// A fair line of one exclusive lock: clients ask at these times and hold for these times.
fn line() -> impl Strategy<Value = Vec<(u32, u64, u64)>> {
    proptest::collection::vec((0_u32..4, 0_u64..400, 1_u64..50), 2..60)
}

/// What a right store makes of it. Each client asks again only after it released.
fn played(asks: &[(u32, u64, u64)]) -> Tale {
    let mut tale = Tale::new();
    let mut free_at = 1_u64;
    let mut idle_at = [0_u64; 4];
    for (epoch, (client, pause, hold)) in (1..).zip(asks) {
        let idle = &mut idle_at[*client as usize];
        // In the order of the list, which is thus the order of arrival.
        let asked = (*idle + pause % 20).max(free_at.saturating_sub(*pause));
        let granted = asked.max(free_at) + 1;
        let index = tale.holds(*client, epoch, asked, granted, granted + hold);
        tale.writes(index, granted);
        free_at = granted + hold + 1;
        *idle = free_at + 1;
    }
    tale
}

proptest! {
    #[test]
    fn what_a_right_store_does_is_clean(asks in line()) {
        assert_eq!(played(&asks).broken(), []);
    }

    #[test]
    fn a_grant_inside_the_hold_before_is_found(asks in line(), which in any::<proptest::sample::Index>()) {
        let mut tale = played(&asks);
        let second = which.index(asks.len() - 1) + 1;
        tale.0.ops[second].answered = tale.0.ops[second - 1].releasing - MS / 2;
        tale.0.ops[second].asked = tale.0.ops[second - 1].asked;
        assert!(tale.broken().contains(&Rule::Overlap));
    }

    #[test]
    fn a_token_of_an_earlier_hold_is_found(asks in line(), which in any::<proptest::sample::Index>()) {
        let mut tale = played(&asks);
        let second = which.index(asks.len() - 1) + 1;
        tale.0.ops[second].asked = tale.0.ops[second - 1].answered + 1;
        tale.0.ops[second].token = tale.0.ops[second - 1].token - 1;
        assert!(tale.broken().contains(&Rule::TokenOrder));
    }
}
