//! Slots of a cluster that move while other programs take the locks in them as well.

use test_servers::{Cluster, Redis, Server};

use crate::{
    alternating::{Does, Trial, take_turns},
    programs::NEW,
    support::{LONG, NAME, Place, RENEWED, SHORT, eventually, got, report, until_waiting, waiter, within},
    witness::Storm,
};

trials! {
    redisson_and_we_take_turns_while_the_slot_of_their_lock_moves,
    ours_take_turns_in_a_mode_while_their_slot_moves,
    a_hold_in_a_mode_outlives_the_move_of_its_slot,
    a_lock_in_a_mode_is_not_granted_half_way_and_is_when_its_slot_has_moved,
}

/// The key of other programs in the slot of our own: by its name, and by a hash tag around it.
const MODES: [&str; 3] =
    ["mode=setnx", "mode=redisson&lock_key={name}", "mode=redisson&fenced=1&lock_key=app:{{name}}"];

/// A master that does not have a slot.
fn another<'a>(cluster: &'a Cluster, slot: u16) -> &'a Server {
    let from = cluster.master_of_slot(slot).unwrap().addr();
    cluster.masters().into_iter().find(|master| master.addr() != from).unwrap()
}

async fn redisson_and_we_take_turns_while_the_slot_of_their_lock_moves() -> Trial {
    let cluster = Redis::new().start_cluster().unwrap();
    let place = Place::on(cluster.url());
    let hosts = cluster.masters()[0].addr().to_string();
    let slot = cluster.slot_of_key(NAME).unwrap();
    let mut moves = 0;
    let there_and_back = || {
        cluster.move_slot(slot, another(&cluster, slot)).unwrap();
        moves += 1;
    };
    take_turns(NEW, place, &hosts, "cluster", Does::Lock, there_and_back).await?;
    report(&format!("the slot of the lock moved {moves} times meanwhile"));
    Ok(())
}

async fn ours_take_turns_in_a_mode_while_their_slot_moves() {
    let cluster = Redis::new().start_cluster().unwrap();
    let slot = cluster.slot_of_key(NAME).unwrap();
    for mode in MODES {
        let storm = Storm::begin(&Place::on(cluster.url()).with(mode), NAME, LONG, 3).await;
        for _ in 0..4 {
            tokio::task::block_in_place(|| cluster.move_slot(slot, another(&cluster, slot)).unwrap());
            storm.goes_on().await;
        }
        let grants = storm.witness.grants();
        let doubles = storm.end().await;
        report(&format!("{mode}: {doubles} double grants among {grants} while a slot moved"));
        assert_eq!(doubles, 0);
    }
}

async fn a_hold_in_a_mode_outlives_the_move_of_its_slot() {
    let cluster = Redis::new().start_cluster().unwrap();
    let slot = cluster.slot_of_key(NAME).unwrap();
    for mode in MODES {
        let place = Place::on(cluster.url()).with(mode);
        let (locks, other) = (place.connect().await, place.connect().await);
        let guard = locks.mutex(NAME).ttl(RENEWED).lock().await.unwrap();
        let waiting = waiter(&other, NAME, LONG);
        until_waiting(&locks, NAME, 1).await;
        tokio::task::block_in_place(|| cluster.move_slot(slot, another(&cluster, slot)).unwrap());
        let foreign = if mode.contains("app:") { format!("app:{{{NAME}}}") } else { NAME.to_owned() };
        let master = cluster.master_of_slot(slot).unwrap();
        assert_eq!(master.command(&["EXISTS", &foreign]).unwrap().unwrap(), "1");
        // Renewed by both keys at their new master.
        tokio::time::sleep(RENEWED).await;
        assert!(guard.is_held() && !waiting.is_finished());
        let (token, number) = (guard.token(), guard.foreign_token());
        guard.release().await.unwrap();
        let guard = got(waiting).await;
        assert!(guard.token() > token && guard.foreign_token() >= number);
        guard.release().await.unwrap();
    }
}

/// One key is at the old master and one at the new: nobody can see both in one step, so nobody gets the lock.
async fn a_lock_in_a_mode_is_not_granted_half_way_and_is_when_its_slot_has_moved() {
    let cluster = Redis::new().start_cluster().unwrap();
    let slot = cluster.slot_of_key(NAME).unwrap();
    for mode in &MODES[..2] {
        let place = Place::on(cluster.url()).with(mode);
        let locks = place.connect().await;
        let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
        let half_way = cluster.begin_slot_move(slot, another(&cluster, slot)).unwrap();
        half_way.move_key(NAME).unwrap();
        // It cannot be renewed, and ends in time; a newcomer does not get it meanwhile.
        let newcomer = place.connect().await;
        let waiting = tokio::spawn(async move { newcomer.mutex(NAME).ttl(LONG).lock().await });
        assert!(within("the hold ends", guard.lost()).await.is_lost());
        eventually("the key of other programs expires", || {
            half_way.to().command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).unwrap().unwrap() == "0"
        })
        .await;
        tokio::task::block_in_place(|| half_way.finish().unwrap());
        // It may have been told that the store does not serve it now.
        let granted = match within("the newcomer has an answer", waiting).await.unwrap() {
            Ok(guard) => guard,
            Err(error) => {
                assert!(error.is_unavailable(), "{error}");
                locks.mutex(NAME).ttl(LONG).lock().await.unwrap()
            }
        };
        granted.release().await.unwrap();
    }
}
