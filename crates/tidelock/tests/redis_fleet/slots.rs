//! Slots of a cluster that move while other programs take the locks in them as well.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use test_servers::{Cluster, Redis, Server};
use tidelock::Locks;

use crate::{
    alternating::Count,
    support::{LONG, NAME, Place, RENEWED, SHORT, eventually, got, report, until_waiting, waiter, within},
    witness::Storm,
};

trials! {
    another_program_and_we_take_turns_while_the_slot_of_their_lock_moves,
    ours_take_turns_in_a_mode_while_their_slot_moves,
    a_hold_in_a_mode_outlives_the_move_of_its_slot,
    a_lock_in_a_mode_is_not_granted_half_way_and_is_when_its_slot_has_moved,
}

/// The key of other programs in the slot of our own: by its name, and by a hash tag around it.
const MODES: [&str; 3] =
    ["mode=setnx", "mode=redisson&lock_key={name}", "mode=redisson&fenced=1&lock_key=app:{{name}}"];

/// A master that does not have a slot.
fn another(cluster: &Cluster, slot: u16) -> &Server {
    let from = cluster.master_of_slot(slot).unwrap().addr();
    cluster.masters().into_iter().find(|master| master.addr() != from).unwrap()
}

/// What another program asks a cluster, wherever the key is now. An error is no answer.
fn ask(server: &Server, words: &[&str]) -> String {
    let answer = server.client().arg("-c").args(words).output().unwrap();
    String::from_utf8_lossy(&answer.stdout).trim().to_owned()
}

/// What both sides share while they take turns.
struct Turns {
    cluster: Cluster,
    count: Count,
    is_over: AtomicBool,
    theirs: AtomicU64,
    ours: AtomicU64,
}

impl Turns {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    /// Another program takes turns, as people write it by hand.
    fn take_by_hand(&self, value: &str) {
        let release =
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        let server = self.cluster.masters()[0];
        while self.goes_on() {
            if ask(server, &["SET", NAME, value, "NX", "PX", "60000"]) == "OK" {
                self.count.add();
                self.theirs.fetch_add(1, Ordering::SeqCst);
                while !["0", "1"].contains(&&*ask(server, &["EVAL", release, "1", NAME, value])) {}
            }
        }
    }

    async fn take(&self, locks: Locks) {
        while self.goes_on() {
            // The store may not serve it at once.
            let Ok(guard) = locks.mutex(NAME).ttl(LONG).lock().await else { continue };
            self.count.add();
            self.ours.fetch_add(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        }
    }

    fn grants(&self) -> [u64; 2] {
        [&self.theirs, &self.ours].map(|grants| grants.load(Ordering::SeqCst))
    }
}

/// By hand: Redisson itself fails while the slot of its lock moves, because its subscription ends.
async fn another_program_and_we_take_turns_while_the_slot_of_their_lock_moves() {
    let cluster = Redis::new().start_cluster().unwrap();
    let place = Place::on(cluster.url()).with(MODES[0]);
    let (slot, count) = (cluster.slot_of_key(NAME).unwrap(), Count::new(&place));
    let turns = Arc::new(Turns {
        cluster,
        count,
        is_over: AtomicBool::new(false),
        theirs: AtomicU64::new(0),
        ours: AtomicU64::new(0),
    });
    let mut all = Vec::new();
    for number in 0..2 {
        let (theirs, ours) = (Arc::clone(&turns), Arc::clone(&turns));
        all.push(tokio::task::spawn_blocking(move || theirs.take_by_hand(&format!("theirs {number}"))));
        let locks = place.connect().await;
        all.push(tokio::spawn(async move { ours.take(locks).await }));
    }
    for _ in 0..6 {
        let before = turns.grants();
        tokio::task::block_in_place(|| {
            turns.cluster.move_slot(slot, another(&turns.cluster, slot)).unwrap();
        });
        eventually("both go on", || turns.grants().iter().zip(before).all(|(now, before)| *now > before + 2))
            .await;
    }
    turns.is_over.store(true, Ordering::SeqCst);
    for turn in all {
        within("all turns end", turn).await.unwrap();
    }
    let [theirs, ours] = turns.grants();
    report(&format!("{ours} grants of ours and {theirs} of theirs while a slot moved 6 times, 0 overlaps"));
    assert_eq!(turns.count.sum(), ours + theirs, "no increment is lost");
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
