//! Databases that were copied: the copy has the rows of the first one, and not what was granted after they were copied.

use std::{fs, time::Duration};

use test_servers::{Postgres, Server};

use crate::{
    end_sessions, sql,
    support::{LONG, NAME, Place, within},
};

trials! {
    a_dump_that_is_restored_in_another_database_grants_nothing_until_leases_from_before_are_over,
    a_dump_that_is_restored_in_another_cluster_grants_nothing_until_leases_from_before_are_over,
    rows_that_are_restored_in_the_same_tables_grant_nothing_until_leases_from_before_are_over,
    a_database_that_was_made_from_another_grants_nothing_until_leases_from_before_are_over,
    a_copy_grants_when_leases_from_before_are_over,
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A server where a lease of an hour was in use.
async fn used() -> (Server, Place) {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    place.connect().await.mutex("before").ttl(HOUR).lock().await.unwrap().release().await.unwrap();
    (server, place)
}

/// Runs a dump in a database of a server.
fn restore(server: &Server, database: &str, dump: &str) {
    let file = server.folder().join("dump.sql");
    fs::write(&file, dump).unwrap();
    server.ask(&["-d", database, "-f", file.to_str().unwrap()]).unwrap();
}

/// The same locks in a database of a server.
fn copied(place: &Place, server: &Server, database: &str) -> Place {
    place.through(&format!("postgres://postgres@{}/{database}", server.addr()))
}

/// In the copy nobody gets the lock that is held elsewhere.
async fn is_quiet(copy: &Place) {
    let other = copy.connect().await;
    let answer = within("the copy answers", other.mutex(NAME).ttl(LONG).try_lock()).await;
    let said = answer.expect_err("two hold it").to_string();
    assert!(said.contains("grants nothing for another"), "{said}");
    let concerns = other.concerns();
    assert!(concerns.iter().any(|concern| concern.contains("grants nothing")), "{concerns:?}");
}

async fn a_dump_that_is_restored_in_another_database_grants_nothing_until_leases_from_before_are_over() {
    let (server, place) = used().await;
    let dump = Postgres::dump(&server, "postgres", &[]).unwrap();
    let guard = place.connect().await.mutex(NAME).ttl(HOUR).lock().await.unwrap();
    sql(&server, "CREATE DATABASE copy");
    restore(&server, "copy", &dump);
    is_quiet(&copied(&place, &server, "copy")).await;
    assert!(guard.is_held());
}

async fn a_dump_that_is_restored_in_another_cluster_grants_nothing_until_leases_from_before_are_over() {
    let (server, place) = used().await;
    let dump = Postgres::dump(&server, "postgres", &[]).unwrap();
    let guard = place.connect().await.mutex(NAME).ttl(HOUR).lock().await.unwrap();
    let other = Postgres::new().start().unwrap();
    restore(&other, "postgres", &dump);
    is_quiet(&copied(&place, &other, "postgres")).await;
    assert!(guard.is_held());
}

async fn rows_that_are_restored_in_the_same_tables_grant_nothing_until_leases_from_before_are_over() {
    let (server, place) = used().await;
    let dump = Postgres::dump(&server, "postgres", &["--data-only", "--schema=tidelock"]).unwrap();
    let guard = place.connect().await.mutex(NAME).ttl(HOUR).lock().await.unwrap();
    sql(&server, "TRUNCATE tidelock.line, tidelock.gone, tidelock.state, tidelock.awake, tidelock.broom");
    restore(&server, "postgres", &dump);
    is_quiet(&place).await;
    assert!(guard.is_held());
}

async fn a_database_that_was_made_from_another_grants_nothing_until_leases_from_before_are_over() {
    let (server, place) = used().await;
    // Its sessions have ended: nobody may use what is copied.
    end_sessions(&server);
    sql(&server, "CREATE DATABASE first");
    let place = copied(&place, &server, "first");
    {
        let locks = place.connect().await;
        locks.mutex("before").ttl(HOUR).lock().await.unwrap().release().await.unwrap();
        locks.shutdown(LONG).await;
    }
    within("it is copied", async {
        while server.ask(&["-c", "CREATE DATABASE copy TEMPLATE first"]).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let guard = place.connect().await.mutex(NAME).ttl(HOUR).lock().await.unwrap();
    is_quiet(&copied(&place, &server, "copy")).await;
    assert!(guard.is_held());
}

async fn a_copy_grants_when_leases_from_before_are_over() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let token = locks.mutex(NAME).ttl(Duration::from_secs(2)).lock().await.unwrap().token();
    let dump = Postgres::dump(&server, "postgres", &[]).unwrap();
    sql(&server, "CREATE DATABASE copy");
    restore(&server, "copy", &dump);
    let copy = copied(&place, &server, "copy").connect().await;
    let next = within("it is granted", copy.mutex(NAME).ttl(LONG).lock()).await.unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
    // It knows the place now.
    let again = copied(&place, &server, "copy").connect().await;
    assert!(again.mutex(NAME).try_lock().await.unwrap().is_some());
}
