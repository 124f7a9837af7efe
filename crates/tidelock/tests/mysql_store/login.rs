//! Servers that do not let a client in, or are not there; and secrets, which stay secret.

use test_servers::{MariaDb, Server};
use tidelock::backends::mysql::MysqlConfig;

use crate::{
    sql,
    support::{
        Place, hand_over,
        login::{self, CANARY, refusal},
        nobody, shared,
    },
};

trials! {
    a_program_that_installs_its_cryptography_before_it_connects_keeps_it,
    a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence,
    an_unknown_database_is_refused_with_the_fix,
    a_password_never_shows_in_errors_or_debug_output,
    who_trusts_the_authority_of_the_server_gets_locks,
    a_server_of_another_authority_is_refused,
    an_expired_certificate_is_refused_until_it_is_replaced,
    a_server_without_tls_is_refused_where_tls_is_wanted,
    nobody_at_the_address_is_said,
}

/// Somebody with a password who may do everything.
fn make_user(server: &Server, user: &str, password: &str) {
    let make = format!(
        "CREATE OR REPLACE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'; GRANT ALL ON *.* TO {user}@'127.0.0.1'"
    );
    sql(server, &make);
}

async fn a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence() {
    let server = shared();
    make_user(&server, "ann", "right");
    Place::shared().logged_in("ann", "right").serves().await;
    login::lets_in_nobody_else(&server, &[("ann", CANARY), ("unknown", CANARY)]).await;
}

async fn an_unknown_database_is_refused_with_the_fix() {
    // Nobody made the database of this place.
    let error = refusal(&Place::on(shared().url())).await;
    assert!(error.is_denied() && error.to_string().contains("create the database"), "{error}");
}

async fn a_password_never_shows_in_errors_or_debug_output() {
    let server = MariaDb::new().durable().start().unwrap();
    make_user(&server, "bob", CANARY);
    let place = Place::at(&server).logged_in("bob", CANARY);
    let config = MysqlConfig::from_url(&place.url()).unwrap();
    login::never_shows(&server, &place, config, &[format!("mysql://me:{CANARY}@{}/test", nobody())]).await;
}

async fn a_program_that_installs_its_cryptography_before_it_connects_keeps_it() {
    let server = MariaDb::new().durable().tls().start().unwrap();
    login::leaves_cryptography_to_the_program(&Place::shared(), &login::trusting(&server));
}

async fn who_trusts_the_authority_of_the_server_gets_locks() {
    let server = MariaDb::new().durable().tls().start().unwrap();
    let place = login::trusting(&server);
    hand_over(&place.connect().await, &place.connect().await).await;
    // A user that may connect only with TLS is let in.
    sql(&server, "CREATE USER safe@'127.0.0.1' REQUIRE SSL; GRANT ALL ON *.* TO safe@'127.0.0.1'");
    place.logged_in("safe", "").serves().await;
}

async fn an_expired_certificate_is_refused_until_it_is_replaced() {
    let server = MariaDb::new().durable().tls().start().unwrap();
    login::is_refused_while_its_certificate_has_expired(&server).await;
}

async fn a_server_of_another_authority_is_refused() {
    let server = MariaDb::new().durable().tls().start().unwrap();
    let foreign = server.certificates().unwrap().foreign_ca();
    let place = Place::at(&server);
    // Those that the machine trusts do not include it either.
    for untrusting in [place.with(&format!("ca={}", foreign.display())), place.with("tls=on")] {
        let error = refusal(&untrusting).await;
        assert!(error.is_denied() && error.to_string().contains("certificate"), "{error}");
    }
}

async fn a_server_without_tls_is_refused_where_tls_is_wanted() {
    let error = refusal(&Place::shared().with("tls=on")).await;
    assert!(error.is_denied() && error.to_string().contains("tls=off"), "{error}");
}

async fn nobody_at_the_address_is_said() {
    let error = refusal(&Place::on(&format!("mysql://root@{}/test", nobody()))).await;
    assert!(error.is_unavailable() && error.to_string().contains("correct the host and port"), "{error}");
}
