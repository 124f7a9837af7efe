//! Holders and waiters that are killed, stopped, evicted, or very many.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidelock::{Guard, Locks, Token};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{
    LONG, NAME, Place, SHORT, Waiter, conditions::PATIENCE, got, report, until_idle, until_waiting, waiter,
    within, worker::Worker,
};

trials! {
    a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends,
    waiters_killed_with_9_are_passed_over_when_their_leases_end,
    a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on,
    an_eviction_is_heard_at_once_with_its_reason,
    many_waiters_get_the_lock_in_order,
    a_release_after_the_runtime_of_its_client_has_ended_is_an_error,
}

async fn a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends() {
    let place = Place::shared();
    killed_lets_the_next_in(&place.connect().await, &place.url()).await;
}

/// A holder at this URL is killed, and the next one gets the lock.
pub(crate) async fn killed_lets_the_next_in(locks: &Locks, url: &str) {
    let mut holder = Worker::start(url, "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    let waiting = waiter(locks, NAME, LONG);
    until_waiting(locks, NAME, 1).await;
    let killed = Instant::now();
    holder.kill();
    let guard = got(waiting).await;
    report(&format!("from kill -9 of a holder with a ttl of {SHORT:?} to the next: {:?}", killed.elapsed()));
    assert!(guard.token().get() > before);
    guard.release().await.unwrap();
}

async fn a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on() {
    let place = Place::shared();
    let locks = place.connect().await;
    stopped_past_its_ttl_has_lost_it(&locks, &place.url()).await.release().await.unwrap();
}

/// A holder at this URL is stopped until its lease has expired, and learns that when it goes on. Gives the lock that the
/// next one got meanwhile.
pub(crate) async fn stopped_past_its_ttl_has_lost_it(locks: &Locks, url: &str) -> Guard {
    let mut holder = Worker::start(url, "hold", SHORT);
    let before: u64 = holder.hear("held").parse().unwrap();
    holder.signal(Signal::STOP);
    let guard = within("the lease ends", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(guard.token().get() > before);
    holder.signal(Signal::CONT);
    assert!(holder.hear("lost").contains(NAME));
    assert!(guard.is_held());
    guard
}

/// A lock that a client holds, three processes that waited for it and were killed, and one who waits behind them.
pub(crate) async fn behind_dead_waiters(place: &Place, ttl: Duration) -> (Locks, Guard, Waiter) {
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut dead: Vec<_> = (0..3).map(|_| Worker::start(&place.url(), "hold", ttl)).collect();
    until_waiting(&locks, NAME, 3).await;
    let waiting = waiter(&place.connect().await, NAME, LONG);
    until_waiting(&locks, NAME, 4).await;
    dead.iter_mut().for_each(Worker::kill);
    (locks, guard, waiting)
}

async fn waiters_killed_with_9_are_passed_over_when_their_leases_end() {
    let (locks, guard, waiting) = behind_dead_waiters(&Place::shared(), SHORT).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
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

/// Nothing was given back: the caller must not believe that it was.
async fn a_release_after_the_runtime_of_its_client_has_ended_is_an_error() {
    let place = Place::shared();
    let (url, other) = (place.url(), place.connect().await);
    let held = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            Locks::connect_within(&url, PATIENCE / 2)
                .await
                .unwrap()
                .mutex(NAME)
                .ttl(SHORT)
                .lock()
                .await
                .unwrap()
        })
    });
    let guard = held.join().unwrap();
    let error = within("it is answered", guard.release()).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("runtime"), "{error}");
    within("the lease expires", other.mutex(NAME).lock()).await.unwrap().release().await.unwrap();
}

async fn many_waiters_get_the_lock_in_order() {
    let (waiters, clients) = crate::STORE.crowd;
    Crowd::gather(&Place::shared(), waiters, clients).await.gets_the_lock_in_order().await;
}

/// Very many who wait for a lock, and who holds it meanwhile.
pub(crate) struct Crowd {
    clients: usize,
    locks: Locks,
    guard: Guard,
    order: Vec<usize>,
    turns: UnboundedReceiver<(usize, Token)>,
}

/// About how many of a crowd come at the same time.
const AT_ONCE: usize = 250;

impl Crowd {
    /// Gathers so many, of so many clients. Those of one client have an owner each, so that every one has a place of
    /// its own in the line.
    pub(crate) async fn gather(place: &Place, waiters: usize, clients: usize) -> Self {
        let locks = place.connect().await;
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let (tell, turns) = mpsc::unbounded_channel();
        let (mut gathered, mut seen) = (0, 0);
        for client in 0..clients {
            let client_locks = place.connect().await;
            for n in (client..waiters).step_by(clients) {
                let mut mutex = client_locks.mutex(NAME).ttl(LONG).label(n.to_string());
                if clients < waiters {
                    mutex = mutex.owner(n.to_string());
                }
                let tell = tell.clone();
                tokio::spawn(async move {
                    let guard = mutex.lock().await.unwrap();
                    tell.send((n, guard.token())).unwrap();
                    guard.release().await.unwrap();
                });
                gathered += 1;
            }
            // All of them at once may take a busy server longer than anything is waited for.
            if gathered == waiters || gathered >= seen + AT_ONCE {
                until_waiting(&locks, NAME, gathered).await;
                seen = gathered;
            }
        }
        let line = locks.look(&[NAME]).await.unwrap().remove(0).waiters;
        let order = line.iter().map(|claim| claim.label.parse().unwrap()).collect();
        Self { clients, locks, guard, order, turns }
    }

    /// The lock is given back, and each gets it in turn.
    pub(crate) async fn gets_the_lock_in_order(mut self) {
        let (began, waiters) = (Instant::now(), self.order.len());
        let mut last = self.guard.token();
        self.guard.release().await.unwrap();
        for expected in self.order {
            let (number, token) = within("the next holds", self.turns.recv()).await.unwrap();
            if number != expected {
                let line = self.locks.look(&[NAME]).await.unwrap();
                panic!("{number} holds, and it is the turn of {expected}: {line:?}");
            }
            assert!(token > last);
            last = token;
        }
        let each = began.elapsed() / u32::try_from(waiters).unwrap();
        report(&format!("{waiters} waiters of {} clients: {each:?} for each hand-over", self.clients));
        until_idle(&self.locks, NAME).await;
    }
}
