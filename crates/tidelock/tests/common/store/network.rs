//! Connections that are cut, and answers that are lost after the question was applied.

use std::{pin::Pin, time::Duration};

use test_servers::Proxy;
use tidelock::{Guard, LockState, Locks};

use super::{
    LONG, NAME, Place, RENEWED, SHORT, Waiter, eventually, got, shared, until, until_idle, until_waiting,
    waiter, within, witness::Witness,
};

trials! {
    a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock,
    a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it,
    a_client_whose_requests_stay_away_loses_its_locks_before_others_get_them,
    a_client_whose_answers_stay_away_loses_its_locks_before_others_get_them,
    a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place where keeps_unheard,
    a_waiter_cut_off_when_its_turn_comes_holds_when_it_is_back where keeps_unheard,
    a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again,
    an_enter_whose_answer_is_lost_is_one_claim_with_one_token where renews,
    a_place_whose_answer_is_lost_is_one_place where renews,
    a_renewal_whose_answer_is_lost_costs_nothing where renews,
    a_leave_whose_answer_is_lost_has_left,
    answers_that_stay_away_leave_nothing_behind where renews,
    a_call_that_is_left_half_way_keeps_nobody_from_the_store,
    a_watch_that_is_left_half_way_keeps_no_other_watch_waiting,
    a_question_that_arrives_after_it_was_given_up_takes_nothing where renews,
    a_question_that_arrives_after_its_claim_was_left_takes_no_lock where asks_over_others,
    a_question_that_arrives_after_its_claim_was_left_takes_no_place where asks_over_others,
}

/// A client behind a network of its own, and another beside it.
pub(crate) async fn two(place: &Place) -> (Proxy, Locks, Locks) {
    let proxy = Proxy::start(shared().addr()).unwrap();
    let behind = place.behind(&proxy).connect().await;
    (proxy, behind, place.connect().await)
}

/// One that waits behind a network of its own, another one behind that, and who holds the lock meanwhile.
pub(crate) struct Line {
    pub(crate) place: Place,
    pub(crate) proxy: Proxy,
    pub(crate) behind: Locks,
    pub(crate) other: Locks,
    pub(crate) guard: Guard,
    pub(crate) first: Waiter,
    pub(crate) second: Waiter,
}

impl Line {
    /// Forms, with the lease of the first one.
    pub(crate) async fn form(ttl: Duration) -> Self {
        let place = Place::shared();
        let (proxy, behind, other) = two(&place).await;
        let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let first = waiter(&behind, NAME, ttl);
        until_waiting(&other, NAME, 1).await;
        let second = waiter(&place.connect().await, NAME, LONG);
        until_waiting(&other, NAME, 2).await;
        Self { place, proxy, behind, other, guard, first, second }
    }
}

/// Cuts off the first one until its lease is over, and lets the second one hold the lock before the first is back.
pub(crate) async fn pass_over(proxy: &Proxy, other: &Locks, guard: Guard, second: Waiter) {
    proxy.cut();
    until_waiting(other, NAME, 1).await;
    guard.release().await.unwrap();
    let second = got(second).await;
    proxy.heal().unwrap();
    second.release().await.unwrap();
}

/// The first of two gets the lock, and the second one only then.
pub(crate) async fn in_order(first: Waiter, second: Waiter) {
    let first = got(first).await;
    assert!(!second.is_finished());
    first.release().await.unwrap();
    got(second).await.release().await.unwrap();
}

async fn a_holder_cut_off_for_less_than_its_ttl_keeps_the_lock() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = locks.mutex(NAME).ttl(RENEWED).lock().await.unwrap();
    proxy.cut();
    eventually("a renewal fails", || guard.state() == LockState::Uncertain).await;
    assert!(other.mutex(NAME).try_lock().await.unwrap().is_none());
    proxy.heal().unwrap();
    eventually("a renewal succeeds", || guard.state() == LockState::Held).await;
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
}

/// A holder behind a network that breaks; the waiter gets the lock only when the holder knows that it is lost.
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
    // Who has lost a lock may want it again.
    let again = within("it can be had again", locks.mutex(NAME).ttl(SHORT).lock()).await.unwrap();
    again.release().await.unwrap();
}

async fn a_holder_cut_off_for_longer_than_its_ttl_loses_it_before_the_next_gets_it() {
    lost_in_time(Proxy::cut).await;
}

async fn a_client_whose_requests_stay_away_loses_its_locks_before_others_get_them() {
    lost_in_time(Proxy::hold_requests).await;
}

/// What it asks still arrives, and must not keep the lock for ever.
async fn a_client_whose_answers_stay_away_loses_its_locks_before_others_get_them() {
    lost_in_time(Proxy::swallow_replies).await;
}

async fn a_waiter_cut_off_for_less_than_its_ttl_keeps_its_place() {
    for breaks in [Proxy::disconnect, Proxy::cut] {
        let line = Line::form(LONG).await;
        breaks(&line.proxy);
        line.guard.release().await.unwrap();
        // Nobody passes, and when it is back it hears that it holds.
        line.proxy.heal().unwrap();
        in_order(line.first, line.second).await;
    }
}

async fn a_waiter_cut_off_when_its_turn_comes_holds_when_it_is_back() {
    let place = Place::shared();
    let (proxy, behind, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&behind, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    // A client without an answer may give up: this answer comes later than that.
    behind.look(&[NAME]).await.unwrap();
    proxy.cut();
    guard.release().await.unwrap();
    until(&other, NAME, |view| view.holders.len() == 1 && view.waiters.is_empty()).await;
    assert!(!waiting.is_finished());
    proxy.heal().unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_waiter_cut_off_for_longer_than_its_ttl_delays_nobody_and_asks_again() {
    let line = Line::form(SHORT).await;
    pass_over(&line.proxy, &line.other, line.guard, line.second).await;
    got(line.first).await.release().await.unwrap();
    until_idle(&line.other, NAME).await;
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
    let guard = locks.mutex(NAME).ttl(RENEWED).lock().await.unwrap();
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
        within("it is given back", guard.release()).await.unwrap();
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
    let error =
        within("the caller hears it", locks.mutex(NAME).ttl(SHORT).fail_fast(true).lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    until_idle(&other, NAME).await;
    for locks in [&locks, &other] {
        let guard = within("it can be had", locks.mutex(NAME).lock()).await.unwrap();
        guard.release().await.unwrap();
    }
    // Delivered late: the answer to a question that was given up harms nobody.
    proxy.hold_replies();
    let error = within("the caller hears it", locks.mutex(NAME).ttl(SHORT).try_lock()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    until_idle(&other, NAME).await;
    let guard = within("it can be had", locks.mutex(NAME).ttl(RENEWED).lock()).await.unwrap();
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

/// What keeps the other locks of the client would keep what such a question took, too.
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

/// A network that a client has to connect through once more, and on which nobody answers.
fn go_silent(proxy: &Proxy) {
    proxy.hold_replies();
    proxy.disconnect();
}

/// Polls until a call has been waiting for an answer for longer than it takes to notice that the connection has ended.
async fn left_half_way<T>(
    mut call: impl FnMut() -> Pin<Box<dyn Future<Output = T> + Send>>,
) -> impl Future<Output = T> + Send {
    loop {
        let mut calling = call();
        if tokio::time::timeout(Duration::from_millis(300), &mut calling).await.is_err() {
            return calling;
        }
    }
}

/// A future that is polled and then left alone may be the one that opens the connection, or the next in line for that.
async fn a_call_that_is_left_half_way_keeps_nobody_from_the_store() {
    let place = Place::shared();
    let (proxy, locks, _other) = two(&place).await;
    go_silent(&proxy);
    let looking = left_half_way(|| {
        let locks = locks.clone();
        Box::pin(async move { locks.look(&[NAME]).await })
    })
    .await;
    proxy.heal().unwrap();
    let guard = within("another call is answered", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    guard.release().await.unwrap();
    drop(looking);
}

async fn a_watch_that_is_left_half_way_keeps_no_other_watch_waiting() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let election = locks.election(NAME);
    let mut left = election.watch();
    assert!(within("nobody leads", left.next()).await.unwrap().unwrap().is_none());
    go_silent(&proxy);
    // It asks about twice a second.
    let waiting = tokio::time::timeout(Duration::from_secs(2), left.next()).await;
    assert!(waiting.is_err(), "nobody answers");
    proxy.heal().unwrap();
    let lead = within("the other client leads", other.election(NAME).campaign()).await.unwrap();
    let mut watch = election.watch();
    within("another watch sees it", async { while watch.next().await.unwrap().unwrap().is_none() {} }).await;
    lead.release().await.unwrap();
    drop(left);
}

/// How many are in line.
async fn in_line(locks: &Locks) -> usize {
    let views = locks.look(&[NAME]).await.unwrap();
    views.iter().map(|view| view.holders.len() + view.waiters.len()).sum()
}

/// A question stays on its way while its client asks again or gives up, and leaves, over another connection. When it
/// arrives after all, nobody would give back what it takes.
async fn arrives_after_its_claim_was_left(is_held: bool) {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    // Its connection is there, and used.
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let mut held = None;
    if is_held {
        held = Some(other.mutex(NAME).ttl(LONG).lock().await.unwrap());
    }
    let others = in_line(&other).await;
    proxy.strand();
    let asking = waiter(&locks, NAME, LONG);
    // It is asked again over another connection, or given up.
    within("it is asked", async {
        while !asking.is_finished() && in_line(&other).await == others {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    if is_held {
        asking.abort();
    } else {
        match within("the caller hears it", asking).await.unwrap() {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
    // When all is done that was left to do the claim is left.
    within("the client ends", locks.shutdown(LONG)).await;
    drop(locks);
    assert_eq!(in_line(&other).await, others, "it is left");
    proxy.heal().unwrap();
    eventually("the question has arrived, and was answered", || proxy.stranded() == 0).await;
    assert_eq!(in_line(&other).await, others, "somebody is in line for whom nobody stands");
    if let Some(held) = held {
        held.release().await.unwrap();
    }
    let guard = other.mutex(NAME).try_lock().await.unwrap().expect("it is free");
    guard.release().await.unwrap();
}

async fn a_question_that_arrives_after_its_claim_was_left_takes_no_lock() {
    arrives_after_its_claim_was_left(false).await;
}

async fn a_question_that_arrives_after_its_claim_was_left_takes_no_place() {
    arrives_after_its_claim_was_left(true).await;
}
