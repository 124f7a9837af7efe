//! Roles with few rights, a server without room, schemas of other versions, and what is swept from them.

use test_servers::Postgres;
use tidelock::{backend::Standing, backends::postgres::schema};

use crate::{
    renewals::Client,
    sql,
    support::{
        LONG, NAME, Place, got, held_and_waited_for, is_one_sentence, login::refusal, until_idle, within,
    },
};

trials! {
    a_role_that_may_only_call_the_verbs_gets_locks_and_nothing_else,
    a_role_with_rights_of_an_earlier_list_renews_with_the_verb,
    a_role_without_rights_hears_what_it_lacks,
    a_schema_of_another_version_is_refused_with_the_fix,
    a_server_that_is_full_is_said_and_costs_those_who_are_in_nothing,
    many_clients_that_come_at_once_find_one_schema,
    who_came_too_late_is_forgotten_after_an_hour,
}

/// The rights that docs/backends/postgres.md listed in an earlier version: clients go on with these.
const RIGHTS: &str = "GRANT USAGE ON SCHEMA tidelock TO app; GRANT EXECUTE ON FUNCTION tidelock.version, tidelock.hello, tidelock.enter, tidelock.renew, tidelock.exit, tidelock.shut_out, tidelock.look, tidelock.peek TO app";

async fn a_role_that_may_only_call_the_verbs_gets_locks_and_nothing_else() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    // As an administrator does who reviews what is installed.
    sql(&server, &schema());
    sql(&server, "CREATE ROLE app LOGIN");
    sql(&server, RIGHTS);
    let app = place.logged_in("app", "");
    let (locks, other) = (app.connect().await, app.connect().await);
    let (guard, waiting) = held_and_waited_for(&locks, &other, NAME).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    until_idle(&locks, NAME).await;
    for forbidden in ["SELECT * FROM tidelock.line", "DELETE FROM tidelock.awake", "SELECT tidelock.sweep(1)"]
    {
        let said = server.ask(&["-U", "app", "-c", forbidden]);
        assert!(said.unwrap_err().to_string().contains("permission denied"), "{forbidden}");
    }
}

async fn a_role_with_rights_of_an_earlier_list_renews_with_the_verb() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    sql(&server, &schema());
    sql(&server, "CREATE ROLE app LOGIN");
    sql(&server, RIGHTS);
    let mut client = Client::connect(&place.logged_in("app", "")).await;
    let claims = [client.lock("a").await, client.lock("b").await];
    for _ in 0..3 {
        let standings = client.renew(&claims).await.unwrap();
        assert!(standings.iter().all(|standing| matches!(standing, Standing::Held(_))), "{standings:?}");
    }
}

async fn a_role_without_rights_hears_what_it_lacks() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    sql(&server, "CREATE ROLE app LOGIN");
    let app = place.logged_in("app", "");
    let error = refusal(&app).await;
    assert!(error.is_denied() && error.to_string().contains("tidelock schema --print postgres"), "{error}");
    sql(&server, &schema());
    let error = refusal(&app).await;
    assert!(error.is_denied() && error.to_string().contains("docs/backends/postgres.md"), "{error}");
    sql(&server, RIGHTS);
    app.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}

async fn a_schema_of_another_version_is_refused_with_the_fix() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    sql(&server, &schema());
    let version = |number: i32| {
        let text = format!(
            "CREATE OR REPLACE FUNCTION tidelock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT {number}'"
        );
        sql(&server, &text);
    };
    version(99);
    let error = refusal(&place).await;
    assert!(error.is_denied() && error.to_string().contains("update the client"), "{error}");
    // An older one is brought up to date.
    version(0);
    place.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
}

async fn a_server_that_is_full_is_said_and_costs_those_who_are_in_nothing() {
    // The last ones are for administrators.
    let server = Postgres::new()
        .setting("max_connections=8")
        .setting("superuser_reserved_connections=3")
        .start()
        .unwrap();
    let place = Place::on(server.url());
    sql(&server, &schema());
    sql(&server, "CREATE ROLE app LOGIN");
    sql(&server, RIGHTS);
    let app = place.logged_in("app", "");
    let mut clients = Vec::new();
    let error = loop {
        match within("the attempt ends", app.try_connect()).await {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
    };
    is_one_sentence(&error);
    assert!(error.is_unavailable() && error.to_string().contains("max_connections"), "{error}");
    assert_eq!(clients.len(), 5);
    clients[0].mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
}

async fn many_clients_that_come_at_once_find_one_schema() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let coming: Vec<_> = (0..12)
        .map(|_| {
            let place = place.clone();
            tokio::spawn(async move { place.connect().await })
        })
        .collect();
    let mut clients = Vec::new();
    for client in coming {
        clients.push(within("it connects", client).await.unwrap());
    }
    for client in &clients {
        client.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    }
}

async fn who_came_too_late_is_forgotten_after_an_hour() {
    let server = Postgres::new().start().unwrap();
    let place = Place::on(server.url());
    let locks = place.connect().await;
    let shut_out = |name: &str| {
        let calls = "gen_random_uuid()) FROM generate_series(1, 40)";
        sql(&server, &format!("SELECT tidelock.shut_out('{}{name}', {calls}", place.prefix));
    };
    let state = || {
        sql(
            &server,
            "SELECT (SELECT count(*) FROM tidelock.gone), (SELECT count(*) FROM tidelock.line WHERE late IS NOT NULL)",
        )
    };
    shut_out("one");
    shut_out("two");
    assert_eq!(state(), "80|2", "they are remembered");
    sql(
        &server,
        "UPDATE tidelock.gone SET since = since - 3600000001; UPDATE tidelock.line SET late = late - 3600000001",
    );
    // Their queues are unchanged, and the client that shuts others out sweeps.
    for name in [NAME, "one", "two"] {
        let guard = locks.mutex(name).ttl(LONG).lock().await.unwrap();
        guard.release().await.unwrap();
    }
    shut_out(NAME);
    assert_eq!(state(), "40|1");
}
