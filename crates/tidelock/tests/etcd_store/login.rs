//! Servers that do not let a client in, or are not there; and secrets, which stay secret.

use std::time::Duration;

use test_servers::Etcd;
use tidelock::{Error, backends::etcd::EtcdConfig};

use crate::support::{LONG, NAME, Place, got, is_one_sentence, nobody, until_waiting, waiter, within};

trials! {
    a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence,
    a_login_that_the_server_forgot_is_made_again,
    a_password_never_shows_in_errors_or_debug_output,
    who_trusts_the_authority_of_the_server_gets_locks,
    a_server_of_another_authority_is_refused,
    a_server_that_asks_for_a_certificate_serves_those_who_have_one,
    nobody_at_the_address_is_said_and_the_next_address_is_tried,
    an_old_server_is_a_concern,
}

/// What a password looks like that must not be seen anywhere.
const CANARY: &str = "canary81c2";

async fn refusal(place: &Place) -> Error {
    let error = within("the attempt ends", place.try_connect()).await.expect_err("it is refused");
    is_one_sentence(&error);
    assert!(!error.to_string().contains(CANARY), "{error}");
    error
}

async fn a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence() {
    let server = Etcd::new().password("right").start().unwrap();
    let place = Place::on(server.url());
    place.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    for (user, password) in [("root", CANARY), ("unknown", CANARY)] {
        let error = refusal(&place.through(&server.url_as(user, password))).await;
        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains("mend user and password in the URL"), "{error}");
    }
    // No login at all is noticed with the first question about a lock.
    let stranger = place.through(&format!("etcd://{}", server.addr())).connect().await;
    let error = stranger.mutex(NAME).lock().await.unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("mend user and password"), "{error}");
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
    let place = Place::on(server.url());
    let mut seen = vec![format!("{:?}", EtcdConfig::from_url(&place.url()).unwrap())];
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).lock().await.unwrap();
    seen.push(format!("{guard:?} {:?} {:?}", locks.concerns(), locks.look(&[]).await.unwrap()));
    guard.release().await.unwrap();
    server.kill().unwrap();
    let error = within("it is said", locks.mutex(NAME).lock()).await.unwrap_err();
    seen.push(format!("{error} {error:?} {locks:?}"));
    let error = refusal(&Place::on(&format!("etcd://me:{CANARY}@{}", nobody()))).await;
    seen.push(format!("{error:?}"));
    for text in seen {
        assert!(!text.contains(CANARY), "{text}");
    }
}

async fn who_trusts_the_authority_of_the_server_gets_locks() {
    let server = Etcd::new().tls().start().unwrap();
    let ca = Etcd::certificates(&server).ca();
    let place = Place::on(server.url()).with(&format!("ca={}", ca.display()));
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn a_server_of_another_authority_is_refused() {
    let server = Etcd::new().tls().start().unwrap();
    let place = Place::on(server.url());
    let foreign = Etcd::certificates(&server).foreign_ca();
    let error = refusal(&place.with(&format!("ca={}", foreign.display()))).await;
    assert!(error.is_denied() && error.to_string().contains("certificate"), "{error}");
    // Those that the machine trusts do not include it either.
    let error = refusal(&place).await;
    assert!(error.is_denied() && error.to_string().contains("certificate"), "{error}");
    // And whoever does not speak TLS is not understood.
    let error = refusal(&place.through(&format!("etcd://{}", server.addr()))).await;
    assert!(error.is_unavailable(), "{error}");
}

async fn a_server_that_asks_for_a_certificate_serves_those_who_have_one() {
    let server = Etcd::new().tls_client_auth().start().unwrap();
    let files = Etcd::certificates(&server);
    let place = Place::on(server.url()).with(&format!("ca={}", files.ca().display()));
    let (cert, key) = (files.client_cert(), files.client_key());
    let known = place.with(&format!("cert={}&key={}", cert.display(), key.display()));
    known.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let error = refusal(&place).await;
    assert!(error.is_denied() || error.is_unavailable(), "{error}");
    let error = refusal(&place.with(&format!("cert={}", cert.display()))).await;
    assert!(error.is_invalid_url() && error.to_string().contains("cert and key"), "{error}");
}

async fn nobody_at_the_address_is_said_and_the_next_address_is_tried() {
    let server = Etcd::new().start().unwrap();
    let error = refusal(&Place::on(&format!("etcd://{}", nobody()))).await;
    assert!(error.is_unavailable() && error.to_string().contains("mend host and port"), "{error}");
    let place = Place::on(&format!("etcd://{},{}", nobody(), server.addr()));
    place.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
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
