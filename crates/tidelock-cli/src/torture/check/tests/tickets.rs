//! Holds that go on by a ticket, and locks that are taken from their holders.

use super::{MS, Rule, TTL, Tale, at};
use crate::torture::history::Resume;

/// A hold from 1 to 5,000 that was renewed by its ticket at 2,000.
fn by_ticket() -> (Tale, usize) {
    let mut tale = Tale::new();
    let held = tale.holds(0, 7, 0, 1, 5_000);
    tale.0.ops[held].until = at(2_000) + TTL;
    resumes(&mut tale, held, 2_000, at(1) + TTL);
    (tale, held)
}

fn resumes(tale: &mut Tale, op: usize, when: u64, promised: u64) {
    let token = tale.0.ops[op].token;
    tale.0.resumes.push(Resume { at: at(when), op: op as u32, token, promised });
}

#[test]
fn a_hold_that_goes_on_by_its_ticket_is_one_hold() {
    let (mut tale, _) = by_ticket();
    tale.holds(1, 8, 10, 5_002, 5_010);
    assert_eq!(tale.broken(), []);
    let (mut tale, _) = by_ticket();
    tale.holds(1, 8, 10, 4_500, 5_010);
    assert_eq!(tale.broken(), [Rule::Overlap], "inside the window that the ticket renewed");
}

#[test]
fn a_ticket_with_another_token_is_found() {
    let (mut tale, held) = by_ticket();
    tale.0.ops[held].token += 1;
    assert_eq!(tale.broken(), [Rule::Ticket]);
}

#[test]
fn a_ticket_that_was_released_and_goes_on_is_found_unless_a_fault_was_near() {
    let (mut tale, held) = by_ticket();
    resumes(&mut tale, held, 5_100, at(2_000) + TTL);
    assert_eq!(tale.broken(), [Rule::Ticket]);
    tale.fault(5_050, 5_060);
    assert_eq!(tale.broken(), [], "the store may have forgotten the release");
    tale.0.faults[0].kind = "lag".to_owned();
    assert_eq!(tale.broken(), [Rule::Ticket], "it was only late");
}

#[test]
fn a_ticket_that_was_taken_out_and_goes_on_is_found() {
    let (mut tale, _) = by_ticket();
    tale.breaks(at(1_899), Some(at(1_900)), 7 << 10);
    tale.0.ops[0].released = super::Released::NotHeld;
    assert_eq!(tale.broken(), [Rule::Ticket]);
    tale.0.breaks[0].done = Some(at(2_001));
    assert_eq!(tale.broken(), [], "it was renewed before");
}

#[test]
fn a_ticket_that_expired_and_goes_on_is_found() {
    let (mut tale, held) = by_ticket();
    let op = &mut tale.0.ops[held];
    (op.releasing, op.freed, op.released) = (0, 0, super::Released::Unknown);
    let promised = op.until;
    resumes(&mut tale, held, 5_000 + 4_400, promised);
    assert_eq!(tale.broken(), [], "a store may end a lease later");
    tale.0.resumes[1].at = promised + TTL + 1_600 * MS;
    assert_eq!(tale.broken(), [Rule::Ticket]);
}

#[test]
fn a_lock_that_is_taken_from_its_holder_is_found() {
    let mut tale = Tale::new();
    let held = tale.holds(0, 1, 0, 1, 100);
    assert_eq!(tale.broken(), []);
    tale.0.ops[held].taken_away = at(50);
    assert_eq!(tale.broken(), [Rule::TakenAway]);
}
