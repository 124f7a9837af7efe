//! Connections that are cut, and answers that are lost after the command was applied.

use std::time::Duration;

use test_servers::{Proxy, Redis, Server};
use tidelock::{LockState, Locks};

use crate::{
    support::{
        LONG, NAME, Place, SHORT, Waiter, eventually, got, shared, until, until_idle, until_waiting, waiter,
        within,
    },
    witness::{Storm, Witness},
};

trials! {
    a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock,
    a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it,
    a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place,
    a_waiter_that_is_cut_off_when_its_turn_comes_is_passed_over_and_asks_again,
    a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again,
    an_enter_whose_answer_is_lost_is_one_claim_with_one_token,
    a_place_whose_answer_is_lost_is_one_place,
    a_renewal_whose_answer_is_lost_costs_nothing,
    a_leave_whose_answer_is_lost_has_left,
    answers_that_stay_away_leave_nothing_behind,
    scripts_that_are_flushed_while_in_use_are_sent_again,
    a_connection_that_the_server_closes_costs_no_hand_over,
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

/// A lock that is held, one that waits for it behind the proxy, and another one behind that.
async fn two_wait(
    place: &Place,
    other: &Locks,
    behind: &Locks,
    ttl: Duration,
) -> (tidelock::Guard, Waiter, Waiter) {
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let first = waiter(behind, NAME, ttl);
    until_waiting(other, NAME, 1).await;
    let second = waiter(&place.connect().await, NAME, LONG);
    until_waiting(other, NAME, 2).await;
    (guard, first, second)
}

async fn a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let (guard, first, second) = two_wait(&place, &other, &behind, LONG).await;
    proxy.cut();
    eventually("the server knows", || place.listeners(&shared()) == 2).await;
    proxy.heal().unwrap();
    eventually("the waiter listens again", || place.listeners(&shared()) == 3).await;
    guard.release().await.unwrap();
    let first = got(first).await;
    assert!(!second.is_finished());
    first.release().await.unwrap();
    got(second).await.release().await.unwrap();
}

async fn a_waiter_that_is_cut_off_when_its_turn_comes_is_passed_over_and_asks_again() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let (guard, first, second) = two_wait(&place, &other, &behind, LONG).await;
    proxy.cut();
    eventually("the server knows", || place.listeners(&shared()) == 2).await;
    guard.release().await.unwrap();
    let second = got(second).await;
    proxy.heal().unwrap();
    until_waiting(&other, NAME, 1).await;
    second.release().await.unwrap();
    got(first).await.release().await.unwrap();
}

async fn a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let (guard, first, second) = two_wait(&place, &other, &behind, SHORT).await;
    proxy.cut();
    until(&other, NAME, |view| view.waiters.len() == 1).await;
    guard.release().await.unwrap();
    let second = got(second).await;
    proxy.heal().unwrap();
    second.release().await.unwrap();
    got(first).await.release().await.unwrap();
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

async fn a_renewal_whose_answer_is_lost_costs_nothing() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let epoch = guard.token().epoch();
    for _ in 0..3 {
        let lost = proxy.replies_lost();
        proxy.drop_replies_once();
        eventually("the answer is lost", || proxy.replies_lost() > lost).await;
        eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
        let view = other.look(&[NAME]).await.unwrap().remove(0);
        assert_eq!((view.holders.len(), view.holders[0].epoch), (1, Some(epoch)));
    }
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
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
    // Applied, and never answered: the caller is told so, and what was granted is given back or lapses.
    proxy.swallow_replies();
    let error = within("the caller hears it", locks.mutex(NAME).ttl(SHORT).lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    until_idle(&other, NAME).await;
    let guard = within("it can be had", locks.mutex(NAME).lock()).await.unwrap();
    guard.release().await.unwrap();
    // Delivered late: the answer to a question that was given up harms nobody.
    proxy.hold_replies();
    let error = within("the caller hears it", locks.mutex(NAME).ttl(SHORT).try_lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    until_idle(&other, NAME).await;
    let guard = within("it can be had", locks.mutex(NAME).ttl(Duration::from_secs(6)).lock()).await.unwrap();
    proxy.swallow_replies();
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    proxy.heal().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    proxy.swallow_replies();
    // Applied, and not known to be: it is asked again until it is.
    let releasing = tokio::spawn(guard.release());
    until_idle(&other, NAME).await;
    other.mutex(NAME).try_lock().await.unwrap().expect("it was given back").release().await.unwrap();
    proxy.heal().unwrap();
    let _ = within("the release ends", releasing).await.unwrap();
}

async fn scripts_that_are_flushed_while_in_use_are_sent_again() {
    let place = Place::shared();
    let storm = Storm::begin(&place, NAME, LONG, 3).await;
    let mut administrator = shared().administrator().unwrap();
    for _ in 0..8 {
        administrator.call(&["SCRIPT", "FLUSH"]).unwrap();
        storm.goes_on().await;
    }
    assert_eq!(storm.end().await, 0);
}

async fn a_connection_that_the_server_closes_costs_no_hand_over() {
    let server = Redis::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let own = listeners(&server);
    let other = place.connect().await;
    for at_once in [false, true, false, true] {
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let waiting = waiter(&other, NAME, LONG);
        until_waiting(&locks, NAME, 1).await;
        let closed = listeners(&server).into_iter().find(|id| !own.contains(id)).unwrap();
        server.command(&["CLIENT", "KILL", "ID", &closed]).unwrap();
        if !at_once {
            eventually("the waiter listens again", || place.listeners(&server) == 2).await;
            assert_eq!(locks.look(&[NAME]).await.unwrap()[0].waiters.len(), 1, "it kept its place");
        }
        guard.release().await.unwrap();
        got(waiting).await.release().await.unwrap();
    }
}

/// The connections that a server would tell something.
fn listeners(server: &Server) -> Vec<String> {
    let list = server.command(&["CLIENT", "LIST"]).unwrap().unwrap();
    let listening = list.lines().filter(|line| line.contains(" sub=1 "));
    listening.map(|line| line.strip_prefix("id=").unwrap().split(' ').next().unwrap().to_owned()).collect()
}
