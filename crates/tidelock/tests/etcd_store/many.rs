//! Very many locks are renewed together: servers that tell what they told are believed, others are read.

use std::{sync::Arc, time::Duration};

use tidelock::{
    Name,
    backend::{Ask, Backend, Claim, ClaimId, ClientId, Entered, Share, Standing},
    backends::etcd::{EtcdBackend, EtcdConfig},
};

use crate::support::{LONG, Place, shared, within};

trials! {
    of_many_locks_those_that_ended_are_gone_and_all_others_are_held,
    many_locks_are_renewed_though_nobody_listens,
}

/// More than one transaction reads.
const MANY: u64 = 300;
/// After which a hold is watched.
const WATCHED: Duration = Duration::from_millis(300);

struct Holder {
    backend: Arc<EtcdBackend>,
    claims: Vec<Arc<Claim>>,
}

/// A client that holds many locks.
async fn holder(place: &Place) -> Holder {
    let client = ClientId::random();
    let backend = EtcdBackend::connect(EtcdConfig::from_url(&place.url()).unwrap(), client).await.unwrap();
    let mut claims = Vec::new();
    for number in 0..MANY {
        let name = Name::new(&format!("n{number}")).unwrap();
        let claim = Arc::new(Claim::new(ClaimId::new(client, number + 1), name, Share::Exclusive, LONG));
        assert!(matches!(backend.enter(&claim, Ask::Queue).await.unwrap(), Entered::Held(_)));
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
