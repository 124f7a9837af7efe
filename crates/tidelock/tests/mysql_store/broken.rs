//! Servers that start to answer nonsense on connections that were good, or more than anybody can hold.

use std::time::Duration;

use test_servers::MariaDb;

use crate::{
    relay::{Relay, Spoil},
    sql,
    support::{LONG, NAME, Place, is_one_sentence, report, shared, within},
};

trials! {
    answers_that_are_spoilt_in_mid_connection_are_errors_and_never_grants,
    a_greeting_that_is_spoilt_is_an_error,
    rows_that_do_not_end_are_not_kept_in_memory,
    a_user_with_too_many_connections_is_told_and_keeps_what_it_holds,
    a_table_that_is_full_grants_nothing_and_says_so,
}

const WAYS: [Spoil; 5] = [Spoil::Garbage, Spoil::Half, Spoil::Flood, Spoil::Empty, Spoil::Error];

/// More than the largest answer that is taken in, and what may be under way besides.
const MOST: u64 = 128 << 20;

async fn answers_that_are_spoilt_in_mid_connection_are_errors_and_never_grants() {
    let relay = Relay::to(shared().addr());
    let place = Place::shared();
    let locks = place.through(&relay.url(shared().url())).connect().await;
    let (stranger, short) = (place.connect().await, Duration::from_secs(6));
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    for (n, way) in WAYS.into_iter().enumerate() {
        locks.mutex(format!("before/{n}")).lock().await.unwrap().release().await.unwrap();
        relay.spoil(Some(way));
        let name = format!("spoilt/{n}");
        let answer = within("it is answered", locks.mutex(&name).ttl(short).try_lock()).await;
        let error = answer.expect_err("a spoilt answer is no grant");
        is_one_sentence(&error);
        report(&format!("{way:?}: {} bytes, then: {error}", relay.most()));
        relay.spoil(None);
        relay.disconnect();
        // Whatever the server took it for, it ends.
        within("it is free", stranger.mutex(&name).lock()).await.unwrap().release().await.unwrap();
        within("it goes on", locks.mutex(&name).lock()).await.unwrap().release().await.unwrap();
    }
    assert!(guard.is_held());
    assert!(relay.most() < MOST, "{} bytes were taken in", relay.most());
    guard.release().await.unwrap();
}

async fn a_greeting_that_is_spoilt_is_an_error() {
    let relay = Relay::to(shared().addr());
    let place = Place::shared();
    place.serves().await;
    let place = place.through(&relay.url(shared().url()));
    for way in WAYS {
        relay.spoil(Some(way));
        let error = within("it is answered", place.try_connect()).await.expect_err("nobody is let in");
        is_one_sentence(&error);
        report(&format!("{way:?}: {} bytes, then: {error}", relay.most()));
    }
    assert!(relay.most() < MOST, "{} bytes were taken in", relay.most());
    relay.spoil(None);
    place.serves().await;
}

async fn rows_that_do_not_end_are_not_kept_in_memory() {
    let relay = Relay::to(shared().addr());
    let place = Place::shared();
    let through = place.through(&relay.url(shared().url()));
    let locks = through.connect().await;
    place.ask(
        &shared(),
        "DROP PROCEDURE tidelock_look; CREATE PROCEDURE tidelock_look(p_name VARBINARY(512)) \
           SELECT REPEAT('x', 1000000) FROM seq_1_to_1000000",
    );
    let error = within("it is answered", locks.look(&[NAME])).await.expect_err("it is too much");
    is_one_sentence(&error);
    report(&format!("rows without end: {error}"));
    // What the driver still reads of that connection before it closes it, it does not keep.
    assert!(error.to_string().contains("larger than"), "{error}");
    through.serves().await;
}

async fn a_user_with_too_many_connections_is_told_and_keeps_what_it_holds() {
    let (server, place) = (shared(), Place::shared());
    let user = &place.prefix;
    sql(
        &server,
        &format!(
            "CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 4; \
             GRANT ALL ON {user}.* TO {user}@'127.0.0.1'"
        ),
    );
    let place = place.logged_in(user, "x");
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut others = Vec::new();
    let error = within("there are too many", async {
        loop {
            match place.try_connect().await {
                Ok(other) => others.push(other),
                Err(error) => return error,
            }
        }
    })
    .await;
    is_one_sentence(&error);
    assert!(error.is_unavailable() && error.to_string().contains("raise the limit"), "{error}");
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn a_table_that_is_full_grants_nothing_and_says_so() {
    // All tables in one file, which may not grow.
    let server = MariaDb::new()
        .durable()
        .option("--innodb-file-per-table=0")
        .option("--innodb-data-file-path=ibdata1:12M:autoextend:max:24M")
        .start()
        .unwrap();
    let place = Place::at(&server);
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let fill = "CREATE TABLE filler (id INT AUTO_INCREMENT PRIMARY KEY, text LONGBLOB); \
                INSERT INTO filler (text) VALUES (REPEAT('x', 200000))";
    place.ask(&server, fill);
    for size in ["200000", "15000", "1000", "10"] {
        let more = format!("INSERT INTO filler (text) SELECT REPEAT('x', {size}) FROM filler LIMIT 16");
        while server.ask(&["-e", &format!("USE {}; {more}", place.prefix)]).is_ok() {}
    }
    // New names until there is no room for another: each of them is granted or an error, and never both.
    let error = within("it is full", async {
        for n in 0.. {
            match locks.mutex(format!("{}/{n}", "long".repeat(100))).ttl(LONG).try_lock().await {
                Ok(granted) => {
                    let held = granted.expect("nobody else wants it");
                    let seen = locks.look(&[held.name().as_str()]).await.unwrap();
                    assert_eq!(seen.len(), 1, "what is granted is there");
                    std::mem::forget(held);
                }
                Err(error) => return error,
            }
        }
        unreachable!("names do not end")
    })
    .await;
    is_one_sentence(&error);
    report(&format!("full: {error}"));
    assert!(error.is_unavailable() && error.to_string().contains("make room"), "{error}");
    assert!(guard.is_held());
}
