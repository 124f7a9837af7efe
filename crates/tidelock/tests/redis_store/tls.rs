//! TLS: authorities, certificates that expired, and certificates of clients.

use test_servers::Redis;
use tidelock::Error;

use crate::support::{LONG, NAME, Place, got, is_one_sentence, until_waiting, waiter, within};

trials! {
    who_trusts_the_authority_of_the_server_gets_locks,
    a_server_of_another_authority_is_refused,
    an_expired_certificate_is_refused,
    a_server_that_asks_for_a_certificate_serves_those_who_have_one,
    whoever_does_not_speak_tls_with_a_server_that_does_hears_it,
}

async fn refusal(place: &Place) -> Error {
    let error = within("the attempt ends", place.try_connect()).await.expect_err("it is refused");
    is_one_sentence(&error);
    error
}

async fn who_trusts_the_authority_of_the_server_gets_locks() {
    let server = Redis::new().tls().password("secret").start().unwrap();
    let ca = server.certificates().unwrap().ca();
    let place = Place::on(server.url()).with(&format!("ca={}", ca.display()));
    let (locks, other) = (place.connect().await, place.connect().await);
    let guard = locks.mutex(NAME).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
}

async fn a_server_of_another_authority_is_refused() {
    let server = Redis::new().tls().start().unwrap();
    let place = Place::on(server.url());
    let foreign = server.certificates().unwrap().foreign_ca();
    let error = refusal(&place.with(&format!("ca={}", foreign.display()))).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    // Those that the machine trusts do not include it either.
    let error = refusal(&place).await;
    assert!(error.to_string().contains("certificate"), "{error}");
}

async fn an_expired_certificate_is_refused() {
    let server = Redis::new().tls_expired().start().unwrap();
    let ca = server.certificates().unwrap().ca();
    let error = refusal(&Place::on(server.url()).with(&format!("ca={}", ca.display()))).await;
    assert!(error.to_string().to_lowercase().contains("expired"), "{error}");
}

async fn a_server_that_asks_for_a_certificate_serves_those_who_have_one() {
    let server = Redis::new().tls_client_auth().start().unwrap();
    let files = server.certificates().unwrap();
    let place = Place::on(server.url()).with(&format!("ca={}", files.ca().display()));
    let (cert, key) = (files.client_cert(), files.client_key());
    let known = place.with(&format!("cert={}&key={}", cert.display(), key.display()));
    known.connect().await.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let error = refusal(&place).await;
    assert!(error.is_unavailable(), "{error}");
    let error = refusal(&place.with(&format!("cert={}", cert.display()))).await;
    assert!(error.is_invalid_url() && error.to_string().contains("cert and key"), "{error}");
}

async fn whoever_does_not_speak_tls_with_a_server_that_does_hears_it() {
    let server = Redis::new().tls().start().unwrap();
    let error = refusal(&Place::on(&format!("redis://{}", server.addr()))).await;
    assert!(error.is_unavailable(), "{error}");
    let plain = Redis::new().start().unwrap();
    let error = refusal(&Place::on(&format!("rediss://{}", plain.addr()))).await;
    assert!(error.is_unavailable(), "{error}");
}
