//! Servers that do not let a client in, or are not there; and secrets, which stay secret.

use test_servers::Postgres;
use tidelock::{Error, backends::postgres::PostgresConfig};

use crate::{
    sql,
    support::{
        Place, hand_over,
        login::{self, CANARY, refusal},
        nobody, shared,
    },
};

trials! {
    a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence,
    a_password_never_shows_in_errors_or_debug_output,
    who_trusts_the_authority_of_the_server_gets_locks,
    a_server_of_another_authority_is_refused,
    a_server_without_tls_is_refused_where_tls_is_asked_for,
    nobody_at_the_address_is_said_and_the_next_address_is_tried,
    a_database_that_is_not_there_is_said,
}

async fn a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence() {
    let server = Postgres::new().password("right").start().unwrap();
    login::lets_in_nobody_else(&server, &[("postgres", CANARY), ("unknown", CANARY)]).await;
    let error = refusal(&Place::on(&format!("postgres://postgres@{}/postgres", server.addr()))).await;
    assert!(error.to_string().contains("password"), "{error}");
}

async fn a_password_never_shows_in_errors_or_debug_output() {
    let server = Postgres::new().password(CANARY).start().unwrap();
    let config = PostgresConfig::from_url(server.url()).unwrap();
    login::never_shows(
        &server,
        &Place::at(&server),
        config,
        &[format!("postgres://me:{CANARY}@{}/postgres", nobody())],
    )
    .await;
}

async fn who_trusts_the_authority_of_the_server_gets_locks() {
    let server = Postgres::new().tls().password("right").start().unwrap();
    let place = login::trusting(&server);
    let (locks, other) = (place.connect().await, place.connect().await);
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'tidelock'";
    assert_eq!(sql(&server, encrypted), "2");
    hand_over(&locks, &other).await;
}

async fn a_server_of_another_authority_is_refused() {
    let server = Postgres::new().tls().start().unwrap();
    let foreign = server.certificates().unwrap().foreign_ca();
    let place = Place::on(server.url());
    // Those that the machine trusts do not include it either.
    for untrusting in [place.with(&format!("ca={}", foreign.display())), place.with("sslmode=require")] {
        let error: Error = refusal(&untrusting).await;
        assert!(error.is_denied() && error.to_string().contains("certificate"), "{error}");
    }
}

async fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let error = refusal(&Place::shared().with("sslmode=verify-full")).await;
    assert!(error.is_denied() && error.to_string().contains("does not speak TLS"), "{error}");
}

async fn nobody_at_the_address_is_said_and_the_next_address_is_tried() {
    let error = refusal(&Place::on(&format!("postgres://postgres@{}/postgres", nobody()))).await;
    assert!(error.is_unavailable() && error.to_string().contains("mend host and port"), "{error}");
    Place::on(&format!("postgres://postgres@{},{}/postgres", nobody(), shared().addr())).serves().await;
}

async fn a_database_that_is_not_there_is_said() {
    let error = refusal(&Place::on(&format!("postgres://postgres@{}/nowhere", shared().addr()))).await;
    assert!(error.is_denied() && error.to_string().contains("make the database"), "{error}");
}
