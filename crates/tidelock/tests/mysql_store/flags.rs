//! Connections through proxies that set `CLIENT_FOUND_ROWS` for all clients.

use crate::{
    relay::Relay,
    support::{LONG, Place, hand_over, report, shared, within},
};

trials! {
    one_holds_a_new_name_whatever_a_changed_row_means_on_the_connection,
    a_line_moves_on_whatever_a_changed_row_means_on_the_connection,
}

async fn one_holds_a_new_name_whatever_a_changed_row_means_on_the_connection() {
    const NAMES: usize = 150;
    const CLIENTS: usize = 4;
    let relay = Relay::with_found_rows(shared().addr());
    let place = Place::shared();
    let place = place.through(&relay.url(shared().url()));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(place.connect().await);
    }
    let mut doubled = 0;
    for n in 0..NAMES {
        let tries = clients.iter().map(|locks| {
            let mutex = locks.mutex(format!("new/{n}")).ttl(LONG);
            tokio::spawn(async move { mutex.try_lock().await.unwrap() })
        });
        let mut guards = Vec::new();
        for trying in tries.collect::<Vec<_>>() {
            guards.extend(within("it is answered", trying).await.unwrap());
        }
        assert!(!guards.is_empty(), "somebody comes first");
        doubled += usize::from(guards.len() > 1);
    }
    report(&format!("of {NAMES} new names, {doubled} were held by several with CLIENT_FOUND_ROWS"));
    assert_eq!(doubled, 0);
}

async fn a_line_moves_on_whatever_a_changed_row_means_on_the_connection() {
    let relay = Relay::with_found_rows(shared().addr());
    let place = Place::shared();
    let place = place.through(&relay.url(shared().url()));
    let (locks, other) = (place.connect().await, place.connect().await);
    for _ in 0..10 {
        hand_over(&locks, &other).await;
    }
    assert_eq!(locks.concerns(), [] as [String; 0]);
}
