//! Very many locks are renewed together: servers that tell what they told are believed, others are read.

use std::{sync::Arc, time::Duration};

use tidelock::{
    Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Leave, Share, Standing},
    backends::etcd::{EtcdBackend, EtcdConfig},
};

use crate::support::{LONG, Place, shared, within};

trials! {
    of_many_locks_those_that_ended_are_gone_and_all_others_are_held,
    many_locks_are_renewed_though_nobody_listens,
    of_many_that_wait_each_change_is_found_though_nobody_listens,
}

/// More than one transaction reads.
const MANY: u64 = 300;
/// After which a hold is watched.
const WATCHED: Duration = Duration::from_millis(300);

/// How many wait, each for a lock of its own.
const WAITING: u64 = 60;

struct Holder {
    backend: Arc<EtcdBackend>,
    claims: Vec<Arc<Claim>>,
}

/// A client that holds many locks.
async fn holder(place: &Place) -> Holder {
    enter(place, MANY, |entered| matches!(entered, Entered::Held(_))).await
}

/// A client that enters for so many locks.
async fn enter(place: &Place, locks: u64, is_right: impl Fn(&Entered) -> bool) -> Holder {
    let client = ClientId::random();
    let backend = EtcdBackend::connect(EtcdConfig::from_url(&place.url()).unwrap(), client).await.unwrap();
    let mut claims = Vec::new();
    for number in 0..locks {
        let name = Name::new(&format!("n{number}")).unwrap();
        let claim = Arc::new(Claim::new(ClaimId::new(client, number + 1), name, Share::Exclusive, LONG));
        let entered = backend.enter(&claim, Ask::Queue).await.unwrap();
        assert!(is_right(&entered), "{entered:?}");
        claims.push(claim);
    }
    Holder { backend: Arc::new(backend), claims }
}

impl Holder {
    /// Renews all, and says which are gone.
    async fn gone(&self) -> Vec<usize> {
        let standings = within("all are renewed", self.backend.renew(&self.claims)).await.unwrap();
        let gone = standings.iter().enumerate().filter(|(_, standing)| match standing {
            Standing::Held(_) => false,
            Standing::Gone => true,
            other => panic!("{other:?}"),
        });
        gone.map(|(number, _)| number).collect()
    }
}

fn delete(place: &Place, number: usize) {
    shared().ask(&["del", "--prefix", &format!("{}n{number}/", place.prefix)]).unwrap();
}

async fn of_many_locks_those_that_ended_are_gone_and_all_others_are_held() {
    let place = Place::shared();
    let holder = holder(&place).await;
    let hears = Arc::clone(&holder.backend);
    let listener = tokio::spawn(async move { while hears.wait().await.is_ok() {} });
    // Some are deleted before they are watched, some before they were ever read, some later.
    delete(&place, 7);
    assert_eq!(holder.gone().await, [7]);
    tokio::time::sleep(WATCHED).await;
    delete(&place, 11);
    assert_eq!(holder.gone().await, [7, 11]);
    for number in [20, 21, 299, 0] {
        delete(&place, number);
        assert!(holder.gone().await.contains(&number), "{number} is still held");
    }
    assert_eq!(holder.gone().await, [0, 7, 11, 20, 21, 299]);
    listener.abort();
}

/// What the stream of watches says is not taken from it, so that nothing is known from it.
async fn many_locks_are_renewed_though_nobody_listens() {
    let place = Place::shared();
    let holder = holder(&place).await;
    for number in 1..=5 {
        delete(&place, number);
        assert_eq!(holder.gone().await, (1..=number).collect::<Vec<_>>());
    }
}

/// Nothing is known from the stream of watches.
async fn of_many_that_wait_each_change_is_found_though_nobody_listens() {
    let place = Place::shared();
    let waits = |entered: &Entered| matches!(entered, Entered::Waiting(_));
    let first = enter(&place, WAITING, |entered| matches!(entered, Entered::Held(_))).await;
    let (second, third) = (enter(&place, WAITING, waits).await, enter(&place, WAITING, waits).await);
    // How many are ahead of each; none: it holds; nothing: it is gone.
    let ahead = async |client: &Holder| -> Vec<Option<u32>> {
        let standings = within("all are renewed", client.backend.renew(&client.claims)).await.unwrap();
        let ahead = standings.into_iter().map(|standing| match standing {
            Standing::Held(_) => Some(0),
            Standing::Waiting(place) => Some(place.ahead),
            Standing::Gone => None,
            other => panic!("{other:?}"),
        });
        ahead.collect()
    };
    let mut expected = (vec![Some(1); WAITING as usize], vec![Some(2); WAITING as usize]);
    assert_eq!((ahead(&second).await, ahead(&third).await), expected);
    // A holder leaves, a waiter is put out, and one leaves on its own.
    let [left, evicted, gone] = [&first.claims[3], &second.claims[5], &second.claims[7]];
    first.backend.leave(&left.name, left.id, Leave::Done).await.unwrap();
    first.backend.leave(&evicted.name, evicted.id, Leave::evicted("no more")).await.unwrap();
    second.backend.leave(&gone.name, gone.id, Leave::Done).await.unwrap();
    (expected.0[3], expected.0[5], expected.0[7]) = (Some(0), None, None);
    (expected.1[5], expected.1[7]) = (Some(1), Some(1));
    assert_eq!(ahead(&second).await, expected.0);
    // The line of one moved on behind the claim ahead of it: nobody heard that here, and it still waits.
    let mut third_ahead = ahead(&third).await;
    assert!(matches!(third_ahead[3], Some(1 | 2)), "{third_ahead:?}");
    third_ahead[3] = expected.1[3];
    assert_eq!(third_ahead, expected.1);
}
