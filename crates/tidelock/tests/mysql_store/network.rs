//! Connections that are cut, and answers that are lost after the change was committed.

use crate::support::network;

trials! {
    network::a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock,
    network::a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it,
    network::a_client_whose_requests_stay_away_loses_its_locks_before_others_get_them,
    network::a_client_whose_answers_stay_away_loses_its_locks_before_others_get_them,
    network::a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place,
    network::a_waiter_cut_off_when_its_turn_comes_holds_when_it_is_back,
    network::a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody
        as a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again,
    network::an_enter_whose_answer_is_lost_is_one_claim_with_one_token,
    network::a_place_whose_answer_is_lost_is_one_place,
    network::a_renewal_whose_answer_is_lost_costs_nothing,
    network::a_leave_whose_answer_is_lost_has_left,
    network::answers_that_stay_away_leave_nothing_behind,
    network::a_question_that_arrives_after_it_was_given_up_takes_nothing,
    network::a_question_that_arrives_after_its_claim_was_left_takes_no_lock,
    network::a_question_that_arrives_after_its_claim_was_left_takes_no_place,
}
