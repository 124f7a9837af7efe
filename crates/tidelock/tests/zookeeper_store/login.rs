//! Logins and rights, with and without TLS; and secrets, which stay secret.

use test_servers::Zookeeper;
use tidelock::Error;

use crate::support::{
    LONG, NAME, Place, hand_over, held_and_waited_for,
    login::{self, CANARY, refused},
    nobody, pass_on, shared,
};

trials! {
    a_client_with_another_login_is_denied_with_one_sentence,
    nodes_that_were_made_with_a_login_are_for_that_login,
    sasl_lets_in_a_client_that_knows_the_password,
    tls_with_the_right_authority_gets_locks,
    tls_with_a_client_certificate_gets_locks,
    an_expired_certificate_is_refused_until_it_is_replaced,
    nobody_at_the_address_is_said_at_once,
}

/// Why a client gets no lock: a login is not looked at before.
async fn refusal(place: &Place) -> Error {
    refused(async { place.try_connect().await?.mutex(NAME).ttl(LONG).lock().await.map(drop) }).await
}

async fn a_client_with_another_login_is_denied_with_one_sentence() {
    let place = Place::shared();
    place.logged_in("ann", "right").serves().await;
    for wrong in [place.logged_in("ann", CANARY), place.logged_in("bob", CANARY), place.clone()] {
        let error = refusal(&wrong).await;
        assert!(error.is_denied() && error.to_string().contains("may not"), "{error}");
    }
    assert!(!format!("{:?}", place.logged_in("ann", CANARY).connect().await).contains(CANARY));
}

async fn nodes_that_were_made_with_a_login_are_for_that_login() {
    let place = Place::shared();
    let ann = place.logged_in("ann", "right");
    let (guard, waiting) = held_and_waited_for(&ann.connect().await, &ann.connect().await, NAME).await;
    let node = format!("{}/{}", place.node(NAME), ann.nodes(NAME).await[0]);
    assert!(place.bare().await.delete(&node).await.is_err(), "anybody may delete it");
    pass_on(guard, vec![waiting]).await;
    // Others may be let in by name.
    let open = Place::shared().with("acl=open");
    open.logged_in("ann", "right").serves().await;
    open.through(shared().url()).serves().await;
}

async fn sasl_lets_in_a_client_that_knows_the_password() {
    let server = Zookeeper::new().sasl("ann", "right").start().unwrap();
    let place = Place::on(server.url()).with("auth=sasl");
    let right = place.logged_in("ann", "right");
    hand_over(&right.connect().await, &right.connect().await).await;
    for wrong in [place.logged_in("ann", CANARY), place.logged_in("bob", CANARY)] {
        let error = refusal(&wrong).await;
        assert!(error.is_denied() && error.to_string().contains("login failed"), "{error}");
    }
    // No login at all.
    let error = refusal(&Place::on(server.url())).await;
    assert!(error.is_denied(), "{error}");
}

async fn tls_with_the_right_authority_gets_locks() {
    let server = Zookeeper::new().tls().start().unwrap();
    login::serves_who_trusts_it(&server).await;
    login::is_refused_by_who_trusts_another(&server, Error::is_denied).await;
    let plain = refusal(&Place::on(&server.url().replace("zookeepers", "zookeeper"))).await;
    assert!(plain.is_unavailable(), "{plain}");
}

async fn an_expired_certificate_is_refused_until_it_is_replaced() {
    let server = Zookeeper::new().tls().start().unwrap();
    login::is_refused_while_its_certificate_has_expired(&server).await;
}

async fn tls_with_a_client_certificate_gets_locks() {
    let server = Zookeeper::new().tls_client_auth().start().unwrap();
    let error = login::serves_who_has_a_certificate(&server).await;
    assert!(error.is_unavailable(), "{error}");
}

async fn nobody_at_the_address_is_said_at_once() {
    let error = refusal(&Place::on(&format!("zookeeper://ann:{CANARY}@{}", nobody()))).await;
    assert!(error.is_unavailable() && error.to_string().contains("start the server"), "{error}");
}
