//! Databases that an earlier build made, and clients of that build that are still running.

use std::{io::Write, process::Stdio};

use tidelock::backend::Standing;

use crate::{
    renewals::Client,
    sql,
    support::{
        LONG, NAME, Place, eventually, got, hand_over, login::refusal, shared, until_idle, until_waiting,
        waiter, within,
    },
};

trials! {
    a_database_of_the_first_revision_is_upgraded_and_keeps_what_is_held,
    a_client_of_the_first_revision_goes_on_after_an_upgrade,
    a_client_of_the_second_revision_goes_on_after_an_upgrade,
    a_client_of_the_fourth_revision_goes_on_after_an_upgrade,
    a_client_of_the_fifth_revision_goes_on_after_an_upgrade,
    who_may_not_upgrade_is_told_who_can,
}

/// Puts the first revision into the database of a place, as a client of then did.
fn apply_first(place: &Place) {
    apply(place, include_str!("revision_1.sql"));
}

fn apply(place: &Place, schema: &str) {
    let mut client = shared().client().stdin(Stdio::piped()).spawn().unwrap();
    let text = format!(
        "USE {};\nSET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';\nDELIMITER //\n{}",
        place.prefix, schema
    );
    client.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(client.wait().unwrap().success());
}

/// Takes a lock as the first revision's client does, for a client 7 that nobody else is.
const ENTER: &str = "CALL tidelock_enter('the lock', 7, 1, 0, 0, 0, '', 'old', 60000000)";

async fn a_database_of_the_first_revision_is_upgraded_and_keeps_what_is_held() {
    let (server, place) = (shared(), Place::shared());
    apply_first(&place);
    assert!(place.ask(&server, ENTER).starts_with('H'));
    place.ask(&server, "CALL tidelock_attend(7)");
    // Many may come at once.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let place = place.clone();
            tokio::spawn(async move { place.connect().await })
        })
        .collect();
    for client in clients {
        let locks = client.await.unwrap();
        assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none(), "it is held from before");
    }
    let tables = place.ask(&server, "SHOW TABLES LIKE 'tidelock_listeners'");
    assert_eq!(tables, "", "what stopped replicas is gone");
    assert_eq!(place.ask(&server, "CALL tidelock_version()"), "1\t7");
}

/// What such a client calls, and what it reads from the answers.
async fn a_client_of_the_first_revision_goes_on_after_an_upgrade() {
    let (server, place) = (shared(), Place::shared());
    apply_first(&place);
    assert!(place.ask(&server, ENTER).starts_with('H'));
    let (locks, other) = (place.connect().await, place.connect().await);
    assert!(place.ask(&server, "CALL tidelock_version()").starts_with("1\t"), "it looks at the first number");
    let renewed = place.ask(&server, "CALL tidelock_renew('00000000000000070000000000000001008the lock')");
    assert!(renewed.starts_with('H'), "{renewed}");
    place.ask(&server, "CALL tidelock_attend(7)");
    assert_eq!(place.ask(&server, "CALL tidelock_listen(7, 0.1, '')"), "", "nothing happened to it");
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    // It looks at no answer to that.
    place.ask(&server, "CALL tidelock_leave('the lock', 7, 1, NULL)");
    until_idle(&locks, NAME).await;
    // And it waits for what a new client holds.
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    assert!(place.ask(&server, &ENTER.replace("7, 1", "7, 2")).starts_with("W\t1"));
    guard.release().await.unwrap();
    assert!(place.ask(&server, "CALL tidelock_listen(7, 5, '')").starts_with("G\t2\tthe lock"));
    place.ask(&server, "CALL tidelock_leave('the lock', 7, 2, NULL)");
    hand_over(&locks, &other).await;
}

async fn a_client_of_the_second_revision_goes_on_after_an_upgrade() {
    goes_on_after_an_upgrade("1\t2", include_str!("revision_2.sql")).await;
}

async fn a_client_of_the_fourth_revision_goes_on_after_an_upgrade() {
    goes_on_after_an_upgrade("1\t4", include_str!("revision_4.sql")).await;
}

async fn a_client_of_the_fifth_revision_goes_on_after_an_upgrade() {
    goes_on_after_an_upgrade("1\t5", include_str!("revision_5.sql")).await;
}

async fn goes_on_after_an_upgrade(version: &str, schema: &str) {
    let (server, place) = (shared(), Place::shared());
    apply(&place, schema);
    assert_eq!(place.ask(&server, "CALL tidelock_version()"), version);
    assert!(place.ask(&server, ENTER).starts_with('H'));
    let locks = place.connect().await;
    assert_eq!(place.ask(&server, "CALL tidelock_version()"), "1\t7");
    // Claims that go together meet those of the old one.
    let names: Vec<String> = (0..8).map(|number| format!("many {number}")).chain([NAME.to_owned()]).collect();
    let waiting: Vec<_> = names.iter().map(|name| waiter(&locks, name, LONG)).collect();
    until_waiting(&locks, NAME, 1).await;
    let renewed = place.ask(&server, "CALL tidelock_renew('00000000000000070000000000000001008the lock')");
    assert!(renewed.starts_with('H'), "{renewed}");
    assert_eq!(place.ask(&server, "CALL tidelock_leave('the lock', 7, 1, NULL)"), "1");
    for waiting in waiting {
        got(waiting).await.release().await.unwrap();
    }
    // What it changes is told to those who follow.
    let mut watch = locks.election(NAME).watch();
    assert_eq!(within("nobody leads", watch.next()).await.unwrap().unwrap(), None);
    let is_followed = "SELECT COUNT(*) FROM tidelock_lines WHERE followed = 1";
    eventually("it is followed", || place.ask(&server, is_followed) == "1").await;
    assert!(place.ask(&server, &ENTER.replace("7, 1", "7, 2")).starts_with('H'));
    assert!(within("it leads", watch.next()).await.unwrap().unwrap().is_some());
    assert_eq!(place.ask(&server, "CALL tidelock_leave('the lock', 7, 2, NULL)"), "1");
    assert_eq!(within("nobody leads", watch.next()).await.unwrap().unwrap(), None);
    // Renewals that go together meet its own.
    assert!(place.ask(&server, &ENTER.replace("7, 1", "7, 3")).starts_with('H'));
    let mut new = Client::connect(&place).await;
    let claims = [new.lock(NAME).await, new.lock("another").await];
    for _ in 0..2 {
        let renewed =
            place.ask(&server, "CALL tidelock_renew('00000000000000070000000000000003008the lock')");
        assert!(renewed.starts_with('H'), "{renewed}");
        let standings = new.renew(&claims).await.unwrap();
        assert!(matches!(standings[..], [Standing::Waiting(_), Standing::Held(_)]), "{standings:?}");
    }
    assert_eq!(place.ask(&server, "CALL tidelock_leave('the lock', 7, 3, NULL)"), "1");
    let standings = new.renew(&claims).await.unwrap();
    assert!(matches!(standings[..], [Standing::Held(_), Standing::Held(_)]), "{standings:?}");
}

async fn who_may_not_upgrade_is_told_who_can() {
    let (server, place) = (shared(), Place::shared());
    let user = &place.prefix;
    apply_first(&place);
    sql(
        &server,
        &format!(
            "CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'; GRANT EXECUTE ON {user}.* TO {user}@'127.0.0.1'"
        ),
    );
    let error = refusal(&place.logged_in(user, "x")).await;
    let text = error.to_string();
    assert!(
        error.is_denied() && text.contains("earlier revision") && text.contains("schema --print"),
        "{text}"
    );
    assert_eq!(place.ask(&server, "CALL tidelock_version()"), "1", "nothing was changed");
}
