//! Connections that are killed, refused, or wait for each other.

use std::time::{Duration, Instant};

use test_servers::MariaDb;

use crate::{
    sql,
    support::{
        LONG, NAME, Place, eventually, got, hand_over, held_and_waited_for, is_one_sentence, pass_on, report,
        shared, until_idle, waiter, within,
    },
};

trials! {
    connections_that_are_killed_are_opened_again_and_nobody_loses_anything,
    a_waiter_is_woken_not_found_by_asking,
    a_listener_that_cannot_be_woken_asks_and_says_so,
    a_full_server_is_said_and_asked_again,
    renewals_of_many_lines_at_once_wait_for_nobody_in_a_circle,
    who_keeps_a_line_locked_delays_others_and_breaks_nothing,
    a_call_that_an_administrator_ends_leaves_no_transaction_open_for_the_next_grant,
    a_client_whose_bell_somebody_else_has_asks_instead,
    a_call_that_takes_long_holds_no_other_up_and_leaves_no_connection_behind,
}

/// Kills all connections to the database of a place but that of who asks.
fn kill_all(place: &Place) {
    let server = shared();
    let ids = place.ask(
        &server,
        &format!(
            "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
            place.prefix
        ),
    );
    assert!(!ids.is_empty(), "nobody is connected: this shows nothing");
    for id in ids.lines() {
        // It may have gone meanwhile.
        let _ = server.ask(&["-e", &format!("KILL {id}")]);
    }
}

async fn connections_that_are_killed_are_opened_again_and_nobody_loses_anything() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    for _ in 0..5 {
        let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
        kill_all(&place);
        assert!(guard.is_held());
        guard.release().await.unwrap();
        got(waiting).await.release().await.unwrap();
        until_idle(&locks, NAME).await;
    }
}

/// Asking happens every two seconds only, so hand-overs that take less on the average were pushed.
async fn a_waiter_is_woken_not_found_by_asking() {
    const TURNS: u32 = 50;
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    hand_over(&locks, &other).await;
    let mut spent = Duration::ZERO;
    for _ in 0..TURNS {
        let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
        let began = Instant::now();
        guard.release().await.unwrap();
        let guard = got(waiting).await;
        spent += began.elapsed();
        guard.release().await.unwrap();
    }
    report(&format!("from a release to the next holder: {:?} on the average", spent / TURNS));
    let asleep = place.ask(
        &shared(),
        &format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND (info LIKE 'DO SLEEP%' OR info LIKE 'DO GET_LOCK%')",
            place.prefix
        ),
    );
    assert_eq!(asleep, "2", "both listen, and sleep until they are woken");
    assert_eq!(locks.concerns(), [] as [String; 0]);
}

async fn a_listener_that_cannot_be_woken_asks_and_says_so() {
    let place = Place::shared();
    drop(place.connect().await);
    // As where a proxy hides who has which connection: nobody is found.
    place.ask(
        &shared(),
        "DROP PROCEDURE tidelock_ring; CREATE PROCEDURE tidelock_ring(p_bells MEDIUMTEXT) DO 0",
    );
    let (locks, other) = (place.connect().await, place.connect().await);
    eventually("it is noticed", || locks.concerns().iter().any(|concern| concern.contains("KILL QUERY")))
        .await;
    hand_over(&locks, &other).await;
}

async fn a_full_server_is_said_and_asked_again() {
    let server = MariaDb::new().durable().option("--max-connections=10").start().unwrap();
    let place = Place::at(&server);
    let mut all = Vec::new();
    // The server's own client needs one, too: root has one more than all others.
    let error = within("it is full", async {
        loop {
            match place.try_connect().await {
                Ok(locks) => all.push(locks),
                Err(error) => return error,
            }
        }
    });
    let error = error.await;
    is_one_sentence(&error);
    assert!(error.is_unavailable() && error.to_string().contains("raise the limit"), "{error}");
    // Those that are in go on, and when there is room again others come in.
    let guard = all[0].mutex(NAME).lock().await.unwrap();
    guard.release().await.unwrap();
    all.truncate(1);
    within("there is room again", async {
        while place.try_connect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Two clients hold the same fifty lines, as owners do, and renew them over and over while others come and go.
async fn renewals_of_many_lines_at_once_wait_for_nobody_in_a_circle() {
    let place = Place::shared();
    let (locks, other) = (place.connect().await, place.connect().await);
    let ttl = Duration::from_secs(4);
    let mut guards = Vec::new();
    for n in 0..50 {
        for client in [&locks, &other] {
            let mutex = client.mutex(format!("shared/{n}")).ttl(ttl).owner("both");
            guards.push(mutex.lock().await.unwrap());
        }
    }
    for round in 0..40 {
        let name = format!("shared/{}", round % 50);
        assert!(other.mutex(&name).try_lock().await.unwrap().is_none());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in guards {
        guard.release().await.unwrap();
    }
    let deadlocks = sql(&shared(), "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    report(&format!("deadlocks of the server so far: {deadlocks}"));
}

/// A person with a transaction on the very row: the call waits, is rolled back, and is made again.
async fn who_keeps_a_line_locked_delays_others_and_breaks_nothing() {
    let place = Place::shared();
    let locks = place.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let mut person = shared().client();
    let hold = format!(
        "USE {}; START TRANSACTION; SELECT name FROM tidelock_lines FOR UPDATE; SELECT SLEEP(5); COMMIT",
        place.prefix
    );
    let mut person = person.args(["-e", &hold]).stdout(std::process::Stdio::null()).spawn().unwrap();
    until_locked(&place).await;
    let waiting = waiter(&locks, NAME, LONG);
    got(waiting).await.release().await.unwrap();
    person.wait().unwrap();
    until_idle(&locks, NAME).await;
}

async fn until_locked(place: &Place) {
    let asleep = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}' AND info LIKE 'SELECT SLEEP%'",
        place.prefix
    );
    let server = shared();
    eventually("the row is locked", || place.ask(&server, &asleep) == "1").await;
}

/// A renewal waits for a row in its transaction, and its statement is ended there.
async fn a_call_that_an_administrator_ends_leaves_no_transaction_open_for_the_next_grant() {
    let (server, place) = (shared(), Place::shared());
    let (locks, other) = (place.connect().await, place.connect().await);
    locks.mutex("next").lock().await.unwrap().release().await.unwrap();
    let guard = locks.mutex(NAME).ttl(Duration::from_secs(9)).lock().await.unwrap();
    let mut person = server.client();
    let hold = format!(
        "USE {}; START TRANSACTION; SELECT name FROM tidelock_lines WHERE name = '{NAME}' FOR UPDATE; SELECT SLEEP(30)",
        place.prefix
    );
    let mut person = person.args(["-e", &hold]).stdout(std::process::Stdio::null()).spawn().unwrap();
    let waiting = format!(
        "SELECT id FROM information_schema.processlist WHERE db = '{}' AND info LIKE 'SELECT many, client%FOR UPDATE'",
        place.prefix
    );
    eventually("a renewal waits, and is ended", || {
        let id = place.ask(&server, &waiting);
        !id.is_empty() && server.ask(&["-e", &format!("KILL QUERY {id}")]).is_ok()
    })
    .await;
    person.kill().unwrap();
    person.wait().unwrap();
    let next = within("it is granted", locks.mutex("next").ttl(LONG).lock()).await.unwrap();
    let seen = other.look(&["next"]).await.unwrap();
    assert_eq!(seen.len(), 1, "what was answered is committed");
    assert!(other.mutex("next").try_lock().await.unwrap().is_none());
    next.release().await.unwrap();
    guard.release().await.unwrap();
}

/// As a connection that is gone and that the server still has: somebody has the lock by which the client is found.
async fn a_client_whose_bell_somebody_else_has_asks_instead() {
    let (server, place) = (shared(), Place::shared());
    let (locks, other) = (place.connect().await, place.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    let client = locks.look(&[NAME]).await.unwrap()[0].waiters[0].id.client().get();
    let bell = format!("CONCAT('tidelock bell ', LEFT(MD5('{}'), 16), ' {client}')", place.prefix);
    // Each time that it is woken it sleeps again.
    let keep = format!("DO GET_LOCK({bell}, 40); {}", "DO SLEEP(30); ".repeat(2_000));
    let mut person = server.client();
    let mut person = person.args(["--force", "-e", &keep]).spawn().unwrap();
    let owner = format!(
        "SELECT info FROM information_schema.processlist WHERE id = IS_USED_LOCK({bell}) AND db = 'test'"
    );
    eventually("somebody has the bell", || !sql(&server, &owner).is_empty()).await;
    pass_on(guard, vec![waiting]).await;
    for _ in 0..3 {
        hand_over(&locks, &other).await;
    }
    person.kill().unwrap();
    person.wait().unwrap();
    hand_over(&locks, &other).await;
}

async fn a_call_that_takes_long_holds_no_other_up_and_leaves_no_connection_behind() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    for name in [NAME, "another"] {
        locks.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    let mut person = server.client();
    let hold = format!(
        "USE {}; START TRANSACTION; SELECT name FROM tidelock_lines WHERE name = '{NAME}' FOR UPDATE; SELECT SLEEP(600)",
        place.prefix
    );
    let mut person = person.args(["-e", &hold]).stdout(std::process::Stdio::null()).spawn().unwrap();
    until_locked(&place).await;
    let waiting = waiter(&locks, NAME, LONG);
    // Over another connection: the row stays locked until the person goes.
    within("another lock is granted", locks.mutex("another").lock()).await.unwrap().release().await.unwrap();
    assert!(!waiting.is_finished());
    person.kill().unwrap();
    person.wait().unwrap();
    let guard = got(waiting).await;
    let open = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}'", place.prefix);
    // One for calls, and one that listens.
    eventually("the client has two connections", || sql(&server, &open) == "2").await;
    guard.release().await.unwrap();
}
