//! `?mode=advisory`: locks that live with a session, and keep out programs that take them by hand.

use test_servers::{PgBouncer, Postgres, Server};

use crate::{
    end_sessions, sql,
    support::{
        LONG, NAME, Place, eventually, got, held_and_waited_for, report, until_idle, until_waiting, waiter,
        within, witness::Storm,
    },
};

trials! {
    a_lock_and_an_advisory_lock_taken_by_hand_exclude_each_other,
    who_loses_its_session_hears_at_once_that_it_lost_the_lock,
    nothing_of_a_session_is_left_when_locks_are_given_back,
    behind_a_pooler_it_is_refused,
}

/// A server whose locks nobody else takes, and a place there.
fn alone() -> (Server, Place) {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url()).with("mode=advisory");
    (server, place)
}

async fn a_lock_and_an_advisory_lock_taken_by_hand_exclude_each_other() {
    let (server, place) = alone();
    let locks = place.connect().await;
    let key = format!("tidelock.key('{}{NAME}')", place.prefix);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let try_it = format!("SELECT pg_try_advisory_lock({key})");
    assert_eq!(sql(&server, &try_it), "f");
    guard.release().await.unwrap();
    assert_eq!(sql(&server, &try_it), "t");
    let reader = locks.rw_lock(NAME).ttl(LONG).read().await.unwrap();
    assert_eq!(sql(&server, &try_it), "f");
    assert_eq!(sql(&server, &format!("SELECT pg_try_advisory_lock_shared({key})")), "t");
    reader.release().await.unwrap();

    let text = format!("SELECT pg_advisory_lock({key}), pg_sleep(5)");
    let mut psql = server.client().args(["-c", &text]).spawn().unwrap();
    let is_held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    eventually("it is taken by hand", || sql(&server, is_held) == "1").await;
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    assert_eq!(locks.look(&[NAME]).await.unwrap(), [], "a try leaves nothing behind");
    let waiting = waiter(&locks, NAME, LONG);
    let guard = got(waiting).await;
    assert!(psql.try_wait().unwrap().is_some(), "two hold it");
    guard.release().await.unwrap();
    psql.wait().unwrap();
}

async fn who_loses_its_session_hears_at_once_that_it_lost_the_lock() {
    let (server, place) = alone();
    let (locks, other) = (place.connect().await, place.connect().await);
    // Its next renewal is minutes away.
    let guard = locks.mutex(NAME).ttl(20 * LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&other, NAME, 1).await;
    assert_eq!(end_sessions(&server), 2);
    assert!(within("the holder hears it", guard.lost()).await.is_lost());
    let next = got(waiting).await;
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
    until_idle(&other, NAME).await;
}

async fn nothing_of_a_session_is_left_when_locks_are_given_back() {
    let (server, place) = alone();
    let (locks, other) = (place.connect().await, place.connect().await);
    for _ in 0..3 {
        let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
        guard.release().await.unwrap();
        got(waiting).await.release().await.unwrap();
    }
    let storm = Storm::begin(&place, "storm", LONG, 4).await;
    let (grants, doubles) = (storm.witness.grants(), storm.end().await);
    report(&format!("with advisory locks 4 clients had {grants} grants, {doubles} of them twice"));
    assert_eq!(doubles, 0);
    let left = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually("no session has a lock", || sql(&server, left) == "0").await;
}

async fn behind_a_pooler_it_is_refused() {
    let (server, place) = alone();
    let pooler = PgBouncer::new(3).start(&server).unwrap();
    place.connect().await;
    let pooled = place.through(pooler.url());
    let error = pooled.try_connect().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("moves sessions"), "{error}");
}
