//! Connections are cut, servers paused and started again, masters replaced: with other programs in the way or not.

use test_servers::{Proxy, Redis};

use crate::{
    support::{LONG, NAME, Place, RENEWED, SHORT, eventually, got, report, until_waiting, waiter, within},
    witness::Storm,
};

trials! {
    a_waiter_whose_connections_are_cut_gets_the_lock_of_another_program,
    a_server_paused_for_longer_than_the_ttl_ends_the_hold_before_another_program_can_begin,
    a_server_that_is_killed_and_keeps_its_data_keeps_the_hold,
    a_master_that_is_replaced_goes_on_with_the_locks_of_both,
}

const MODES: [&str; 2] = ["mode=setnx", "mode=redisson"];

async fn a_waiter_whose_connections_are_cut_gets_the_lock_of_another_program() {
    for mode in MODES {
        let server = Redis::new().start().unwrap();
        let proxy = Proxy::start(server.addr()).unwrap();
        let place = Place::on(server.url()).with(mode);
        let (locks, other) = (place.behind(&proxy).connect().await, place.connect().await);
        let put = if mode == MODES[0] {
            ["SET", NAME, "x", "EX", "300"].as_slice()
        } else {
            &["HSET", NAME, "x", "1"]
        };
        server.command(put).unwrap();
        let waiting = waiter(&locks, NAME, LONG);
        until_waiting(&other, NAME, 1).await;
        for _ in 0..3 {
            proxy.disconnect();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert!(!waiting.is_finished());
        server.command(&["DEL", NAME]).unwrap();
        got(waiting).await.release().await.unwrap();
        assert_eq!(server.command(&["EXISTS", NAME]).unwrap().unwrap(), "0");
    }
}

async fn a_server_paused_for_longer_than_the_ttl_ends_the_hold_before_another_program_can_begin() {
    for mode in MODES {
        let server = Redis::new().start().unwrap();
        let locks = Place::on(server.url()).with(mode).connect().await;
        let guard = locks.mutex(NAME).ttl(SHORT).lock().await.unwrap();
        server.pause().unwrap();
        // Nobody can take anything of a server that is paused: it is over before it goes on.
        assert!(within("the hold ends", guard.lost()).await.is_lost());
        server.resume().unwrap();
        eventually("another program takes it", || {
            server.command(&["SET", NAME, "theirs", "NX", "PX", "30000"]).unwrap().is_some()
        })
        .await;
        assert!(!guard.is_held());
    }
}

async fn a_server_that_is_killed_and_keeps_its_data_keeps_the_hold() {
    for mode in MODES {
        let server = Redis::new().durable().start().unwrap();
        let (locks, other) = {
            let place = Place::on(server.url()).with(mode);
            (place.connect().await, place.connect().await)
        };
        let guard = locks.mutex(NAME).ttl(RENEWED).lock().await.unwrap();
        let waiting = waiter(&other, NAME, LONG);
        until_waiting(&locks, NAME, 1).await;
        server.kill().unwrap();
        server.restart().unwrap();
        until_waiting(&other, NAME, 1).await;
        assert!(guard.is_held());
        assert_eq!(server.command(&["EXISTS", NAME]).unwrap().unwrap(), "1");
        guard.release().await.unwrap();
        got(waiting).await.release().await.unwrap();
    }
}

async fn a_master_that_is_replaced_goes_on_with_the_locks_of_both() {
    let installation = Redis::new().start_sentinel().unwrap();
    let place = Place::on(installation.url()).with("mode=redisson&replicas=1");
    let storm = Storm::begin(&place, NAME, SHORT, 3).await;
    let old = installation.master_server().unwrap();
    old.kill().unwrap();
    installation.wait_for_successor(old).unwrap();
    storm.goes_on().await;
    let grants = storm.witness.grants();
    let doubles = storm.end().await;
    report(&format!("{doubles} double grants among {grants} while Sentinels replaced a master"));
    assert_eq!(doubles, 0);
}
