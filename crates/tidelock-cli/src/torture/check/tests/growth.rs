//! What the store keeps.

use super::{Answer, Rule, Tale, at};

#[test]
fn a_store_that_grows_with_each_request_is_found_and_one_that_keeps_marks_is_not() {
    let mut tale = Tale::new();
    for number in 0..1_000 {
        tale.holds(0, number, 10 * number, 10 * number + 1, 10 * number + 2);
    }
    assert_eq!(tale.broken(), [], "nobody counted");
    tale.0.counted = vec![(at(0), 5), (at(20_000), 5 + 1_000)];
    assert_eq!(tale.broken(), [Rule::Growth]);
    tale.0.counted[1].1 = 5 + 120;
    assert_eq!(tale.broken(), []);
    // One that could not be counted after the run says nothing.
    tale.0.counted.truncate(1);
    assert_eq!(tale.broken(), []);
    // A request whose outcome is unknown may leave a mark.
    tale.0.counted = vec![(at(0), 5), (at(20_000), 5 + 200)];
    assert_eq!(tale.broken(), [Rule::Growth]);
    for op in &mut tale.0.ops[100..500] {
        op.answer = Answer::GaveUp;
    }
    assert_eq!(tale.broken(), []);
}
