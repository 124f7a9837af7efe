//! A cluster whose masters are replaced and whose slots move while locks are held and waited for.

use std::{sync::Arc, time::Duration};

use test_servers::{Cluster, Redis, Server};
use tidelock::{LockState, Locks};

use crate::{
    support::{
        LONG, Place, SHORT, eventually,
        following::{hears, until_live},
        got, held_and_waited_for, pass_on, report,
        shared::Shared,
        until, until_idle, until_waiting, waiter, within,
    },
    witness::{Rush, Storm},
};

trials! {
    masters_that_are_killed_or_paused_are_replaced_while_locks_are_held_and_handed_over,
    a_fail_over_in_good_order_keeps_the_lock_and_its_waiters,
    a_slot_that_moves_takes_the_hold_along,
    a_slot_that_moves_takes_the_waiters_along_in_order,
    a_slot_that_stays_half_way_serves_holders_and_waiters,
    a_viewer_of_all_names_hears_of_every_master_and_of_those_that_replace_them,
    a_client_that_uses_no_slot_sees_all_locks_after_all_masters_were_replaced,
}

static SHARED: Shared<Cluster> = Shared::new();

/// One trial at a time: each changes who serves what. The lock of a trial is named as its place is, so that
/// each has a slot of its own.
pub(crate) static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The cluster of all trials that leave it whole.
pub(crate) fn shared() -> Arc<Cluster> {
    SHARED.get(|| Redis::new().start_cluster().unwrap())
}

pub(crate) fn stop_shared() {
    SHARED.stop();
}

pub(crate) fn another_master<'a>(cluster: &'a Cluster, than: &Server) -> &'a Server {
    cluster.masters().into_iter().find(|master| master.addr() != than.addr()).unwrap()
}

/// The name of a lock that a master serves.
fn name_at(cluster: &Cluster, place: &Place, master: &Server) -> String {
    let served = |name: &String| cluster.master_of_key(&place.key(name)).unwrap().addr() == master.addr();
    (0..).map(|n: u32| n.to_string()).find(served).unwrap()
}

/// Lets clients take turns while a master is replaced. Says how often two held at once.
async fn replace(
    cluster: &Cluster,
    place: &Place,
    master: &Server,
    fault: impl Fn(&Server) + Send + Sync,
) -> usize {
    let name = name_at(cluster, place, master);
    let slot = cluster.slot_of_key(&place.key(&name)).unwrap();
    let storm = Storm::begin(place, &name, SHORT, 4).await;
    // The name is the hash tag of a lock's keys: only some of these are on the master that is replaced.
    let (taker, other) = (place.connect().await, place.connect().await);
    let prefix = name.clone();
    let rush = Rush::begin(&taker, move |n| format!("{prefix} rush {n}"));
    storm.goes_on().await;
    fault(master);
    cluster.wait_for_successor(slot, master).unwrap();
    // It comes back as a replica: without one, nothing can be confirmed.
    if master.pid().is_some() {
        master.resume().unwrap()
    } else {
        master.restart().unwrap()
    }
    storm.goes_on().await;
    let (kept, twice) = rush.end(&other).await;
    let grants = kept + storm.witness.grants();
    let doubles = twice + storm.end().await;
    report(&format!("{doubles} double grants among {grants} while a cluster replaced a master{place}"));
    doubles
}

async fn masters_that_are_killed_or_paused_are_replaced_while_locks_are_held_and_handed_over() {
    let cluster = Redis::new().start_cluster().unwrap();
    let place = Place::on(cluster.url());
    let strict = Place::on(cluster.url()).with("replicas=1");
    let masters = cluster.masters();

    // Confirmed by the one replica: it survives, whatever else happens at that master.
    let steady = place.with("replicas=1");
    let holder = steady.connect().await;
    let guard = holder.mutex(name_at(&cluster, &steady, masters[0])).ttl(LONG).lock().await.unwrap();
    let doubles = replace(&cluster, &strict, masters[0], |master| master.kill().unwrap()).await;
    assert_eq!(doubles, 0);
    until(&holder, guard.name().as_str(), |view| view.holders[0].epoch == Some(guard.token().epoch())).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();

    replace(&cluster, &place, masters[1], |master| master.kill().unwrap()).await;
    replace(&cluster, &place, masters[2], |master| master.pause().unwrap()).await;
}

/// A holder, one that waits, and a bystander.
async fn line(place: &Place) -> (Locks, Locks, Locks) {
    (place.connect().await, place.connect().await, place.connect().await)
}

async fn a_fail_over_in_good_order_keeps_the_lock_and_its_waiters() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let name = &*place.prefix;
    let (locks, other, stranger) = line(&place).await;
    let (guard, waiting) = held_and_waited_for(&locks, &other, name).await;
    let old = cluster.master_of_key(&place.key(name)).unwrap();
    cluster.fail_over(old).unwrap();
    until_waiting(&stranger, name, 1).await;
    assert!(guard.is_held() && stranger.mutex(name).try_lock().await.unwrap().is_none());
    pass_on(guard, vec![waiting]).await;
    until_idle(&stranger, name).await;
}

async fn a_slot_that_moves_takes_the_hold_along() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let name = &*place.prefix;
    let (locks, other, _) = line(&place).await;
    let guard = locks.mutex(name).ttl(SHORT).lock().await.unwrap();
    let slot = cluster.slot_of_key(&place.key(name)).unwrap();
    for _ in 0..2 {
        let from = cluster.master_of_slot(slot).unwrap();
        cluster.move_slot(slot, another_master(&cluster, from)).unwrap();
        let view = other.look(&[name]).await.unwrap().remove(0);
        assert_eq!(view.holders[0].epoch, Some(guard.token().epoch()));
        assert!(other.mutex(name).try_lock().await.unwrap().is_none());
    }
    // Renewed where it is now: it outlives the lease that it came with.
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(guard.state(), LockState::Held);
    let token = guard.token();
    let waiting = waiter(&other, name, SHORT);
    until_waiting(&locks, name, 1).await;
    guard.release().await.unwrap();
    let next = got(waiting).await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

async fn a_slot_that_moves_takes_the_waiters_along_in_order() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let name = &*place.prefix;
    let locks = place.connect().await;
    let guard = locks.mutex(name).ttl(LONG).lock().await.unwrap();
    let mut waiters = Vec::new();
    for n in 1..=3 {
        waiters.push(waiter(&place.connect().await, name, LONG));
        until_waiting(&locks, name, n).await;
    }
    let slot = cluster.slot_of_key(&place.key(name)).unwrap();
    let from = cluster.master_of_slot(slot).unwrap();
    let to = another_master(&cluster, from);
    cluster.move_slot(slot, to).unwrap();
    until_waiting(&locks, name, 3).await;
    // A client that cannot be told is passed over: all of them listen there before the lock moves.
    eventually("all clients listen at the new master", || place.shard_listeners(to) == 4).await;
    pass_on(guard, waiters).await;
}

/// The key of the line is at the new master, where nobody can be told of a grant: a waiter finds it by asking.
async fn a_slot_that_stays_half_way_serves_holders_and_waiters() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let name = &*place.prefix;
    let (locks, other, _) = line(&place).await;
    let guard = locks.mutex(name).ttl(SHORT).lock().await.unwrap();
    let slot = cluster.slot_of_key(&place.key(name)).unwrap();
    let to = another_master(&cluster, cluster.master_of_slot(slot).unwrap());
    cluster.begin_slot_move(slot, to).unwrap().move_keys().unwrap();
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(guard.state(), LockState::Held);
    assert!(other.mutex(name).try_lock().await.unwrap().is_none());
    let owned = other.mutex(name).owner("somebody").ttl(SHORT);
    let owned = tokio::spawn(async move { owned.lock().await });
    until_waiting(&locks, name, 1).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let next = got(owned).await;
    assert!(next.token() > token);

    cluster.begin_slot_move(slot, to).unwrap().finish().unwrap();
    let waiting = waiter(&locks, name, LONG);
    until_waiting(&other, name, 1).await;
    next.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn a_viewer_of_all_names_hears_of_every_master_and_of_those_that_replace_them() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let (viewer, other) = (place.connect().await, place.connect().await);
    let mut all = viewer.follow_all().unwrap();
    until_live(&mut all, true).await;
    for master in cluster.masters() {
        hears(&mut all, &other, &name_at(&cluster, &place, master)).await;
    }
    // The one that takes over is another server: nothing that happens there was told before it is listened to.
    let name = name_at(&cluster, &place, cluster.masters()[0]);
    cluster.fail_over(cluster.masters()[0]).unwrap();
    let missed = async { while !(all.next().await.missed && all.is_live()) {} };
    within("it is told to look at everything", missed).await;
    hears(&mut all, &other, &name).await;
}

async fn a_client_that_uses_no_slot_sees_all_locks_after_all_masters_were_replaced() {
    let _turn = TURN.lock().await;
    let cluster = shared();
    let place = Place::on(cluster.url());
    let (viewer, other) = (place.connect().await, place.connect().await);
    let mut guards = Vec::new();
    for master in cluster.masters() {
        let name = name_at(&cluster, &place, master);
        guards.push(other.mutex(&name).ttl(LONG).lock().await.unwrap());
    }
    let sees_all = async || viewer.look_all().await.is_ok_and(|views| views.len() == guards.len());
    assert!(sees_all().await);
    for master in cluster.masters() {
        cluster.fail_over(master).unwrap();
        // A replica whose connections stay open would say where each key is.
        master.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    }
    let seen = async {
        while !sees_all().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("all locks are seen at the new masters", seen).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}
