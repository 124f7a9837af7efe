//! Clients beside the first one of their process, holds that are kept by their lease, and wrong passwords.

use super::{Rule, Share, Tale, at};
use crate::torture::history::{Answer, Closing, Knock, Released};

impl Tale {
    /// A second client of the first process that is about to end, and has ended 100 ms later.
    fn closes(&mut self, when: u64, ends_tasks: bool) {
        let (at, done) = (at(when), at(when + 100));
        self.0.closings.push(Closing { process: 0, guest: 1, at, done, ends_tasks });
    }

    fn knocks(&mut self, from: u64, to: u64, answer: &str) {
        self.0.knocks.push(Knock { process: 0, from: at(from), at: at(to), answer: answer.to_owned() });
    }
}

/// A hold that was let go after 10 ms and keeps others out until 1,000.
fn kept() -> (Tale, usize) {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 10);
    (tale.0.ops[held].until, tale.0.ops[held].kept) = (at(1_000), at(1_000));
    (tale, held)
}

#[test]
fn nobody_gets_a_lock_before_its_shortest_time_has_passed() {
    let (mut tale, _) = kept();
    let next = tale.holds(1, 2, 2, 1_001, 1_100);
    assert_eq!(tale.broken(), []);
    tale.0.ops[next].answered = at(999);
    assert_eq!(tale.broken(), [Rule::Overlap]);
    tale.0.processes[0].killed = Some(at(500));
    assert_eq!(tale.broken(), [Rule::Overlap], "its lease keeps others out when its process is gone");
    tale.breaks(at(700), Some(at(701)), 1 << 10);
    assert_eq!(tale.broken(), [], "it was taken out");
}

#[test]
fn a_lock_whose_shortest_time_has_passed_is_free_soon_unless_its_process_is_gone() {
    let (mut tale, _) = kept();
    let next = tale.holds(1, 2, 2, 4_900, 5_000);
    assert_eq!(tale.broken(), []);
    tale.0.ops[next].answered = at(5_100);
    tale.0.ops[next].until = at(9_000);
    assert_eq!(tale.broken(), [Rule::NotFreed]);
    tale.0.processes[0].ended = Some(at(900));
    assert_eq!(tale.broken(), [], "nobody is there to give it back before its lease ends");
}

#[test]
fn a_kept_lock_that_was_taken_out_before_it_was_let_go_is_reported() {
    let (mut tale, held) = kept();
    tale.breaks(at(4), Some(at(5)), 1 << 10);
    assert_eq!(tale.broken(), [Rule::Unreported]);
    tale.0.ops[held].released = Released::NotHeld;
    assert_eq!(tale.broken(), []);
    tale.0.ops[held].released = Released::Freed;
    tale.0.breaks[0].done = Some(at(11));
    assert_eq!(tale.broken(), [], "it was there when it was let go");
}

#[test]
fn a_client_that_was_shut_down_is_granted_nothing_and_holds_nothing() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 2_000);
    tale.0.ops[held].guest = 1;
    tale.closes(500, false);
    tale.0.ops[held].checked = at(599);
    assert_eq!(tale.broken(), []);
    tale.0.ops[held].checked = at(601);
    assert_eq!(tale.broken(), [Rule::Closed], "it relied on its lock");
    tale.0.ops[held].checked = 0;
    tale.0.ops[held].asked = at(601);
    tale.0.ops[held].answered = at(602);
    assert_eq!(tale.broken(), [Rule::Closed], "it was granted a lock");
    tale.0.ops[held].guest = 2;
    assert_eq!(tale.broken(), [], "another client was shut down");
}

#[test]
fn a_client_that_is_shut_down_may_give_back_what_it_was_just_granted() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 510, 511);
    (tale.0.ops[held].guest, tale.0.ops[held].taken_away) = (1, at(511));
    assert_eq!(tale.broken(), [Rule::TakenAway]);
    tale.closes(500, false);
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_hold_that_a_shutdown_cuts_off_excludes_nobody_after_its_grace() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 2_000);
    tale.holds(1, 2, 2, 900, 950);
    assert_eq!(tale.broken(), [Rule::Overlap]);
    tale.0.ops[held].closed = at(899);
    assert_eq!(tale.broken(), []);
}

#[test]
fn a_hold_may_outlive_its_runtime_and_nothing_new_is_granted_there() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 2_000);
    (tale.0.ops[held].guest, tale.0.ops[held].checked) = (1, at(1_900));
    tale.closes(500, true);
    assert_eq!(tale.broken(), []);
    tale.0.ops[held].asked = at(601);
    tale.0.ops[held].answered = at(602);
    assert_eq!(tale.broken(), [Rule::Closed]);
}

#[test]
fn requests_of_a_client_that_ended_are_answered_and_their_errors_are_no_denial() {
    for answer in [Answer::Closed, Answer::Unavailable, Answer::Failed] {
        let mut tale = Tale::new();
        let asked = tale.asks(0, Share::Exclusive, 10);
        tale.0.ops[asked].guest = 1;
        (tale.0.ops[asked].answer, tale.0.ops[asked].answered) = (answer, at(550));
        tale.closes(500, false);
        assert_eq!(tale.broken(), []);
        tale.0.ops[asked].answered = at(5_600);
        assert_eq!(tale.broken(), [Rule::Unanswered]);
        tale.0.closings.clear();
        let expected = if answer == Answer::Unavailable {
            vec![Rule::Impatient, Rule::Denied]
        } else {
            vec![Rule::Denied]
        };
        assert_eq!(tale.broken(), expected, "nobody shut it down: {answer:?}");
    }
}

#[test]
fn a_guard_that_tells_nobody_of_its_loss_is_found() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 9_000);
    tale.0.ops[held].lost = at(3_000);
    tale.0.unheard.push((at(6_000), held as u32));
    assert_eq!(tale.broken(), [Rule::Unaware]);
    tale.fault(2_000, 2_100);
    assert_eq!(tale.broken(), [], "its process may have been stopped");
}

#[test]
fn a_wrong_password_is_refused_as_one_when_nothing_disturbs() {
    for (answer, expected) in [
        ("Denied", vec![]),
        ("open", vec![]),
        ("refused", vec![]),
        ("none", vec![Rule::LetIn]),
        ("ok", vec![Rule::LetIn]),
        ("tells-password", vec![Rule::LetIn]),
        ("Unavailable", vec![Rule::LetIn]),
    ] {
        let mut tale = Tale::new();
        tale.knocks(10, 20, answer);
        assert_eq!(tale.broken(), expected, "{answer}");
    }
    let mut tale = Tale::new();
    tale.knocks(10, 6_000, "Denied");
    assert_eq!(tale.broken(), [Rule::LetIn], "late");
    tale.fault(5, 15);
    assert_eq!(tale.broken(), []);
    tale.0.knocks[0].answer = "ok".to_owned();
    assert_eq!(tale.broken(), [Rule::LetIn], "no fault lets anybody in");
}

#[test]
fn a_claim_that_a_client_left_behind_blocks_its_lock_for_a_lease_and_no_longer() {
    let waited = |granted, has_left| {
        let mut tale = Tale::new();
        tale.holds(1, 1, 0, 1, 100);
        let left = tale.asks(0, Share::Exclusive, 50);
        let op = &mut tale.0.ops[left];
        (op.guest, op.answer, op.answered) = (1, Answer::TimedOut, at(120));
        if has_left {
            tale.closes(150, true);
        }
        tale.holds(2, 2, 200, granted, granted + 10);
        tale.broken()
    };
    assert_eq!(waited(5_000, true), []);
    assert_ne!(waited(5_000, false), []);
    assert_ne!(waited(9_000, true), []);
}
