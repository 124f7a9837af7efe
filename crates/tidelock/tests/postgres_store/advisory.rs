//! `?mode=advisory`: locks that live with a session, and keep out programs that take them by hand.

use std::{
    fs,
    process::Child,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

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
    a_lock_that_was_given_back_while_it_was_asked_for_is_not_taken_for_ours,
    clients_and_programs_that_lock_by_hand_never_overlap,
    locks_that_are_wanted_at_once_all_have_their_advisory_locks,
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
    let holder = "SELECT string_agg(application_name, ',') FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted";
    assert_eq!(sql(&server, holder), "tidelock");
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

/// Runs a script in a session of its own.
fn program(server: &Server, name: &str, text: &str) -> Child {
    let file = server.folder().join(format!("{name}.sql"));
    fs::write(&file, text).unwrap();
    server.client().env("PGAPPNAME", name).arg("-f").arg(&file).spawn().unwrap()
}

async fn a_lock_that_was_given_back_while_it_was_asked_for_is_not_taken_for_ours() {
    let (server, place) = alone();
    place.serves().await;
    // Another program takes and gives back as fast as it can; a client that says it has the lock must have it.
    let stranger = "DO $$ DECLARE k bigint := tidelock.key('n'); BEGIN FOR i IN 1 .. 2000000 LOOP PERFORM pg_advisory_lock(k); PERFORM pg_advisory_unlock(k); END LOOP; END $$";
    let mut stranger = program(&server, "stranger", stranger);
    let ours = "SET application_name = 'tidelock'; CREATE TEMP TABLE seen (what text); DO $$ DECLARE k bigint := tidelock.key('n'); BEGIN FOR i IN 1 .. 20000 LOOP IF tidelock.take('n', false) THEN IF tidelock.has(k, false) THEN PERFORM pg_advisory_unlock(k); ELSE INSERT INTO seen VALUES ('only said'); END IF; END IF; END LOOP; END $$; SELECT count(*) FROM seen";
    let only_said = sql(&server, ours);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(only_said, "0", "so often it was said that the lock is there, and it was not");
}

fn micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// When each held, by one clock: of programs from after their lock until before they give it back, of ours the same.
async fn clients_and_programs_that_lock_by_hand_never_overlap() {
    let (server, place) = alone();
    let seconds: u32 =
        std::env::var("TIDELOCK_ADVISORY_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    place.serves().await;
    sql(&server, "CREATE TABLE held (since bigint, until bigint)");
    let by_hand = format!(
        "DO $$ DECLARE k bigint := tidelock.key('{}{NAME}'); since bigint; over timestamptz := clock_timestamp() + interval '{seconds}s'; BEGIN WHILE clock_timestamp() < over LOOP PERFORM pg_advisory_lock(k); since := extract(epoch FROM clock_timestamp()) * 1e6; PERFORM pg_sleep(0.001); INSERT INTO held VALUES (since, extract(epoch FROM clock_timestamp()) * 1e6); PERFORM pg_advisory_unlock(k); PERFORM pg_sleep(random() * 0.004); END LOOP; END $$",
        place.prefix
    );
    let mut programs: Vec<Child> =
        (0..2).map(|n| program(&server, &format!("program{n}"), &by_hand)).collect();
    let mut turns = Vec::new();
    for _ in 0..3 {
        let mutex = place.connect().await.mutex(NAME).ttl(LONG);
        turns.push(tokio::spawn(async move {
            let (mut held, over) = (Vec::new(), micros() + u128::from(seconds) * 1_000_000);
            while micros() < over {
                let Ok(guard) = mutex.lock().await else { continue };
                let since = micros();
                tokio::time::sleep(Duration::from_millis(1)).await;
                let until = micros();
                if guard.is_held() {
                    held.push((since, until));
                }
                // With sessions that are ended it may be lost.
                let _ = guard.release().await;
            }
            held
        }));
    }
    let terminates = std::env::var_os("TIDELOCK_ADVISORY_TERMINATES").is_some();
    let mut ends = Vec::new();
    while terminates && turns.iter().any(|turn| !turn.is_finished()) {
        tokio::time::sleep(Duration::from_millis(700)).await;
        ends.push(micros());
        end_sessions(&server);
    }
    let mut held: Vec<(u128, u128, bool)> = Vec::new();
    for turn in turns {
        let some = within("a client ends", turn).await.unwrap();
        held.extend(some.into_iter().map(|(since, until)| (since, until, true)));
    }
    for program in &mut programs {
        program.wait().unwrap();
    }
    let ours = held.len();
    for line in sql(&server, "SELECT since, until FROM held").lines() {
        let (since, until) = line.split_once('|').unwrap();
        held.push((since.parse().unwrap(), until.parse().unwrap(), false));
    }
    held.sort_unstable();
    let overlaps: Vec<_> = held.windows(2).filter(|two| two[1].0 < two[0].1).collect();
    report(&format!(
        "{ours} grants of ours and {} of programs that lock by hand, {} ends of all sessions: {} overlaps",
        held.len() - ours,
        ends.len(),
        overlaps.len()
    ));
    for two in &overlaps {
        let before = ends.iter().rev().find(|end| **end <= two[1].0).map(|end| two[1].0 - end);
        report(&format!("{two:?}, {before:?} µs after sessions were ended"));
    }
    assert!(terminates || overlaps.is_empty());
}

/// Calls for several locks know nothing of sessions.
async fn locks_that_are_wanted_at_once_all_have_their_advisory_locks() {
    let (server, place) = alone();
    let locks = place.connect().await;
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    for _ in 0..3 {
        let names = (0..12).map(|number| format!("lock {number}"));
        let asked: Vec<_> = names.map(|name| waiter(&locks, &name, LONG)).collect();
        let mut guards = Vec::new();
        for waiting in asked {
            guards.push(got(waiting).await);
        }
        assert_eq!(sql(&server, held), "12");
        let releasing: Vec<_> = guards.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
        for released in releasing {
            within("it is released", released).await.unwrap().unwrap();
        }
        assert_eq!(sql(&server, held), "0");
    }
}
