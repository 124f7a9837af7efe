//! Servers that do not let a client in, or are not there; and secrets, which stay secret.

use test_servers::{PgBouncer, Postgres};
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
    an_expired_certificate_is_refused_until_it_is_replaced,
    a_server_without_tls_is_refused_where_tls_is_asked_for,
    nobody_at_the_address_is_said_and_the_next_address_is_tried,
    a_database_that_is_not_there_is_said,
    what_a_role_has_for_its_sessions_changes_nothing,
    behind_a_pooler_a_role_that_only_reads_hears_what_to_change,
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

async fn an_expired_certificate_is_refused_until_it_is_replaced() {
    let server = Postgres::new().tls().start().unwrap();
    login::is_refused_while_its_certificate_has_expired(&server).await;
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
    assert!(error.is_unavailable() && error.to_string().contains("correct the host and port"), "{error}");
    Place::on(&format!("postgres://postgres@{},{}/postgres", nobody(), shared().addr())).serves().await;
}

async fn a_database_that_is_not_there_is_said() {
    let error = refusal(&Place::on(&format!("postgres://postgres@{}/nowhere", shared().addr()))).await;
    assert!(error.is_denied() && error.to_string().contains("make the database"), "{error}");
}

async fn what_a_role_has_for_its_sessions_changes_nothing() {
    let server = Postgres::new().start().unwrap();
    sql(&server, "CREATE ROLE app LOGIN SUPERUSER");
    for default in [
        "default_transaction_read_only = on",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_deferrable = on",
        "search_path = ''",
        "statement_timeout = '500ms'",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "session_replication_role = 'replica'",
        "row_security = off",
        "client_encoding = 'LATIN1'",
        "bytea_output = 'escape'",
        "\"DateStyle\" = 'SQL, DMY'",
        "extra_float_digits = -15",
        "standard_conforming_strings = off",
        "application_name = 'another'",
        "jit = on",
        "jit_above_cost = 0",
    ] {
        sql(&server, &format!("ALTER ROLE app SET {default}"));
    }
    // It installs, too.
    for place in [Place::on(server.url()), Place::on(server.url()).with("mode=advisory")] {
        let app = place.logged_in("app", "");
        let (locks, other) = (app.connect().await, app.connect().await);
        hand_over(&locks, &other).await;
    }
    sql(&server, "ALTER DATABASE postgres SET default_transaction_read_only = on");
    Place::on(server.url()).serves().await;
}

async fn behind_a_pooler_a_role_that_only_reads_hears_what_to_change() {
    let server = Postgres::new().start().unwrap();
    sql(&server, "ALTER ROLE postgres SET default_transaction_read_only = on");
    let pooler = PgBouncer::new(2).start(&server).unwrap();
    let error = refusal(&Place::on(pooler.url())).await;
    assert!(
        error.is_denied() && error.to_string().contains("RESET default_transaction_read_only"),
        "{error}"
    );
}
