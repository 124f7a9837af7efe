//! Connections that are cut, and answers that are lost after the request was applied.

use crate::support::{
    LONG, NAME, Place, eventually, got, network::two, until_idle, until_waiting, waiter, within,
};

trials! {
    an_enter_whose_answer_is_lost_is_one_claim_with_one_token,
    a_place_whose_answer_is_lost_is_one_place,
    a_try_whose_answer_is_lost_leaves_nothing,
}

async fn an_enter_whose_answer_is_lost_is_one_claim_with_one_token() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    // The lock's node is there: what is lost is the answer to the node of the claim.
    locks.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    let mut lost = 0;
    for _ in 0..10 {
        let before = proxy.replies_lost();
        proxy.drop_replies_once();
        let guard = within("it is asked again", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
        lost += proxy.replies_lost() - before;
        let view = other.look(&[NAME]).await.unwrap().remove(0);
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0));
        guard.release().await.unwrap();
        assert_eq!(place.nodes(NAME).await, [""; 0]);
    }
    assert_eq!(lost, 10, "every answer was to be lost");
}

async fn a_place_whose_answer_is_lost_is_one_place() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    // A session for leases of this length.
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    proxy.drop_replies_once();
    let waiting = waiter(&locks, NAME, LONG);
    eventually("an answer is lost", || proxy.replies_lost() == 1).await;
    until_waiting(&other, NAME, 1).await;
    guard.release().await.unwrap();
    let held = got(waiting).await;
    assert_eq!(place.nodes(NAME).await.len(), 1);
    held.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn a_try_whose_answer_is_lost_leaves_nothing() {
    let place = Place::shared();
    let (proxy, locks, other) = two(&place).await;
    let guard = other.mutex(NAME).ttl(LONG).lock().await.unwrap();
    locks.mutex("another").ttl(LONG).lock().await.unwrap().release().await.unwrap();
    for _ in 0..5 {
        proxy.drop_replies_once();
        assert!(within("it is answered", locks.mutex(NAME).ttl(LONG).try_lock()).await.unwrap().is_none());
    }
    assert_eq!(proxy.replies_lost(), 5);
    assert_eq!(place.nodes(NAME).await.len(), 1);
    guard.release().await.unwrap();
    until_idle(&other, NAME).await;
}
