//! A server that loses its data: its transactions are counted anew.

use test_servers::Zookeeper;
use tidelock::{Guard, Locks, Token};

use crate::support::{NAME, Place, SHORT, within};

trials! {
    tokens_grow_for_new_clients_after_the_data_of_a_server_were_wiped,
    tokens_grow_for_clients_that_live_while_the_data_of_a_server_are_wiped,
    tokens_grow_after_the_node_of_epochs_was_deleted,
}

/// Takes a lock some times. Says the last token.
async fn turns(locks: &Locks, times: usize) -> Token {
    let mut token = None;
    for _ in 0..times {
        let guard = within("the lock is granted", again(locks)).await;
        assert!(token < Some(guard.token()), "{token:?} before {:?}", guard.token());
        token = Some(guard.token());
        guard.release().await.unwrap();
    }
    token.unwrap()
}

/// Asks until the server is back.
async fn again(locks: &Locks) -> Guard {
    loop {
        match locks.mutex(NAME).ttl(SHORT).lock().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

async fn tokens_grow_for_new_clients_after_the_data_of_a_server_were_wiped() {
    let server = Zookeeper::new().start().unwrap();
    let place = Place::on(server.url());
    let last = turns(&place.connect().await, 20).await;
    server.restart_empty().unwrap();
    let after = turns(&place.connect().await, 1).await;
    assert!(after > last, "{after:?} after {last:?}");
}

async fn tokens_grow_for_clients_that_live_while_the_data_of_a_server_are_wiped() {
    let server = Zookeeper::new().start().unwrap();
    let locks = Place::on(server.url()).connect().await;
    let last = turns(&locks, 20).await;
    server.restart_empty().unwrap();
    let after = turns(&locks, 1).await;
    assert!(after > last, "{after:?} after {last:?}");
}

async fn tokens_grow_after_the_node_of_epochs_was_deleted() {
    let place = Place::shared();
    let locks = place.connect().await;
    let last = turns(&locks, 3).await;
    let bare = place.bare().await;
    // Before it was made there is none.
    let _ = bare.delete(&format!("{}/%epoch", place.prefix)).await;
    let after = turns(&locks, 1).await;
    assert!(after > last, "{after:?} after {last:?}");
    assert!(turns(&place.connect().await, 1).await > after);
}
