//! Tables and procedures: made by many at once, by hand, used with few rights, and swept.

use std::{io::Write, process::Stdio};

use test_servers::{MariaDb, Server};
use tidelock::backends::mysql::schema;

use crate::{
    sql,
    support::{LONG, NAME, Place, hand_over, login::refusal, shared, until_idle, within},
};

trials! {
    many_that_come_first_at_once_do_not_collide,
    who_may_only_execute_needs_an_administrator_once_and_then_has_all_locks,
    another_version_is_refused_with_the_fix,
    what_was_dropped_is_made_again,
    settings_of_the_server_change_nothing,
    settings_of_every_connection_change_nothing,
    idle_names_are_swept_little_by_little_and_tokens_grow_on,
    who_came_too_late_is_forgotten_after_an_hour,
}

async fn many_that_come_first_at_once_do_not_collide() {
    let place = Place::shared();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let place = place.clone();
            tokio::spawn(async move { place.connect().await })
        })
        .collect();
    for client in clients {
        let locks = within("a client connects", client).await.unwrap();
        let guard = within("it is its turn", locks.mutex(NAME).lock()).await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Puts the schema into the database as an administrator does.
fn apply(place: &Place) {
    apply_at(&shared(), place);
}

/// The same, on another server.
pub(crate) fn apply_at(server: &Server, place: &Place) {
    let mut client = server.client().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let text = format!("USE {};\n{}", place.prefix, schema());
    client.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(client.wait().unwrap().success());
}

async fn who_may_only_execute_needs_an_administrator_once_and_then_has_all_locks() {
    let (server, place) = (shared(), Place::shared());
    let database = &place.prefix;
    let grant = format!(
        "CREATE USER {database}@'127.0.0.1' IDENTIFIED BY 'x'; GRANT EXECUTE ON {database}.* TO {database}@'127.0.0.1'"
    );
    sql(&server, &grant);
    let poor = place.logged_in(database, "x");
    let error = refusal(&poor).await;
    assert!(error.is_denied() && error.to_string().contains("tidelock schema --print mysql"), "{error}");
    apply(&place);
    let (locks, other) = (poor.connect().await, poor.connect().await);
    for _ in 0..20 {
        hand_over(&locks, &other).await;
    }
    // The bell rings, though nobody has a right to end the statements of others.
    assert_eq!(locks.concerns(), [] as [String; 0]);
    let guard = locks.rw_lock("pages").read().await.unwrap();
    let holder = other.look(&["pages"]).await.unwrap()[0].holders[0].id;
    other.evict("pages", holder, "by hand").await.unwrap();
    assert!(within("it is heard", guard.lost()).await.to_string().contains("by hand"));
    // And none who has no right at all.
    let revoke = format!(
        "REVOKE EXECUTE ON {database}.* FROM {database}@'127.0.0.1'; GRANT SELECT ON {database}.* TO {database}@'127.0.0.1'"
    );
    sql(&server, &revoke);
    let error = refusal(&poor).await;
    assert!(error.is_denied() && error.to_string().contains("EXECUTE"), "{error}");
}

async fn another_version_is_refused_with_the_fix() {
    let place = Place::shared();
    place.ask(&shared(), "CREATE PROCEDURE tidelock_version() SELECT 7");
    let error = refusal(&place).await;
    assert!(error.is_denied() && error.to_string().contains("version 7"), "{error}");
}

async fn what_was_dropped_is_made_again() {
    let place = Place::shared();
    let locks = place.connect().await;
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let database = &place.prefix;
    sql(&shared(), &format!("DROP DATABASE {database}; CREATE DATABASE {database}"));
    within("it is made again", locks.mutex(NAME).lock()).await.unwrap().release().await.unwrap();
}

/// As on a server that somebody tuned for other programs.
async fn settings_of_the_server_change_nothing() {
    let server = MariaDb::new()
        .durable()
        .option("--sql-mode=ANSI,ORACLE,PAD_CHAR_TO_FULL_LENGTH,NO_ZERO_DATE")
        .option("--default-time-zone=+05:30")
        .option("--transaction-isolation=SERIALIZABLE")
        .option("--autocommit=0")
        .option("--group-concat-max-len=8")
        .option("--character-set-server=latin1")
        .option("--lower-case-table-names=1")
        .start()
        .unwrap();
    let place = Place::at(&server);
    let (locks, other) = (place.connect().await, place.connect().await);
    for name in ["a", "A", "a ", "ä", "名"] {
        let guard = locks.mutex(name).ttl(LONG).lock().await.unwrap();
        assert!(other.mutex(name).try_lock().await.unwrap().is_none());
        let view = other.look(&[name]).await.unwrap().remove(0);
        assert!(view.name.as_str() == name && view.holders[0].lapse_in <= LONG);
        drop(guard);
    }
    hand_over(&locks, &other).await;
    until_idle(&locks, NAME).await;
}

/// As an administrator sets them for all who connect, but for other administrators.
async fn settings_of_every_connection_change_nothing() {
    let server = MariaDb::new()
        .durable()
        .option("--sysdate-is-now")
        .option("--init-connect=SET completion_type = 1, tx_read_only = 1, sql_safe_updates = 1, max_statement_time = 0.5, sql_select_limit = 1, autocommit = 0, max_join_size = 1, character_set_results = utf16, foreign_key_checks = 0, unique_checks = 0")
        .start()
        .unwrap();
    let place = Place::at(&server);
    let user = &place.prefix;
    sql(
        &server,
        &format!(
            "ALTER DATABASE {user} CHARACTER SET utf16; CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'; GRANT ALL ON {user}.* TO {user}@'127.0.0.1'"
        ),
    );
    let place = place.logged_in(user, "x");
    let (locks, other, third) = (place.connect().await, place.connect().await, place.connect().await);
    for _ in 0..5 {
        hand_over(&locks, &other).await;
        // What was answered is committed: somebody else sees it.
        let guard = locks.mutex("seen").ttl(LONG).lock().await.unwrap();
        assert_eq!(third.look(&["seen"]).await.unwrap().len(), 1);
        assert!(third.mutex("seen").try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    assert!(place.ask(&server, "SELECT COUNT(*) FROM information_schema.innodb_trx") == "0");
    assert_eq!(locks.concerns(), [] as [String; 0]);
    until_idle(&locks, NAME).await;
}

async fn idle_names_are_swept_little_by_little_and_tokens_grow_on() {
    const NAMES: u32 = 200;
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    let mut largest = None;
    for n in 0..NAMES {
        let guard = locks.mutex(format!("idle/{n}")).lock().await.unwrap();
        largest = largest.max(Some(guard.token()));
        guard.release().await.unwrap();
    }
    let kept = locks.mutex("kept").ttl(20 * LONG).lock().await.unwrap();
    place.ask(&server, "UPDATE tidelock_lines SET day = day - 3");
    // Not all at once.
    let count = || place.ask(&server, "SELECT COUNT(*) FROM tidelock_lines").parse::<u32>().unwrap();
    let mut turns = 0;
    while count() > 2 {
        turns += 1;
        assert!(turns < 20 * NAMES, "{} names are left", count());
        locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    }
    assert!(turns > 1);
    assert!(kept.is_held());
    assert!(place.connect().await.mutex("kept").try_lock().await.unwrap().is_none(), "what is held stays");
    let again = locks.mutex("idle/0").lock().await.unwrap();
    assert!(Some(again.token()) > largest);
    again.release().await.unwrap();
    kept.release().await.unwrap();
}

async fn who_came_too_late_is_forgotten_after_an_hour() {
    let (server, place) = (shared(), Place::shared());
    let locks = place.connect().await;
    for claim in 0..40 {
        place.ask(&server, &format!("CALL tidelock_shut_out('{NAME}', 7, {claim})"));
    }
    let state = format!(
        "SELECT COUNT(*), (SELECT late FROM tidelock_lines WHERE name = '{NAME}') FROM tidelock_gone"
    );
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    assert!(place.ask(&server, &state).starts_with("40\t1"), "they are remembered");
    place.ask(
        &server,
        "UPDATE tidelock_gone SET since = since - 3600000000; UPDATE tidelock_lines SET late = late - 3600000000",
    );
    // Its line is as if nothing had been, and all who release sweep.
    let mut turns = 0;
    while place.ask(&server, &state) != "0\t0" {
        turns += 1;
        assert!(turns < 100, "{}", place.ask(&server, &state));
        locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    }
}
