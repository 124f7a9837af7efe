//! Connections that are cut, and answers that are lost after the transaction was applied.

use std::time::Duration;

use test_servers::Proxy;
use tidelock::{LockState, Locks};

use crate::{
    support::{LONG, NAME, Place, SHORT, eventually, got, shared, until_idle, until_waiting, waiter, within},
    witness::Witness,
};

trials! {
    a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock,
    a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it,
    a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place,
    a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again,
    an_enter_whose_answer_is_lost_is_one_claim_with_one_token,
    a_place_whose_answer_is_lost_is_one_place,
    a_leave_whose_answer_is_lost_has_left,
    answers_that_stay_away_leave_nothing_behind,
    a_question_that_arrives_after_it_was_given_up_takes_nothing,
}

/// A client behind a network of its own, another beside it, and the place of both.
async fn two(place: &Place) -> (Proxy, Locks, Locks) {
    let proxy = Proxy::start(shared().addr()).unwrap();
    let behind = place.behind(&proxy).connect().await;
    (proxy, behind, place.connect().await)
}

async fn a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = locks.mutex(NAME).ttl(Duration::from_secs(6)).lock().await.unwrap();
    proxy.cut();
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    assert!(other.mutex(NAME).try_lock().await.unwrap().is_none());
    proxy.heal().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let witness = Witness::default();
    let guard = witness.lock(&locks.mutex(NAME).ttl(SHORT)).await.unwrap();
    let before = witness.before();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    proxy.cut();
    let next = got(waiting).await;
    witness.saw(&next, before);
    assert_eq!(witness.doubles(), 0);
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    proxy.heal().unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(next.is_held(), "what a former holder says late harms nobody");
    next.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let first = waiter(&behind, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    let second = waiter(&place.connect().await, NAME, LONG);
    until_waiting(&other, NAME, 2).await;
    proxy.cut();
    guard.release().await.unwrap();
    // Its key keeps the place: nobody passes, and when it is back it hears that it holds.
    proxy.heal().unwrap();
    let first = got(first).await;
    assert!(!second.is_finished());
    first.release().await.unwrap();
    got(second).await.release().await.unwrap();
}

async fn a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let first = waiter(&behind, NAME, SHORT);
    until_waiting(&other, NAME, 1).await;
    let second = waiter(&place.connect().await, NAME, LONG);
    until_waiting(&other, NAME, 2).await;
    proxy.cut();
    until_waiting(&other, NAME, 1).await;
    guard.release().await.unwrap();
    let second = got(second).await;
    proxy.heal().unwrap();
    second.release().await.unwrap();
    match within("the first ends", first).await.unwrap() {
        Ok(guard) => guard.release().await.unwrap(),
        // It asked again while nobody answered.
        Err(error) => assert!(error.is_unavailable(), "{error}"),
    }
    until_idle(&other, NAME).await;
}

async fn an_enter_whose_answer_is_lost_is_one_claim_with_one_token() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let mut last = None;
    for round in 0..8 {
        proxy.drop_replies_once();
        let guard = if round % 2 == 0 {
            within("it holds", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap()
        } else {
            within("it holds", locks.mutex(NAME).ttl(LONG).try_lock()).await.unwrap().expect("it is free")
        };
        let view = other.look(&[NAME]).await.unwrap().remove(0);
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
        assert_eq!(view.holders[0].epoch, Some(guard.token().epoch()));
        assert!(last < Some(guard.token()));
        last = Some(guard.token());
        guard.release().await.unwrap();
        assert_eq!(other.look(&[NAME]).await.unwrap(), []);
    }
    assert_eq!(proxy.replies_lost(), 8);
}

async fn a_place_whose_answer_is_lost_is_one_place() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    for _ in 0..4 {
        let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let lost = proxy.replies_lost();
        proxy.drop_replies_once();
        let waiting = waiter(&locks, NAME, LONG);
        eventually("the answer is lost", || proxy.replies_lost() > lost).await;
        until_waiting(&other, NAME, 1).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = got(waiting).await;
        assert!(next.token() > token);
        let view = other.look(&[NAME]).await.unwrap().remove(0);
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
        next.release().await.unwrap();
        until_idle(&other, NAME).await;
    }
}

async fn a_leave_whose_answer_is_lost_has_left() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    for _ in 0..5 {
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let lost = proxy.replies_lost();
        proxy.drop_replies_once();
        guard.release().await.unwrap();
        assert_eq!(proxy.replies_lost(), lost + 1);
        let next = other.mutex(NAME).try_lock().await.unwrap().expect("it was given back");
        next.release().await.unwrap();
    }
}

async fn answers_that_stay_away_leave_nothing_behind() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    // Applied, and never answered: the caller is told so, and what was granted is given back.
    proxy.swallow_replies();
    let error = within("the caller hears it", locks.mutex(NAME).ttl(SHORT).lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    until_idle(&other, NAME).await;
    let guard = within("it can be had", other.mutex(NAME).lock()).await.unwrap();
    guard.release().await.unwrap();
    let guard = within("it can be had", locks.mutex(NAME).ttl(Duration::from_secs(6)).lock()).await.unwrap();
    proxy.swallow_replies();
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    proxy.heal().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    proxy.swallow_replies();
    // Applied, and not known to be: it is asked again until it is.
    let releasing = tokio::spawn(guard.release());
    until_idle(&other, NAME).await;
    proxy.heal().unwrap();
    let _ = within("the release ends", releasing).await.unwrap();
}

/// The lease that all claims of a client share would keep what such a question took.
async fn a_question_that_arrives_after_it_was_given_up_takes_nothing() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let kept = locks.mutex("kept").ttl(LONG).lock().await.unwrap();
    proxy.hold_requests();
    let mutex = locks.mutex(NAME).ttl(LONG);
    let asking = tokio::spawn(async move { mutex.try_lock().await });
    // The connection is given up after some seconds; the question is still on its way.
    let error = within("the caller hears it", asking).await.unwrap().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    eventually("the client is back", || kept.state() == LockState::Held).await;
    until_idle(&other, NAME).await;
    let guard = within("it can be had", other.mutex(NAME).lock()).await.unwrap();
    guard.release().await.unwrap();
    kept.release().await.unwrap();
}
