//! Every rule finds a history that breaks it, and passes one that does not.

mod forgetful;
mod growth;
mod guests;
mod lines;
mod tickets;
mod watchers;

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
        history.names.push("torture/a".to_owned());
        history.ttls.push(TTL);
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

    /// The second client takes the holder of this token out.
    fn breaks(&mut self, at: Nanos, done: Option<Nanos>, token: u64) {
        self.0.breaks.push(Break { process: 1, at, done, name: 0, token, holder: None, guest: 0 });
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
    tale.breaks(at(499), None, 1 << 10);
    assert_eq!(tale.broken(), []);
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
fn only_readers_that_ask_at_the_same_time_may_have_one_token() {
    let mut tale = Tale::new();
    let first = tale.shares(0, Share::Shared, 1, (0, 2, 30));
    let second = tale.shares(1, Share::Shared, 1, (1, 3, 30));
    assert_eq!(tale.broken(), []);
    tale.0.ops[second].asked = tale.0.ops[first].answered + 1;
    assert_eq!(tale.broken(), [Rule::SameToken]);
    let permits = Share::Permits { n: 1, of: 3 };
    (tale.0.ops[first].share, tale.0.ops[second].share, tale.0.ops[second].asked) = (permits, permits, at(1));
    assert_eq!(tale.broken(), [Rule::SameToken]);
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
    // The store was there for all of this time.
    (tale.0.ops[patient].patience, tale.0.ops[patient].answered) = (5_000 * MS, at(5_000));
    assert_eq!(tale.broken(), [Rule::Denied]);
    tale.fault(4_000, 4_100);
    tale.0.faults[0].kind = "blip".to_owned();
    assert_eq!(tale.broken(), [], "not for so long");
}

#[test]
fn a_request_that_is_denied_is_found_unless_a_fault_was_near() {
    let mut tale = Tale::new();
    let denied = tale.asks(0, Share::Shared, 0);
    (tale.0.ops[denied].answer, tale.0.ops[denied].answered) = (Answer::Failed, at(10));
    assert_eq!(tale.broken(), [Rule::Denied]);
    tale.fault(5, 6);
    assert_eq!(tale.broken(), []);
}

#[test]
fn an_answer_that_comes_late_is_found_unless_a_fault_was_near() {
    let mut tale = Tale::new();
    let late = tale.asks(0, Share::Exclusive, 0);
    let op = &mut tale.0.ops[late];
    (op.patience, op.answer, op.answered) = (100 * MS, Answer::Refused, at(100));
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
    // A connection that was closed is open again at once.
    for kind in ["close", "blip", "mute"] {
        tale.0.faults[0].kind = kind.to_owned();
        assert_eq!(tale.broken(), [Rule::LateWakeUp], "{kind}");
    }
    tale.0.faults[0].healed = Some(at(2_000));
    assert_eq!(tale.broken(), [], "not for so long");
}

#[test]
fn a_wait_in_vain_for_a_free_lock_is_found() {
    let mut tale = Tale::new();
    tale.holds(0, 1, 0, 1, 100);
    let waited = tale.asks(1, Share::Exclusive, 10);
    let op = &mut tale.0.ops[waited];
    (op.patience, op.answer, op.answered) = (4_000 * MS, Answer::TimedOut, at(4_010));
    assert_eq!(tale.broken(), []);
    (tale.0.ops[waited].patience, tale.0.ops[waited].answered) = (5_000 * MS, at(5_010));
    assert_eq!(tale.broken(), [Rule::NotFreed]);
}

#[test]
fn a_reader_that_waits_for_nobody_but_readers_is_found() {
    let mut tale = Tale::new();
    tale.shares(0, Share::Shared, 1, (0, 1, 9_000));
    let writer = tale.asks(1, Share::Exclusive, 10);
    (tale.0.ops[writer].answer, tale.0.ops[writer].answered) = (Answer::GaveUp, at(1_000));
    let reader = tale.shares(2, Share::Shared, 2, (20, 1_001, 9_000));
    assert_eq!(tale.broken(), []);
    tale.0.ops[reader].answered = at(5_100);
    assert_eq!(tale.broken(), [Rule::LateWakeUp]);
    // It may have waited for this one.
    let other = tale.asks(3, Share::Exclusive, 500);
    (tale.0.ops[other].answer, tale.0.ops[other].answered) = (Answer::GaveUp, at(6_000));
    assert_eq!(tale.broken(), []);
}

/// Three holds of one grant, handed on by tasks of a client.
fn handed_on() -> (Tale, [usize; 3]) {
    let mut tale = Tale::new();
    let first = tale.holds(0, 7, 0, 1, 20);
    let second = tale.holds(0, 7, 2, 21, 40);
    let third = tale.holds(0, 7, 3, 41, 60);
    tale.0.ops[second].token += 1;
    tale.0.ops[third].token += 2;
    (tale, [first, second, third])
}

#[test]
fn a_lost_lock_that_is_handed_on_is_found() {
    let (mut tale, [_, second, third]) = handed_on();
    assert_eq!(tale.broken(), []);
    tale.0.ops[third].let_go_lost = true;
    assert_eq!(tale.broken(), [], "nobody came after it");
    tale.0.ops[second].let_go_lost = true;
    assert_eq!(tale.broken(), [Rule::HandedOnLost]);
}

#[test]
fn a_process_that_keeps_a_lock_to_itself_is_found() {
    let (mut tale, [_, _, third]) = handed_on();
    let op = &mut tale.0.ops[third];
    (op.answered, op.releasing, op.freed) = (at(1_500), at(1_501), at(1_502));
    assert_eq!(tale.broken(), []);
    let op = &mut tale.0.ops[third];
    (op.answered, op.releasing, op.freed) = (at(1_600), at(1_601), at(1_602));
    assert_eq!(tale.broken(), [Rule::KeptToItself]);
    tale.fault(100, 200);
    assert_eq!(tale.broken(), [], "it may have been stopped");
}

#[test]
fn a_release_that_hides_a_loss_is_found() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 100);
    tale.breaks(at(49), Some(at(50)), 1 << 10);
    assert_eq!(tale.broken(), [Rule::Unreported]);
    tale.0.ops[held].released = Released::NotHeld;
    assert_eq!(tale.broken(), []);
    tale.0.ops[held].released = Released::Freed;
    tale.fault(10, 20);
    assert_eq!(tale.broken(), [], "the answer to the release may have been lost");
    for kind in ["deaf", "lag"] {
        tale.0.faults[0].kind = kind.to_owned();
        assert_eq!(tale.broken(), [Rule::Unreported], "{kind}");
    }
    tale.0.ops[held].freed = at(100) + TTL / 4;
    assert_eq!(tale.broken(), [], "it may have been asked twice");
    tale.0.ops[held].freed = at(101);
    tale.0.breaks[0].done = Some(at(110));
    assert_eq!(tale.broken(), [Rule::Unreported], "one of the two must have found nothing");
    tale.0.breaks[0].done = Some(at(49) + TTL / 4);
    assert_eq!(tale.broken(), [], "it may have been asked twice");
    (tale.0.breaks[0].at, tale.0.breaks[0].done) = (at(102), Some(at(103)));
    assert_eq!(tale.broken(), [], "it was released before");
    (tale.0.breaks[0].at, tale.0.breaks[0].done) = (at(49), Some(at(50)));
    // One that went away at that moment may have had it.
    let other = tale.asks(0, Share::Exclusive, 20);
    (tale.0.ops[other].answer, tale.0.ops[other].answered) = (Answer::GaveUp, at(101));
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_holder_that_does_not_hear_that_it_was_taken_out_is_found() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 4_000);
    tale.0.ops[held].released = Released::NotHeld;
    tale.breaks(at(99), Some(at(100)), 1 << 10);
    tale.0.ops[held].checked = at(2_500);
    assert_eq!(tale.broken(), [], "a renewal may be as far away");
    tale.0.ops[held].checked = at(2_700);
    assert_eq!(tale.broken(), [Rule::Unaware]);
    tale.fault(200, 300);
    assert_eq!(tale.broken(), [], "it could not ask");
    tale.0.faults[0].kind = "deaf".to_owned();
    assert_eq!(tale.broken(), [Rule::Unaware]);
    // It asked again when its connection was open again, unless that was at the last moment.
    tale.0.faults[0].kind = "close".to_owned();
    tale.0.faults[0].healed = Some(at(99));
    assert_eq!(tale.broken(), [Rule::Unaware]);
    tale.0.faults[0].healed = Some(at(1_200));
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_claim_that_is_not_given_back_is_found_unless_a_fault_was_near() {
    let mut tale = Tale::new();
    let gone = tale.asks(0, Share::Exclusive, 0);
    (tale.0.ops[gone].answer, tale.0.ops[gone].answered) = (Answer::GaveUp, at(10));
    assert_eq!(tale.broken(), []);
    tale.0.strays.push((at(2_200), gone as u32));
    assert_eq!(tale.broken(), [Rule::Stray]);
    tale.fault(5, 15);
    assert_eq!(tale.broken(), []);
    // A connection that was closed is open again at once.
    tale.0.faults[0].kind = "close".to_owned();
    assert_eq!(tale.broken(), [Rule::Stray]);
    tale.0.faults[0].healed = Some(at(300));
    assert_eq!(tale.broken(), [], "not for so long");
    tale.0.faults[0].kind = "cut".to_owned();
    tale.0.faults[0].target = "client-1.0".to_owned();
    assert_eq!(tale.broken(), [Rule::Stray], "it hit another client");
}

#[test]
fn a_client_that_ends_on_its_own_is_found() {
    let mut tale = Tale::new();
    tale.0.processes[3].ended = None;
    assert_eq!(tale.broken(), [Rule::Crash]);
    tale.0.processes[3].killed = Some(at(1));
    assert_eq!(tale.broken(), []);
}
