//! Holders that are evicted, killed, stopped or cut off from servers that vote.

use std::time::Instant;

use test_servers::{Proxy, Server};
use tidelock::{
    LockState, Locks,
    backend::{Backend, Leave, Standing},
};

use crate::{
    five::{Five, LONGEST, claim},
    support::{LONG, NAME, SHORT, eventually, got, processes, until_idle, until_waiting, waiter, within},
};

trials! {
    a_ticket_that_was_released_is_not_put_back_by_the_client_that_took_it,
    an_eviction_reaches_the_holder_with_its_reason,
    a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends,
    a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on,
    a_holder_cut_off_from_all_servers_has_lost_the_lock_before_another_holds,
    a_holder_cut_off_from_two_of_five_keeps_its_lock,
}

async fn an_eviction_reaches_the_holder_with_its_reason() {
    let five = Five::durable();
    let (locks, other) = (five.connect().await, five.connect().await);
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    let holder = other.look(&[NAME]).await.unwrap()[0].holders[0].id;
    other.evict(NAME, holder, "the deploy hangs").await.unwrap();
    let loss = within("the holder hears it", guard.lost()).await;
    assert!(loss.to_string().contains("the deploy hangs"), "{loss}");
    let next = got(waiting).await;
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

async fn a_holder_killed_with_9_lets_the_next_in_when_its_lease_ends() {
    let five = Five::durable();
    processes::killed_lets_the_next_in(&five.connect().await, &five.url()).await;
}

async fn a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on() {
    let five = Five::durable();
    let locks = five.connect().await;
    let guard = processes::stopped_past_its_ttl_has_lost_it(&locks, &five.url()).await;
    // What it still sends ends nobody else's hold.
    let id = five.backend(7).await;
    id.leave(&tidelock::Name::new(NAME).unwrap(), claim(1, 1, LONG).id, Leave::Done).await.unwrap();
    assert_eq!(id.renew(&[claim(1, 1, LONG)]).await.unwrap(), [Standing::Gone]);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn a_holder_cut_off_from_all_servers_has_lost_the_lock_before_another_holds() {
    let five = Five::durable();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let cut_off = Locks::connect(&url).await.unwrap();
    let guard = cut_off.mutex(NAME).ttl(SHORT).lock().await.unwrap();
    let locks = five.connect().await;
    let waiting = waiter(&locks, NAME, SHORT);
    until_waiting(&locks, NAME, 1).await;
    proxies.iter().for_each(Proxy::cut);
    let next = got(waiting).await;
    // Read after the other one holds: the deadline must have been before that.
    assert_eq!(guard.state(), LockState::Lost);
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

async fn a_holder_cut_off_from_two_of_five_keeps_its_lock() {
    let five = Five::durable();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let cut_off = Locks::connect(&url).await.unwrap();
    let guard = cut_off.mutex(NAME).ttl(LONGEST).lock().await.unwrap();
    let locks = five.connect().await;
    proxies[..2].iter().for_each(Proxy::cut);
    let renewed = guard.valid_for();
    let until = Instant::now() + 2 * LONGEST;
    while Instant::now() < until {
        assert!(locks.mutex(NAME).ttl(LONGEST).try_lock().await.unwrap().is_none(), "it lapsed");
        tokio::time::sleep(LONGEST / 8).await;
    }
    assert!(guard.is_held(), "it was valid for {renewed:?} when the servers were cut off");
    guard.release().await.unwrap();
    until_idle(&locks, NAME).await;
}

/// The claims of a client are put on servers that come back, before its next renewal. A ticket may have ended by then.
async fn a_ticket_that_was_released_is_not_put_back_by_the_client_that_took_it() {
    let five = Five::durable();
    let proxies: Vec<_> = five.servers.iter().map(|server| Proxy::start(server.addr()).unwrap()).collect();
    let url = five.url_of(proxies.iter().map(|proxy| proxy.addr().to_string()));
    let locks = Locks::connect(&url).await.unwrap();
    let ticket =
        locks.mutex(NAME).ttl(10 * LONG).detached(true).lock().await.unwrap().leave_behind().unwrap();
    let witness = locks.mutex("witness").ttl(10 * LONG).lock().await.unwrap();
    let other = five.connect().await;
    other.release(&ticket).await.unwrap();
    for (server, proxy) in five.servers.iter().zip(&proxies) {
        proxy.cut();
        server.command(&["DEL", "tidelock:{witness}"]).unwrap();
        proxy.heal().unwrap();
    }
    let has_witness = |server: &Server| server.command(&["GET", "tidelock:{witness}"]).unwrap().is_some();
    eventually("claims are put back", || five.servers.iter().all(has_witness)).await;
    assert_eq!(other.look(&[NAME]).await.unwrap(), []);
    witness.release().await.unwrap();
}
