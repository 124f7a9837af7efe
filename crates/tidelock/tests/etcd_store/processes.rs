//! Holders and waiters that are killed, stopped, evicted, or very many.

use std::time::Instant;

use rustix::process::Signal;

use crate::{
    support::{LONG, NAME, Place, SHORT, got, report, until, until_idle, until_waiting, waiter, within},
    worker::Worker,
};

trials! {
    a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends,
    waiters_killed_with_9_are_passed_over_when_their_leases_end,
    a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on,
    an_eviction_is_heard_at_once_with_its_reason,
    hundreds_of_waiters_get_the_lock_in_order,
}

async fn a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends() {
    let place = Place::shared();
    let locks = place.connect().await;
    let mut holder = Worker::start(&place.url(), "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    let killed = Instant::now();
    holder.kill();
    let guard = got(waiting).await;
    report(&format!("from kill -9 of a holder with a ttl of {SHORT:?} to the next: {:?}", killed.elapsed()));
    assert!(guard.token().get() > before);
    guard.release().await.unwrap();
}

async fn waiters_killed_with_9_are_passed_over_when_their_leases_end() {
    let place = Place::shared();
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut dead: Vec<_> = (0..3).map(|_| Worker::start(&place.url(), "hold", SHORT)).collect();
    until_waiting(&locks, NAME, 3).await;
    let waiting = waiter(&place.connect().await, NAME, LONG);
    until_waiting(&locks, NAME, 4).await;
    dead.iter_mut().for_each(Worker::kill);
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

async fn a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on() {
    let place = Place::shared();
    let locks = place.connect().await;
    let mut holder = Worker::start(&place.url(), "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    holder.signal(Signal::STOP);
    let guard = within("the lease ends", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(guard.token().get() > before);
    holder.signal(Signal::CONT);
    assert!(holder.hear("lost").contains(NAME));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn an_eviction_is_heard_at_once_with_its_reason() {
    let place = Place::shared();
    let (locks, other, third) = (place.connect().await, place.connect().await, place.connect().await);
    for with_waiter in [false, true] {
        // Its next renewal is minutes away: whatever is heard before was pushed.
        let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
        let waiting = with_waiter.then(|| waiter(&third, NAME, LONG));
        if with_waiter {
            until_waiting(&other, NAME, 1).await;
        }
        let holder = other.look(&[NAME]).await.unwrap()[0].holders[0].id;
        let asked = Instant::now();
        other.evict(NAME, holder, "the deploy hangs").await.unwrap();
        let loss = within("the holder hears it", guard.lost()).await;
        report(&format!("an eviction was heard after {:?}", asked.elapsed()));
        assert!(loss.is_lost() && loss.to_string().contains("the deploy hangs"), "{loss}");
        if let Some(waiting) = waiting {
            let next = got(waiting).await;
            assert!(next.token() > guard.token());
            next.release().await.unwrap();
        }
        until_idle(&other, NAME).await;
    }
}

/// A client each, so that every one has a place of its own in the line: most stand too far back to watch all of it.
async fn hundreds_of_waiters_get_the_lock_in_order() {
    const WAITERS: usize = 120;
    let place = Place::shared();
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let (tell, mut hear) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..WAITERS {
        let mutex = place.connect().await.mutex(NAME).ttl(LONG).label(n.to_string());
        let tell = tell.clone();
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            tell.send((n, guard.token())).unwrap();
            guard.release().await.unwrap();
        });
    }
    until(&locks, NAME, |view| view.waiters.len() == WAITERS).await;
    let line = locks.look(&[NAME]).await.unwrap().remove(0).waiters;
    let order: Vec<usize> = line.iter().map(|claim| claim.label.parse().unwrap()).collect();
    let began = Instant::now();
    let mut last = guard.token();
    guard.release().await.unwrap();
    for expected in order {
        let (number, token) = within("the next holds", hear.recv()).await.unwrap();
        assert_eq!(number, expected);
        assert!(token > last);
        last = token;
    }
    let each = began.elapsed() / u32::try_from(WAITERS).unwrap();
    report(&format!("{WAITERS} waiters: {each:?} for each hand-over"));
    until_idle(&locks, NAME).await;
}
