//! A server that goes back to a snapshot: revisions, keys and leases are as they were.

use std::path::PathBuf;

use test_servers::{Etcd, Server};
use tidelock::{Guard, Locks, Token};

use crate::support::{LONG, NAME, Place, SHORT, got, until_idle, waiter, within};

trials! {
    tokens_grow_for_new_clients_after_a_snapshot_is_restored,
    tokens_grow_for_clients_that_saw_more_after_a_snapshot_is_restored,
    tokens_grow_for_clients_that_were_idle_while_a_snapshot_was_restored,
    tokens_grow_after_all_keys_of_an_installation_were_deleted,
    a_lock_that_was_left_after_a_snapshot_is_free_when_it_is_restored_though_its_client_lives,
    a_waiter_gets_its_turn_after_a_snapshot_is_restored,
}

struct Restorable {
    server: Server,
    snapshot: PathBuf,
    place: Place,
}

impl Restorable {
    fn start() -> Self {
        let server = Etcd::new().start().unwrap();
        let (snapshot, place) = (server.folder().join("snapshot"), Place::on(server.url()));
        Self { server, snapshot, place }
    }

    fn save(&self) {
        self.server.save_snapshot(&self.snapshot).unwrap();
    }

    fn restore(&self) {
        self.server.restore_snapshot(&self.snapshot).unwrap();
    }
}

/// Takes a lock some times. Says the last token.
async fn turns(locks: &Locks, times: usize) -> Token {
    let mut token = None;
    for _ in 0..times {
        let guard = within("the lock is granted", again(locks, NAME)).await;
        assert!(token < Some(guard.token()), "{token:?} before {:?}", guard.token());
        token = Some(guard.token());
        guard.release().await.unwrap();
    }
    token.unwrap()
}

/// Asks until the server is back.
async fn again(locks: &Locks, name: &str) -> Guard {
    loop {
        match locks.mutex(name).ttl(SHORT).lock().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

async fn tokens_grow_for_new_clients_after_a_snapshot_is_restored() {
    let restorable = Restorable::start();
    turns(&restorable.place.connect().await, 3).await;
    restorable.save();
    let last = turns(&restorable.place.connect().await, 20).await;
    // More than once: the second time, it is the restored cluster that is restored.
    let mut before = last;
    for _ in 0..2 {
        restorable.restore();
        let after = turns(&restorable.place.connect().await, 20).await;
        assert!(after > before, "{after:?} after {before:?}");
        before = after;
    }
}

async fn tokens_grow_for_clients_that_saw_more_after_a_snapshot_is_restored() {
    let restorable = Restorable::start();
    let locks = restorable.place.connect().await;
    turns(&locks, 3).await;
    restorable.save();
    let last = turns(&locks, 20).await;
    restorable.restore();
    let after = turns(&locks, 1).await;
    assert!(after > last, "{after:?} after {last:?}");
}

/// However short the pause: some servers are back within 200 ms.
async fn tokens_grow_for_clients_that_were_idle_while_a_snapshot_was_restored() {
    let restorable = Restorable::start();
    let idle = restorable.place.connect().await;
    for _ in 0..3 {
        turns(&idle, 3).await;
        restorable.save();
        let last = turns(&restorable.place.connect().await, 20).await;
        restorable.restore();
        let after = turns(&idle, 1).await;
        assert!(after > last, "{after:?} after {last:?}");
    }
}

async fn tokens_grow_after_all_keys_of_an_installation_were_deleted() {
    let place = Place::shared();
    let locks = place.connect().await;
    let last = turns(&locks, 3).await;
    crate::support::shared().ask(&["del", "--prefix", &place.prefix]).unwrap();
    let after = turns(&locks, 1).await;
    assert!(after > last, "{after:?} after {last:?}");
    assert!(turns(&place.connect().await, 1).await > after);
}

/// Its client goes on to renew the lease under which the claim is back.
async fn a_lock_that_was_left_after_a_snapshot_is_free_when_it_is_restored_though_its_client_lives() {
    let restorable = Restorable::start();
    let (locks, other) = (restorable.place.connect().await, restorable.place.connect().await);
    let kept = locks.mutex("kept").ttl(SHORT).lock().await.unwrap();
    let left = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    restorable.save();
    left.release().await.unwrap();
    restorable.restore();
    let next = within("the lock is free", again(&other, NAME)).await;
    assert!(next.is_held());
    next.release().await.unwrap();
    // Whatever became of the other: it can be taken, by its old holder too.
    drop(kept);
    within("the other is free", again(&locks, "kept")).await.release().await.unwrap();
    within("the first is free", again(&locks, NAME)).await.release().await.unwrap();
}

async fn a_waiter_gets_its_turn_after_a_snapshot_is_restored() {
    let restorable = Restorable::start();
    let (locks, other) = (restorable.place.connect().await, restorable.place.connect().await);
    let held = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    crate::support::until_waiting(&locks, NAME, 1).await;
    restorable.save();
    // The server goes on, so that what is watched begins at revisions that are not there any more.
    turns_elsewhere(&locks).await;
    restorable.restore();
    let _ = held.release().await;
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

async fn turns_elsewhere(locks: &Locks) {
    for _ in 0..20 {
        again(locks, "elsewhere").await.release().await.unwrap();
    }
}
