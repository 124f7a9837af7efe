//! Servers that do not let a client in, or are not there; and secrets, which stay secret.

use std::time::Duration;

use test_servers::Etcd;
use tidelock::{Error, backends::etcd::EtcdConfig};

use crate::support::{
    LONG, NAME, Place, got,
    login::{self, CANARY, refusal},
    nobody, until_waiting, waiter, within,
};

trials! {
    a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence,
    a_login_that_the_server_forgot_is_made_again,
    a_password_never_shows_in_errors_or_debug_output,
    who_trusts_the_authority_of_the_server_gets_locks,
    a_server_of_another_authority_is_refused,
    a_server_that_asks_for_a_certificate_serves_those_who_have_one,
    an_expired_certificate_is_refused_until_it_is_replaced,
    nobody_at_the_address_is_said_and_the_next_address_is_tried,
    an_old_server_is_a_concern,
}

async fn a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence() {
    let server = Etcd::new().password("right").start().unwrap();
    login::lets_in_nobody_else(&server, &[("root", CANARY), ("unknown", CANARY)]).await;
    // No login at all is noticed with the first question about a lock.
    let stranger = Place::on(&format!("etcd://{}", server.addr())).connect().await;
    let error = stranger.mutex(NAME).lock().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("correct the user and password"), "{error}");
}

/// The server forgets what was not used for two seconds.
async fn a_login_that_the_server_forgot_is_made_again() {
    let server = Etcd::new().password("right").start().unwrap();
    let place = Place::on(server.url());
    let (locks, other) = (place.connect().await, place.connect().await);
    for _ in 0..2 {
        let guard = within("it holds", locks.mutex(NAME).ttl(LONG).lock()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let waiting = waiter(&other, NAME, LONG);
        until_waiting(&locks, NAME, 1).await;
        guard.release().await.unwrap();
        got(waiting).await.release().await.unwrap();
    }
}

async fn a_password_never_shows_in_errors_or_debug_output() {
    let server = Etcd::new().password(CANARY).start().unwrap();
    let config = EtcdConfig::from_url(server.url()).unwrap();
    login::never_shows(&server, &Place::at(&server), config, &[format!("etcd://me:{CANARY}@{}", nobody())])
        .await;
}

async fn who_trusts_the_authority_of_the_server_gets_locks() {
    login::serves_who_trusts_it(&Etcd::new().tls().start().unwrap()).await;
}

async fn a_server_of_another_authority_is_refused() {
    let server = Etcd::new().tls().start().unwrap();
    login::is_refused_by_who_trusts_another(&server, Error::is_denied).await;
    // And a client that does not speak TLS is not understood.
    let error = refusal(&Place::on(&format!("etcd://{}", server.addr()))).await;
    assert!(error.is_unavailable(), "{error}");
}

async fn an_expired_certificate_is_refused_until_it_is_replaced() {
    let server = Etcd::new().tls().start().unwrap();
    login::is_refused_while_its_certificate_has_expired(&server).await;
}

async fn a_server_that_asks_for_a_certificate_serves_those_who_have_one() {
    let server = Etcd::new().tls_client_auth().start().unwrap();
    let error = login::serves_who_has_a_certificate(&server).await;
    assert!(error.is_denied() || error.is_unavailable(), "{error}");
}

async fn nobody_at_the_address_is_said_and_the_next_address_is_tried() {
    let server = Etcd::new().start().unwrap();
    let error = refusal(&Place::on(&format!("etcd://{}", nobody()))).await;
    assert!(error.is_unavailable() && error.to_string().contains("correct the host and port"), "{error}");
    Place::on(&format!("etcd://{},{}", nobody(), server.addr())).serves().await;
}

async fn an_old_server_is_a_concern() {
    let server = Etcd::new().start().unwrap();
    let version = server.ask(&["endpoint", "status"]).unwrap();
    let concerns = Place::on(server.url()).connect().await.concerns();
    if version.contains(" 3.4.2") {
        assert!(concerns.iter().any(|concern| concern.contains("3.4.31")), "{concerns:?}");
    }
    assert!(concerns.iter().all(|concern| !concern.contains('\n')), "{concerns:?}");
}
