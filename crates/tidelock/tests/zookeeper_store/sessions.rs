//! Sessions that somebody ends, and nodes that somebody deletes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tidelock::{
    LockState, Name,
    backend::{Ask, Backend as _, Claim, ClaimId, ClientId, Entered, Leave, Left, Share},
    backends::zookeeper::{ZookeeperBackend, ZookeeperConfig},
};

use crate::support::{LONG, NAME, Place, SHORT, got, report, until_idle, until_waiting, waiter, within};

trials! {
    a_session_that_the_server_ends_is_the_loss_of_all_its_locks_at_once,
    a_waiter_whose_session_is_ended_asks_again,
    a_node_that_is_deleted_by_hand_is_a_loss_that_is_heard,
    a_node_of_a_waiter_that_is_deleted_by_hand_delays_nobody,
    an_eviction_says_why,
    a_lock_whose_node_vanished_is_made_again,
    leases_of_different_lengths_end_with_different_sessions,
    what_the_server_makes_of_a_session_is_a_concern,
    a_leave_says_whether_the_claim_was_there,
}

/// The path of the first node in line.
async fn first_node(place: &Place, name: &str) -> String {
    let mut nodes = place.nodes(name).await;
    nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
    format!("{}/{}", place.node(name), nodes[0])
}

async fn a_session_that_the_server_ends_is_the_loss_of_all_its_locks_at_once() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.mutex(format!("{number}")).ttl(LONG).lock().await.unwrap());
    }
    let node = first_node(&place, "7").await;
    let ended = Instant::now();
    place.bare().await.end_session_of(&node).await.unwrap();
    for guard in &guards {
        assert!(within("the loss is heard", guard.lost()).await.is_lost());
    }
    report(&format!(
        "{} locks of one session were known to be lost {:?} after its end",
        guards.len(),
        ended.elapsed()
    ));
    for (number, guard) in guards.iter().enumerate() {
        let next = within("it is free", other.mutex(format!("{number}")).ttl(LONG).lock()).await.unwrap();
        assert!(next.token() > guard.token());
    }
    // A new session is made for what is wanted later.
    let again = within("a new session", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(again.is_held());
}

async fn a_waiter_whose_session_is_ended_asks_again() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let held = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    // Something else of the same session, by which it is found.
    let mark = locks.mutex("mark").ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&locks, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    place.bare().await.end_session_of(&first_node(&place, "mark").await).await.unwrap();
    assert!(within("the loss is heard", mark.lost()).await.is_lost());
    until_waiting(&other, NAME, 1).await;
    held.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn a_node_that_is_deleted_by_hand_is_a_loss_that_is_heard() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let kept = locks.mutex("another").ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    place.bare().await.delete(&first_node(&place, NAME).await).await.unwrap();
    let next = got(waiting).await;
    let loss = within("the loss is heard", guard.lost()).await;
    assert!(loss.is_lost() && loss.to_string().contains("deleted its node"), "{loss}");
    assert!(next.is_held() && next.token() > guard.token());
    assert_eq!(kept.state(), LockState::Held, "only one lock was lost");
}

async fn a_node_of_a_waiter_that_is_deleted_by_hand_delays_nobody() {
    let place = Place::shared();
    let (locks, one, two) = (place.connect().await, place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let first = waiter(&one, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    let second = waiter(&two, NAME, LONG);
    until_waiting(&locks, NAME, 2).await;
    let mut nodes = place.nodes(NAME).await;
    nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
    place.bare().await.delete(&format!("{}/{}", place.node(NAME), nodes[1])).await.unwrap();
    // It takes a new place, at the end.
    until_waiting(&locks, NAME, 2).await;
    guard.release().await.unwrap();
    let second = got(second).await;
    assert!(!first.is_finished());
    second.release().await.unwrap();
    got(first).await.release().await.unwrap();
}

async fn an_eviction_says_why() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    for number in 0..3 {
        let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let holder = other.look(&[NAME]).await.unwrap()[0].holders[0].id;
        let why = format!("the deploy hangs for the {number}th time");
        other.evict(NAME, holder, &why).await.unwrap();
        let loss = within("the holder hears it", guard.lost()).await;
        assert!(loss.is_lost() && loss.to_string().contains(&why), "{loss}");
        until_idle(&other, NAME).await;
    }
}

async fn a_lock_whose_node_vanished_is_made_again() {
    let place = Place::shared();
    let locks = place.connect().await;
    let bare = place.bare().await;
    let mut last = None;
    for _ in 0..3 {
        let guard = locks.mutex("a/b/c").ttl(LONG).lock().await.unwrap();
        // Numbers begin again with a new node, tokens do not.
        assert!(last < Some(guard.token()));
        last = Some(guard.token());
        guard.release().await.unwrap();
        for node in ["a/b/c", "a/b", "a"] {
            bare.delete(&place.node(node)).await.unwrap();
        }
    }
}

async fn leases_of_different_lengths_end_with_different_sessions() {
    let place = Place::shared();
    let locks = place.connect().await;
    let (long, short) = (
        locks.mutex("long").ttl(LONG).lock().await.unwrap(),
        locks.mutex("short").ttl(SHORT).lock().await.unwrap(),
    );
    place.bare().await.end_session_of(&first_node(&place, "short").await).await.unwrap();
    assert!(within("the loss is heard", short.lost()).await.is_lost());
    assert!(long.is_held() && long.valid_for() > SHORT);
}

async fn what_the_server_makes_of_a_session_is_a_concern() {
    let place = Place::shared();
    let locks = place.connect().await;
    let standalone = locks.concerns();
    assert!(standalone.iter().any(|concern| concern.contains("runs alone")), "{standalone:?}");
    assert!(standalone.iter().any(|concern| concern.contains("anybody may delete")), "{standalone:?}");
    // The servers of the trials allow two minutes.
    let guard = locks.mutex(NAME).ttl(Duration::from_secs(600)).lock().await.unwrap();
    let concerns = locks.concerns();
    assert!(concerns.iter().any(|concern| concern.contains("leases are shorter")), "{concerns:?}");
    assert!(
        guard.valid_for() < Duration::from_secs(120),
        "no longer than the session: {:?}",
        guard.valid_for()
    );
    let backend =
        ZookeeperBackend::connect(ZookeeperConfig::from_url(&place.url()).unwrap(), ClientId::from_u64(7))
            .await
            .unwrap();
    assert!(backend.concerns().iter().all(|concern| !concern.contains('\n')));
}

/// What a holder is told when it gives back a lock whose node, or whose session, is not there any more.
async fn a_leave_says_whether_the_claim_was_there() {
    let place = Place::shared();
    let bare = place.bare().await;
    for (number, what) in [(1, "it is there"), (2, "it was deleted"), (3, "its session was ended")] {
        let config = ZookeeperConfig::from_url(&place.url()).unwrap();
        let backend = ZookeeperBackend::connect(config, ClientId::from_u64(7)).await.unwrap();
        let claim = Arc::new(
            Claim::new(
                ClaimId::new(ClientId::from_u64(7), number),
                Name::new(NAME).unwrap(),
                Share::Exclusive,
                LONG,
            )
            .label("test"),
        );
        assert!(matches!(backend.enter(&claim, Ask::Queue).await.unwrap(), Entered::Held(_)));
        let node = format!("{}/{}", place.node(NAME), place.nodes(NAME).await[0]);
        match number {
            2 => bare.delete(&node).await.unwrap(),
            3 => bare.end_session_of(&node).await.unwrap(),
            _ => {}
        }
        let leaving = async {
            loop {
                // A session that was ended is only heard of.
                if let Ok(left) = backend.leave(&claim.name, claim.id, Leave::Done).await {
                    return left;
                }
            }
        };
        let left = within("it is answered", leaving).await;
        assert_eq!(left, Left::from_was_there(number == 1), "{what}");
    }
}
