//! Leaders that are killed, and ensembles that are started again.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use test_servers::{Cluster, Server, Zookeeper};
use tidelock::LockState;

use crate::support::{
    NAME, Place, eventually, got, held_and_waited_for, report, until_idle, within, witness::Storm,
};

trials! {
    a_leader_that_is_killed_or_paused_costs_no_lock_and_no_order,
    an_ensemble_that_is_started_again_still_knows_who_holds,
}

/// Whether a server leads; nothing if it does not answer.
fn leads(server: &Server) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(server.addr())?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"srvr")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text.contains("Mode: leader"))
}

async fn leader(ensemble: &Cluster) -> &Server {
    let mut found = None;
    eventually("somebody leads", || {
        found = ensemble.nodes().iter().find(|server| server.pid().is_some() && leads(server));
        found.is_some()
    })
    .await;
    found.unwrap()
}

async fn a_leader_that_is_killed_or_paused_costs_no_lock_and_no_order() {
    let ensemble = Zookeeper::new().start_ensemble().unwrap();
    let place = Place::on(ensemble.url());
    let locks = place.connect().await;
    // Long enough for an election.
    let (guard, waiting) = held_and_waited_for(&locks, &place.connect().await, "kept").await;
    let storm = Storm::begin(&place, NAME, Duration::from_secs(10), 4).await;
    for round in 0..2 {
        let led = leader(&ensemble).await;
        led.kill().unwrap();
        storm.goes_on().await;
        led.restart().unwrap();
        let led = leader(&ensemble).await;
        led.pause().unwrap();
        eventually("another one leads", || {
            ensemble.nodes().iter().any(|server| !std::ptr::eq(server, led) && leads(server))
        })
        .await;
        storm.goes_on().await;
        led.resume().unwrap();
        storm.goes_on().await;
        report(&format!("round {round}: {} grants so far", storm.witness.grants()));
    }
    assert_eq!(storm.end().await, 0, "two held at once");
    eventually("the lock that was held all the time is known to be", || guard.state() == LockState::Held)
        .await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn an_ensemble_that_is_started_again_still_knows_who_holds() {
    let ensemble = Zookeeper::new().start_ensemble().unwrap();
    let place = Place::on(ensemble.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    ensemble.restart().unwrap();
    let third = within("it connects", place.connect()).await;
    assert!(within("it is answered", third.mutex(NAME).try_lock()).await.unwrap().is_none());
    eventually("the holder is sure again", || guard.state() == LockState::Held).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&third, NAME).await;
}
