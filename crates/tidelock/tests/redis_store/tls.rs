//! TLS: authorities, certificates that expired, and certificates of clients.

use test_servers::Redis;
use tidelock::Error;

use crate::support::{
    Place,
    login::{self, refusal},
};

trials! {
    a_program_that_installs_its_cryptography_before_it_connects_keeps_it,
    who_trusts_the_authority_of_the_server_gets_locks,
    a_server_of_another_authority_is_refused,
    an_expired_certificate_is_refused_until_it_is_replaced,
    a_server_that_asks_for_a_certificate_serves_those_who_have_one,
    a_client_that_does_not_speak_tls_with_a_server_that_does_hears_it,
}

async fn a_program_that_installs_its_cryptography_before_it_connects_keeps_it() {
    let server = Redis::new().tls().start().unwrap();
    login::leaves_cryptography_to_the_program(&Place::shared(), &login::trusting(&server));
}

async fn who_trusts_the_authority_of_the_server_gets_locks() {
    login::serves_who_trusts_it(&Redis::new().tls().password("secret").start().unwrap()).await;
}

async fn a_server_of_another_authority_is_refused() {
    let server = Redis::new().tls().start().unwrap();
    login::is_refused_by_who_trusts_another(&server, Error::is_denied).await;
}

async fn an_expired_certificate_is_refused_until_it_is_replaced() {
    let server = Redis::new().tls().start().unwrap();
    login::is_refused_while_its_certificate_has_expired(&server).await;
}

async fn a_server_that_asks_for_a_certificate_serves_those_who_have_one() {
    let server = Redis::new().tls_client_auth().start().unwrap();
    let error = login::serves_who_has_a_certificate(&server).await;
    // The server says why and hangs up; whether the reason is read before the end depends on the network.
    assert!(error.is_denied() || error.is_unavailable(), "{error}");
}

async fn a_client_that_does_not_speak_tls_with_a_server_that_does_hears_it() {
    let server = Redis::new().tls().start().unwrap();
    let error = refusal(&Place::on(&format!("redis://{}", server.addr()))).await;
    assert!(error.is_unavailable(), "{error}");
    let plain = Redis::new().start().unwrap();
    let error = refusal(&Place::on(&format!("rediss://{}", plain.addr()))).await;
    assert!(error.is_unavailable(), "{error}");
}
