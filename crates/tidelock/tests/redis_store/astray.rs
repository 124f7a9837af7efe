//! A server that gives a slot away ends the subscriptions in it, unasked, between the answers to other questions.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use test_servers::Redis;
use tidelock::Locks;

use crate::support::{LONG, Place, eventually, report};

trials! {
    answers_reach_those_who_asked_while_slots_are_given_away,
}

/// How many locks are tried at a time: many answers are under way when a subscription ends.
const NAMES: usize = 48;
const MOVES: usize = 8;

/// Tries a lock again and again until told to stop. Says how often it was granted.
async fn tries(locks: Locks, name: String, stop: Arc<AtomicBool>, rounds: Arc<AtomicUsize>) -> usize {
    let mut granted = 0;
    while !stop.load(Ordering::SeqCst) {
        match locks.mutex(&name).ttl(LONG).try_lock().await {
            Ok(Some(guard)) => {
                granted += 1;
                // A release whose answer went astray is repeated.
                let _ = guard.release().await;
            }
            Ok(None) => {}
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    granted
}

async fn answers_reach_those_who_asked_while_slots_are_given_away() {
    let cluster = Redis::new().start_cluster().unwrap();
    let place = Place::on(cluster.url());
    let (locks, holder) = (place.connect().await, place.connect().await);
    let mut guards = Vec::new();
    for n in 0..NAMES / 2 {
        guards.push(holder.mutex(format!("held {n}")).ttl(LONG).lock().await.unwrap());
    }
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let try_on =
        |name: String| tokio::spawn(tries(locks.clone(), name, Arc::clone(&stop), Arc::clone(&rounds)));
    let held: Vec<_> = (0..NAMES / 2).map(|n| try_on(format!("held {n}"))).collect();
    let free: Vec<_> = (0..NAMES / 2).map(|n| try_on(format!("free {n}"))).collect();

    let moved = "moved";
    let slot = cluster.slot_of_key(&place.key(moved)).unwrap();
    for _ in 0..MOVES {
        // Subscribed there now, so its server has something to end.
        locks.mutex(moved).ttl(LONG).lock().await.unwrap().release().await.unwrap();
        let from = cluster.master_of_slot(slot).unwrap();
        let to = cluster.masters().into_iter().find(|master| master.addr() != from.addr()).unwrap();
        let before = rounds.load(Ordering::SeqCst);
        eventually("locks are tried", || rounds.load(Ordering::SeqCst) > before + NAMES).await;
        cluster.move_slot(slot, to).unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for task in held {
        assert_eq!(task.await.unwrap(), 0, "a lock that another client holds was granted");
    }
    let mut granted = 0;
    for task in free {
        granted += task.await.unwrap();
    }
    let all = rounds.load(Ordering::SeqCst);
    report(&format!("{granted} grants of free locks in {all} tries while a slot moved {MOVES} times"));
    assert!(granted > 0);
    for guard in guards {
        guard.release().await.unwrap();
    }
}
