//! Connections that are cut, and answers that are lost after the request was applied.

use std::time::Duration;

use test_servers::Proxy;
use tidelock::{LockState, Locks};

use crate::{
    support::{
        LONG, NAME, Place, SHORT, eventually, got, shared, until, until_idle, until_waiting, waiter, within,
    },
    witness::Witness,
};

trials! {
    a_client_cut_off_for_less_than_its_session_keeps_its_locks,
    a_client_cut_off_for_longer_than_its_session_loses_its_locks_before_others_get_them,
    a_client_whose_requests_stay_away_loses_its_locks_before_others_get_them,
    a_client_whose_answers_stay_away_loses_its_locks_before_others_get_them,
    a_waiter_cut_off_for_less_than_its_session_keeps_its_place,
    a_waiter_cut_off_when_its_turn_comes_holds_when_it_is_back,
    an_enter_whose_answer_is_lost_is_one_claim_with_one_token,
    a_place_whose_answer_is_lost_is_one_place,
    a_leave_whose_answer_is_lost_has_left,
    a_try_whose_answer_is_lost_leaves_nothing,
}

/// A client behind a network of its own, another beside it, and the place of both.
async fn two(place: &Place) -> (Proxy, Locks, Locks) {
    let proxy = Proxy::start(shared().addr()).unwrap();
    let behind = place.behind(&proxy).connect().await;
    (proxy, behind, place.connect().await)
}

async fn a_client_cut_off_for_less_than_its_session_keeps_its_locks() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = locks.mutex(NAME).ttl(Duration::from_secs(9)).lock().await.unwrap();
    proxy.cut();
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    assert!(other.mutex(NAME).try_lock().await.unwrap().is_none());
    proxy.heal().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
}

/// A holder behind a network that breaks; whoever waits gets the lock only when the holder knows that it is lost.
async fn lost_in_time(breaks: fn(&Proxy)) {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let witness = Witness::default();
    let guard = witness.lock(&locks.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    breaks(&proxy);
    let next = got(waiting).await;
    witness.saw(&next, before);
    assert_eq!(witness.doubles(), 0);
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    proxy.heal().unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(next.is_held(), "what a former holder says late harms nobody");
    next.release().await.unwrap();
    until_idle(&other, NAME).await;
    // A new session is made for what is wanted later.
    let again = within("a new session", locks.mutex(NAME).ttl(SHORT).lock()).await.unwrap();
    again.release().await.unwrap();
}

async fn a_client_cut_off_for_longer_than_its_session_loses_its_locks_before_others_get_them() {
    lost_in_time(Proxy::cut).await;
}

async fn a_client_whose_requests_stay_away_loses_its_locks_before_others_get_them() {
    lost_in_time(Proxy::hold_requests).await;
}

async fn a_client_whose_answers_stay_away_loses_its_locks_before_others_get_them() {
    // What it asks still arrives and would keep the session alive: the client has to let go of it.
    lost_in_time(Proxy::swallow_replies).await;
}

async fn a_waiter_cut_off_for_less_than_its_session_keeps_its_place() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let first = waiter(&behind, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    let second = waiter(&place.connect().await, NAME, LONG);
    until_waiting(&other, NAME, 2).await;
    proxy.disconnect();
    guard.release().await.unwrap();
    let first = got(first).await;
    assert!(!second.is_finished());
    first.release().await.unwrap();
    got(second).await.release().await.unwrap();
}

async fn a_waiter_cut_off_when_its_turn_comes_holds_when_it_is_back() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&behind, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    proxy.cut();
    guard.release().await.unwrap();
    until(&other, NAME, |view| view.holders.len() == 1 && view.waiters.is_empty()).await;
    assert!(!waiting.is_finished());
    proxy.heal().unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&other, NAME).await;
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
        assert_eq!(place.bare().await.children(&place.node(NAME)).await.unwrap(), [""; 0]);
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
    assert_eq!(place.bare().await.children(&place.node(NAME)).await.unwrap().len(), 1);
    held.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_leave_whose_answer_is_lost_has_left() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    proxy.drop_replies_once();
    within("it is given back", guard.release()).await.unwrap();
    assert_eq!(proxy.replies_lost(), 1);
    assert!(other.mutex(NAME).try_lock().await.unwrap().is_some());
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
    assert_eq!(place.bare().await.children(&place.node(NAME)).await.unwrap().len(), 1);
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
}
