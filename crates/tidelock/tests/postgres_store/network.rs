//! Connections that are cut, sessions that are ended, and answers that are lost after the commit.

use test_servers::Postgres;

use crate::{
    end_sessions, sql,
    support::{LONG, NAME, Place, eventually, got, held_and_waited_for, shared, until_idle, within},
};

trials! {
    sessions_that_an_administrator_ends_cost_nobody_a_lock_or_a_place,
    a_row_that_somebody_keeps_locked_delays_only_its_own_lock,
}

async fn sessions_that_an_administrator_ends_cost_nobody_a_lock_or_a_place() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    for _ in 0..5 {
        let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
        assert_eq!(end_sessions(&server), 2);
        // Given back over a new session, and heard on one.
        let token = guard.token();
        guard.release().await.unwrap();
        let next = got(waiting).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
        until_idle(&locks, NAME).await;
    }
}

async fn a_row_that_somebody_keeps_locked_delays_only_its_own_lock() {
    let place = Place::shared();
    let locks = place.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let text = format!(
        "BEGIN; SELECT FROM tidelock.line WHERE name = '{}{NAME}' FOR UPDATE; SELECT pg_sleep(6)",
        place.prefix
    );
    let mut psql = shared().client().args(["-c", &text]).spawn().unwrap();
    let is_locked =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(6)%' AND wait_event = 'PgSleep'";
    eventually("the row is locked", || sql(&shared(), is_locked) == "1").await;
    let mutex = locks.mutex(NAME).ttl(LONG);
    let stuck = tokio::spawn(async move { mutex.lock().await });
    let other = within("another lock can be had", locks.mutex("another").ttl(LONG).lock()).await.unwrap();
    other.release().await.unwrap();
    psql.wait().unwrap();
    // It was told that somebody is at the row, or had patience enough.
    match within("the stuck one ends", stuck).await.unwrap() {
        Ok(guard) => guard.release().await.unwrap(),
        Err(error) => assert!(error.is_unavailable() && error.to_string().contains("same row"), "{error}"),
    }
    until_idle(&locks, NAME).await;
    within("it can be had again", locks.mutex(NAME).lock()).await.unwrap().release().await.unwrap();
}
