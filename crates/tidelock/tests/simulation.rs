//! The engine on the faulty store over many seeds, and the defects that this finds.
//! `cargo xtask simulate --seeds 100000` is the long run.
#![cfg(feature = "testing")]

use tidelock::testing::{
    defect::{Defect, Defects},
    simulation::{Outcome, run},
};

#[test]
fn no_seed_breaks_a_promise() {
    let mut all = Outcome::default();
    for seed in 0..3_000 {
        match run(seed, Defects::NONE) {
            Ok(outcome) => all.merge(&outcome),
            Err(violation) => panic!("{violation}"),
        }
    }
    // Not vacuous: everything that may happen did.
    assert!(all.grants > 10_000 && all.hand_offs > 200 && all.lost > 200, "{all}");
    assert!(all.dropped > 1_000 && all.errors > 500 && all.refused > 1_000, "{all}");
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    for seed in 0..20 {
        let story = |seed| run(seed, Defects::NONE).map(|outcome| format!("{outcome:?}")).unwrap();
        assert_eq!(story(seed), story(seed));
    }
}

/// One test per defect, so that each has a name that says who catches it.
macro_rules! catches {
    ($($test:ident: $defect:ident,)*) => {
        $(
            #[test]
            fn $test() {
                let found = (0..10_000).find_map(|seed| run(seed, Defects::only(Defect::$defect)).err());
                assert!(found.is_some(), "10,000 seeds did not show it");
            }
        )*

        #[test]
        fn every_defect_has_its_test() {
            assert_eq!(Defect::ALL.len(), [$(Defect::$defect),*].len());
            for defect in Defect::ALL {
                assert!([$(Defect::$defect),*].contains(&defect), "{defect:?}");
            }
        }
    };
}

catches! {
    catches_a_lease_counted_from_the_reply: LeaseFromReply,
    catches_a_pushed_lease_counted_from_its_arrival: PushFromArrival,
    catches_a_deadline_that_nobody_looks_at: DeadlineIgnored,
    catches_a_renewal_that_ignores_gone: GoneIgnored,
    catches_a_late_grant_that_is_kept: LateGrantKept,
    catches_a_place_that_is_kept_after_cancel: PlaceKeptAfterCancel,
    catches_a_new_id_for_a_repeated_question: NewIdOnRetry,
    catches_a_claim_in_use_that_is_given_back: UsedClaimGivenBack,
    catches_a_lost_push_without_fallback: NoFallback,
    catches_a_hand_off_that_keeps_the_token: TokenKeptOnHandOff,
    catches_a_token_from_a_local_counter: TokenFromCounter,
    catches_a_process_that_never_lets_go: HandOffForEver,
    catches_a_hand_off_of_a_lost_lock: HandOffOfLost,
    catches_a_release_that_finds_nothing_and_says_nothing: AbsentIgnored,
    catches_a_waiter_that_gives_up_in_an_outage: PatienceIgnored,
    catches_a_release_without_id: LeaveWithoutId,
    catches_an_enter_that_is_not_idempotent: EnterTwice,
    catches_a_line_that_can_be_overtaken: Overtaking,
    catches_epochs_that_begin_anew: EpochFromZero,
    catches_a_restart_without_the_restart_rule: NoRestartRule,
    catches_permits_counted_without_weights: WeightsIgnored,
    catches_readers_that_pass_a_writer: ReadersPassWriters,
    catches_a_record_that_outlives_its_claim: RecordOutlives,
    catches_a_restore_without_the_restart_rule: NoRestoreRule,
}
