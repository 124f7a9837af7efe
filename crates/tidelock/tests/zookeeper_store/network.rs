//! Connections that are cut, and answers that are lost after the request was applied.

use crate::support::{
    LONG, NAME, Place, eventually, got,
    network::{self, two},
    until_idle, until_waiting, waiter, within,
};

trials! {
    network::a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock
        as a_client_cut_off_for_less_than_its_session_keeps_its_locks,
    network::a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it
        as a_client_cut_off_for_longer_than_its_session_loses_its_locks_before_others_get_them,
    network::a_client_whose_requests_stay_away_loses_its_locks_before_others_get_them,
    network::a_client_whose_answers_stay_away_loses_its_locks_before_others_get_them,
    network::a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place
        as a_waiter_cut_off_for_less_than_its_session_keeps_its_place,
    network::a_waiter_cut_off_when_its_turn_comes_holds_when_it_is_back,
    an_enter_whose_answer_is_lost_is_one_claim_with_one_token,
    a_place_whose_answer_is_lost_is_one_place,
    network::a_leave_whose_answer_is_lost_has_left,
    a_try_whose_answer_is_lost_leaves_nothing,
}

async fn an_enter_whose_answer_is_lost_is_one_claim_with_one_token() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    // The lock's node is there: what is lost is the answer to the node of the claim.
    locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    let mut lost = 0;
    for _ in 0..10 {
        let before = proxy.replies_lost();
        proxy.drop_replies_once();
        let guard = within("it is asked again", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
        lost += proxy.replies_lost() - before;
        let view = other.look(&[NAME]).await.unwrap().remove(0);
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
        guard.release().await.unwrap();
        assert_eq!(place.nodes(NAME).await, [""; 0]);
    }
    assert_eq!(lost, 10, "every answer was to be lost");
}

async fn a_place_whose_answer_is_lost_is_one_place() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    // A session for leases of this length.
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    proxy.drop_replies_once();
    let waiting = waiter(&locks, NAME, LONG);
    eventually("an answer is lost", || proxy.replies_lost() == 1).await;
    until_waiting(&other, NAME, 1).await;
    guard.release().await.unwrap();
    let held = got(waiting).await;
    assert_eq!(place.nodes(NAME).await.len(), 1);
    held.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_try_whose_answer_is_lost_leaves_nothing() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    for _ in 0..5 {
        proxy.drop_replies_once();
        assert!(within("it is answered", locks.mutex(NAME).ttl(LONG).try_lock()).await.unwrap().is_none());
    }
    assert_eq!(proxy.replies_lost(), 5);
    assert_eq!(place.nodes(NAME).await.len(), 1);
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
}
