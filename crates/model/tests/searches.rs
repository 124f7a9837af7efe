//! Ours keeps its promises, each naive variant breaks the one that it must: the searches that take seconds.

use std::collections::BTreeSet;

use tidelock_model::{
    check::POSSIBLE,
    line,
    naive::NAIVE,
    rules::Promise,
    runs::{OURS, Run, Size},
};

/// Runs the naive variant of a name, and returns what is broken with the last words of the story.
fn naive(name: &str) -> (Promise, String) {
    let run = NAIVE.iter().find(|run| run.name == name).expect("a variant of this name");
    let (promise, story) = run.search().broken.expect("a broken promise");
    assert!(story.iter().all(|step| !step.contains("cannot be told")), "{story:#?}");
    (promise, story.last().expect("a verdict").clone())
}

macro_rules! naive_variants {
    ($($test:ident: $name:literal breaks $promise:ident, $words:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let (promise, end) = naive($name);
                assert_eq!(promise, Promise::$promise);
                assert!(end.starts_with($words), "{end}");
            }
        )*

        #[test]
        fn every_naive_variant_has_a_test() {
            let tested = BTreeSet::from([$($name),*]);
            assert_eq!(tested, NAIVE.iter().map(|run| run.name).collect());
        }
    };
}

naive_variants! {
    without_the_uptime_rule_two_hold: "no-uptime-rule" breaks OneHolder, "TWO HOLDERS";
    with_an_uptime_rule_for_the_own_ttl_two_hold: "uptime-of-own-ttl" breaks OneHolder, "TWO HOLDERS";
    with_a_majority_of_those_that_answered_two_hold: "majority-of-answered" breaks OneHolder, "TWO HOLDERS";
    without_write_back_tokens_go_back: "no-write-back" breaks OrderedTokens, "TOKENS GO BACK";
    with_a_window_from_the_answer_two_hold: "window-from-answer" breaks OneHolder, "TWO HOLDERS";
    with_a_renewal_from_the_answer_two_hold: "renewed-from-answer" breaks OneHolder, "TWO HOLDERS";
    without_a_margin_for_drift_two_hold: "no-drift" breaks OneHolder, "TWO HOLDERS";
    with_renewals_on_a_server_that_forgot_two_hold: "renewal-trusts-young-server" breaks OneHolder, "TWO HOLDERS";
    with_renewals_of_known_holds_on_a_server_that_forgot_two_hold:
        "renewal-trusts-known-hold" breaks OneHolder, "TWO HOLDERS";
    with_counters_that_are_forgotten_tokens_go_back: "counted-epochs" breaks OrderedTokens, "TOKENS GO BACK";
    with_wall_clocks_too_far_apart_tokens_go_back: "wall-clocks-apart" breaks OrderedTokens, "TOKENS GO BACK";
    with_a_late_yes_that_revives_tokens_go_back: "late-yes-revives" breaks OrderedTokens, "TOKENS GO BACK";
    with_a_release_by_name_two_hold: "leave-by-name" breaks OneHolder, "TWO HOLDERS";
    with_a_clock_step_that_nobody_sees_two_hold: "clock-step-unseen" breaks OneHolder, "TWO HOLDERS";
    with_holders_put_back_and_clocks_not_compared_two_hold: "put-back-alone" breaks OneHolder, "TWO HOLDERS";
    with_an_uptime_by_the_wall_clock_two_hold: "uptime-by-wall-clock" breaks OneHolder, "TWO HOLDERS";
    with_servers_that_never_vote_again_nobody_gets_the_lock: "never-rejoin" breaks NoDeadlock, "DEADLOCK";
    with_clients_that_never_step_back_nobody_gets_the_lock: "wait-for-ever" breaks NoDeadlock, "DEADLOCK of the line";
    with_clients_that_step_back_while_votes_are_counted_two_hold:
        "step-back-unseen" breaks OneHolder, "TWO HOLDERS of the line";
}

#[test]
fn ours_keeps_its_promises_and_what_must_be_possible_is_seen() {
    let mut seen = BTreeSet::new();
    let quick: Vec<&Run> = OURS.iter().filter(|run| run.size == Size::Quick).collect();
    for run in quick {
        let report = run.search();
        assert_eq!(report.broken, None, "{}", run.name);
        seen.extend(report.seen);
    }
    assert_eq!(seen, POSSIBLE.into_iter().chain(line::POSSIBLE).collect());
}
