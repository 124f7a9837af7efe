//! Claims of one client that go together in one call, for stores that do that.
//!
//! Those that went together and were granted have the same time in their epochs: that is how a trial sees that they did.

use std::{collections::HashSet, sync::Arc, time::Duration};

use test_servers::Proxy;
use tidelock::{Guard, Locks};

use super::{
    LONG, Place, Waiter, eventually, got, network::two, until_idle, until_waiting, waiter, within,
    witness::Witness,
};

trials! {
    claims_that_come_at_once_go_together_and_each_holds_its_own_lock,
    names_that_nobody_used_before_go_together,
    shares_queues_and_tries_in_one_call_are_answered_as_if_each_came_alone,
    a_call_for_several_claims_whose_answer_is_lost_is_one_claim_with_one_token_each,
    leaves_of_several_claims_whose_answer_is_lost_have_left,
    a_caller_that_gives_up_takes_nothing_from_those_it_went_with,
    a_call_for_several_claims_that_arrives_after_they_were_left_takes_nothing where asks_over_others,
    clients_that_ask_for_the_same_names_in_opposite_orders_do_not_block_each_other,
    the_longest_text_is_kept_whole_when_candidates_go_together,
}

/// Which of several connections a call goes out on is not known, and one that was not told its statement before waits for an
/// answer that does not come.
const TOLD_FIRST: &str = "a connection has to be told a statement, and be answered, before it takes it";

/// So many come at once.
pub(crate) const MANY: usize = 12;

pub(crate) fn names() -> Vec<String> {
    (0..MANY).map(|number| format!("lock {number:02}")).collect()
}

/// A client behind a network of its own, and another beside it. All names were used before, and the client has more than one
/// connection if it ever does.
async fn warm(place: &Place) -> (Proxy, Locks, Locks) {
    let (proxy, locks, other) = two(place).await;
    release(all(&other, &names()).await).await;
    // Names that others have are asked for alone, beside each other.
    let busy: Vec<String> = (0..MANY).map(|number| format!("busy {number:02}")).collect();
    let held = all(&other, &busy).await;
    let tries: Vec<_> = busy
        .iter()
        .map(|name| {
            let mutex = locks.mutex(name);
            tokio::spawn(async move { mutex.try_lock().await })
        })
        .collect();
    for tried in tries {
        assert!(within("a try ends", tried).await.unwrap().unwrap().is_none());
    }
    release(held).await;
    (proxy, locks, other)
}

/// The same, where the next calls go out without waiting for any answer. A connection of some stores has to be told a statement
/// before it takes it, and is answered: so each of those that will be used has had each before. Answers that take long make
/// calls go out beside each other.
async fn practised(place: &Place) -> (Proxy, Locks, Locks) {
    let (proxy, locks, other) = warm(place).await;
    proxy.delay(Duration::from_millis(120));
    for _ in 0..4 {
        release(all(&locks, &names()).await).await;
    }
    proxy.delay(Duration::ZERO);
    (proxy, locks, other)
}

pub(crate) fn ask(locks: &Locks, names: &[String]) -> Vec<Waiter> {
    names.iter().map(|name| waiter(locks, name, LONG)).collect()
}

pub(crate) async fn all(locks: &Locks, names: &[String]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for waiter in ask(locks, names) {
        guards.push(got(waiter).await);
    }
    guards
}

/// All at once.
pub(crate) async fn release(guards: Vec<Guard>) {
    let releasing: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    for released in releasing {
        within("it is released", released).await.unwrap().unwrap();
    }
}

/// The epochs of the holders of some names, one each.
async fn epochs(locks: &Locks, names: &[String]) -> Vec<u64> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let views = locks.look(&names).await.unwrap();
    assert!(views.iter().all(|view| view.holders.len() == 1 && view.waiters.is_empty()), "{views:?}");
    let mut epochs: Vec<_> = views.iter().map(|view| (view.name.clone(), view.holders[0].epoch)).collect();
    epochs.sort();
    epochs.into_iter().filter_map(|(_, epoch)| epoch).collect()
}

/// Some of these were granted in one call.
pub(crate) fn went_together(epochs: &[u64]) {
    let times: HashSet<_> = epochs.iter().collect();
    assert!(times.len() < epochs.len(), "each went alone: {epochs:?}");
}

pub(crate) async fn all_idle(locks: &Locks) {
    for name in names() {
        until_idle(locks, &name).await;
    }
}

async fn claims_that_come_at_once_go_together_and_each_holds_its_own_lock() {
    let place = Place::shared();
    let (proxy, locks, other) = warm(&place).await;
    proxy.delay(Duration::from_millis(10));
    for _ in 0..3 {
        let guards = all(&locks, &names()).await;
        let granted: Vec<u64> = guards.iter().map(|guard| guard.token().epoch()).collect();
        assert_eq!(epochs(&other, &names()).await, granted);
        went_together(&granted);
        for name in names() {
            assert!(other.mutex(&name).try_lock().await.unwrap().is_none());
        }
        release(guards).await;
        all_idle(&other).await;
    }
}

async fn names_that_nobody_used_before_go_together() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    // What a first lease has to make known first is known.
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    proxy.delay(Duration::from_millis(10));
    let guards = all(&locks, &names()).await;
    let granted: Vec<u64> = guards.iter().map(|guard| guard.token().epoch()).collect();
    assert_eq!(epochs(&other, &names()).await, granted);
    went_together(&granted);
    release(guards).await;
    all_idle(&other).await;
}

async fn shares_queues_and_tries_in_one_call_are_answered_as_if_each_came_alone() {
    let place = Place::shared();
    let (proxy, locks, other) = warm(&place).await;
    let names = names();
    let busy = other.mutex(&names[0]).ttl(LONG).lock().await.unwrap();
    let read = other.rw_lock(&names[1]).ttl(LONG).read().await.unwrap();
    let permit = other.semaphore(&names[2], 3).ttl(LONG).acquire(1).await.unwrap();
    proxy.delay(Duration::from_millis(10));
    let free = ask(&locks, &names[6..]);
    let queued = waiter(&locks, &names[0], LONG);
    let [shares, beside, alone] = [
        locks.rw_lock(&names[1]).ttl(LONG),
        locks.rw_lock(&names[3]).ttl(LONG),
        locks.rw_lock(&names[4]).ttl(LONG),
    ];
    let (some, whole) = (locks.semaphore(&names[2], 3).ttl(LONG), locks.semaphore(&names[5], 3).ttl(LONG));
    let tried = locks.mutex(&names[0]).ttl(LONG);
    let (shares, beside, alone, some, all, tried) = within("all are answered", async {
        tokio::join!(
            shares.read(),
            beside.read(),
            alone.write(),
            some.acquire(2),
            whole.acquire(3),
            tried.try_lock_for(Duration::from_millis(1)),
        )
    })
    .await;
    assert!(tried.unwrap().is_none());
    let guards = [shares.unwrap(), beside.unwrap(), alone.unwrap(), some.unwrap(), all.unwrap()];
    let mut free_guards = Vec::new();
    for waiting in free {
        free_guards.push(got(waiting).await);
    }
    // Each as its share allows.
    assert!(other.rw_lock(&names[1]).try_write().await.unwrap().is_none());
    other.rw_lock(&names[3]).try_read().await.unwrap().expect("readers share").release().await.unwrap();
    assert!(other.rw_lock(&names[4]).try_read().await.unwrap().is_none());
    assert!(other.semaphore(&names[2], 3).try_acquire(1).await.unwrap().is_none());
    assert!(other.semaphore(&names[5], 3).try_acquire(1).await.unwrap().is_none());
    until_waiting(&other, &names[0], 1).await;
    assert!(!queued.is_finished());
    busy.release().await.unwrap();
    free_guards.push(got(queued).await);
    release(guards.into_iter().chain(free_guards).chain([read, permit]).collect()).await;
    all_idle(&other).await;
}

async fn a_call_for_several_claims_whose_answer_is_lost_is_one_claim_with_one_token_each()
-> Result<(), &'static str> {
    let place = Place::shared();
    let (proxy, locks, other) = practised(&place).await;
    if proxy.connections() > 1 {
        return Err(TOLD_FIRST);
    }
    let names = names();
    proxy.swallow_replies();
    let asked = ask(&locks, &names);
    // All of them were granted, and nobody knows.
    let looked: Vec<&str> = names.iter().map(String::as_str).collect();
    within("they are granted", async {
        while other.look(&looked).await.unwrap().len() < MANY {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let granted = epochs(&other, &names).await;
    went_together(&granted);
    assert!(asked.iter().all(|waiter| !waiter.is_finished()));
    proxy.heal().unwrap();
    let mut guards = Vec::new();
    for (waiter, epoch) in asked.into_iter().zip(&granted) {
        guards.push(got(waiter).await);
        assert_eq!(guards.last().unwrap().token().epoch(), *epoch, "asked again with the same id");
    }
    assert_eq!(epochs(&other, &names).await, granted);
    release(guards).await;
    all_idle(&other).await;
    Ok(())
}

async fn leaves_of_several_claims_whose_answer_is_lost_have_left() {
    let place = Place::shared();
    let (proxy, locks, other) = practised(&place).await;
    let guards = all(&locks, &names()).await;
    proxy.swallow_replies();
    let releasing: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    // At least one has left, and nobody knows; over one connection all have.
    let (names, is_one) = (names(), proxy.connections() == 1);
    let looked: Vec<&str> = names.iter().map(String::as_str).collect();
    within("they leave", async {
        while other.look(&looked).await.unwrap().len() > if is_one { 0 } else { MANY - 1 } {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.heal().unwrap();
    for released in releasing {
        // Whether one that is repeated finds its claim or not: it was given back, and is not called lost.
        within("it is released", released).await.unwrap().unwrap();
    }
    release(all(&other, &names).await).await;
}

async fn a_caller_that_gives_up_takes_nothing_from_those_it_went_with() -> Result<(), &'static str> {
    let place = Place::shared();
    let (proxy, locks, other) = practised(&place).await;
    if proxy.connections() > 1 {
        return Err(TOLD_FIRST);
    }
    let names = names();
    proxy.hold_replies();
    let asked = ask(&locks, &names);
    let looked: Vec<&str> = names.iter().map(String::as_str).collect();
    within("they are granted", async {
        while other.look(&looked).await.unwrap().len() < MANY {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for waiter in asked.iter().step_by(2) {
        waiter.abort();
    }
    proxy.heal().unwrap();
    let mut guards = Vec::new();
    for (number, waiter) in asked.into_iter().enumerate() {
        if number % 2 == 1 {
            guards.push(got(waiter).await);
        }
    }
    // What nobody wants any more is given back.
    for name in names.iter().step_by(2) {
        until_idle(&other, name).await;
    }
    let kept: Vec<String> = names.iter().skip(1).step_by(2).cloned().collect();
    let granted: Vec<u64> = guards.iter().map(|guard| guard.token().epoch()).collect();
    assert_eq!(epochs(&other, &kept).await, granted);
    release(guards).await;
    all_idle(&other).await;
    Ok(())
}

async fn a_call_for_several_claims_that_arrives_after_they_were_left_takes_nothing() {
    let place = Place::shared();
    let (proxy, locks, other) = warm(&place).await;
    proxy.strand();
    // Asked again over another connection, or given up.
    for asked in ask(&locks, &names()) {
        match within("the caller hears it", asked).await.unwrap() {
            Ok(guard) => guard.release().await.unwrap(),
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    }
    within("the client ends", locks.shutdown(LONG)).await;
    drop(locks);
    all_idle(&other).await;
    proxy.heal().unwrap();
    eventually("the call has arrived, and was answered", || proxy.stranded() == 0).await;
    let names = names();
    let looked: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(other.look(&looked).await.unwrap(), [], "somebody is in line for whom nobody stands");
    release(all(&other, &names).await).await;
}

async fn clients_that_ask_for_the_same_names_in_opposite_orders_do_not_block_each_other() {
    let place = Place::shared();
    let witnesses: Vec<_> = names().iter().map(|_| Arc::new(Witness::default())).collect();
    let mut turns = Vec::new();
    for client in 0..2 {
        let locks = place.connect().await;
        let mut order: Vec<usize> = (0..MANY).collect();
        if client == 1 {
            order.reverse();
        }
        for number in order {
            let (mutex, witness) = (locks.mutex(&names()[number]).ttl(LONG), Arc::clone(&witnesses[number]));
            turns.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = witness.lock(&mutex).await.unwrap();
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for turn in turns {
        within("a task has had all its turns", turn).await.unwrap();
    }
    assert!(witnesses.iter().all(|witness| witness.doubles() == 0));
    all_idle(&place.connect().await).await;
}

/// For names that are new, and for the same names once more.
async fn the_longest_text_is_kept_whole_when_candidates_go_together() {
    let locks = Place::shared().connect().await;
    let text = "é".repeat(tidelock::MAX_ADVERTISED_BYTES / 2);
    for _ in 0..2 {
        let campaigns: Vec<_> = names()
            .iter()
            .map(|name| {
                let election = locks.election(name).advertise(&text).ttl(LONG);
                tokio::spawn(async move { election.campaign().await.unwrap() })
            })
            .collect();
        let mut leads = Vec::new();
        for campaign in campaigns {
            leads.push(within("each leads", campaign).await.unwrap());
        }
        for name in names() {
            let leader = locks.election(&name).leader().await.unwrap().unwrap();
            assert_eq!(leader.advertised.as_deref(), Some(&*text), "{name}");
        }
        release(leads).await;
    }
}
