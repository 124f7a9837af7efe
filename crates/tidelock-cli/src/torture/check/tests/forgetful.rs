//! Deployments that may forget what they confirmed, as a failover to a replica does.

use super::{Answer, Rule, Share, Tale, at, check};

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
fn where_overlaps_are_allowed_a_grant_that_is_handed_on_may_have_a_smaller_token_than_a_later_one() {
    let mut tale = Tale::new();
    tale.0.plan.overlaps_allowed = true;
    tale.holds(0, 1, 0, 1, 10);
    tale.holds(1, 2, 2, 5, 8);
    let handed_on = tale.holds(0, 1, 7, 10, 20);
    tale.0.ops[handed_on].token += 1;
    assert_eq!(tale.broken(), []);
    // A grant of its own comes later.
    tale.0.ops[handed_on].process = 2;
    assert_eq!(tale.broken(), [Rule::TokenOrder]);
}

#[test]
fn a_claim_that_was_given_back_may_be_there_again_where_overlaps_are_allowed() {
    let mut tale = Tale::new();
    let gone = tale.asks(0, Share::Exclusive, 0);
    (tale.0.ops[gone].answer, tale.0.ops[gone].answered) = (Answer::GaveUp, at(10));
    tale.0.strays.push((at(2_200), gone as u32));
    assert_eq!(tale.broken(), [Rule::Stray]);
    tale.0.plan.overlaps_allowed = true;
    assert_eq!(tale.broken(), []);
}
