//! Logins and rights, with and without TLS; and secrets, which stay secret.

use test_servers::{Server, Zookeeper};
use tidelock::Error;

use crate::support::{LONG, NAME, Place, got, is_one_sentence, shared, until_waiting, waiter, within};

trials! {
    whoever_has_another_login_is_denied_with_one_sentence,
    nodes_that_were_made_with_a_login_are_for_that_login,
    sasl_lets_in_whoever_knows_the_password,
    tls_with_the_right_authority_gets_locks,
    tls_with_a_client_certificate_gets_locks,
    nobody_at_the_address_is_said_at_once,
}

/// What a password looks like that must not be seen anywhere.
const CANARY: &str = "canary81c2";

async fn refusal(place: &Place) -> Error {
    let refused = async {
        match place.try_connect().await {
            Ok(locks) => locks.mutex(NAME).ttl(LONG).lock().await.map(drop),
            Err(error) => Err(error),
        }
    };
    let error = within("the attempt ends", refused).await.expect_err("it is refused");
    is_one_sentence(&error);
    assert!(!error.to_string().contains(CANARY), "{error}");
    error
}

async fn whoever_has_another_login_is_denied_with_one_sentence() {
    let place = Place::shared();
    let right = place.logged_in("ann", "right");
    right.connect().await.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    for wrong in [place.logged_in("ann", CANARY), place.logged_in("bob", CANARY), place.clone()] {
        let error = refusal(&wrong).await;
        assert!(error.is_denied() && error.to_string().contains("may not"), "{error}");
    }
    assert!(!format!("{:?}", place.logged_in("ann", CANARY).connect().await).contains(CANARY));
}

async fn nodes_that_were_made_with_a_login_are_for_that_login() {
    let place = Place::shared();
    let (ann, again) =
        (place.logged_in("ann", "right").connect().await, place.logged_in("ann", "right").connect().await);
    let guard = ann.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&again, NAME, LONG);
    until_waiting(&ann, NAME, 1).await;
    let node = format!(
        "{}/{}",
        place.node(NAME),
        place.logged_in("ann", "right").bare().await.children(&place.node(NAME)).await.unwrap()[0]
    );
    assert!(place.bare().await.delete(&node).await.is_err(), "anybody may delete it");
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    // Others may be let in by name.
    let open = Place::shared().with("acl=open").logged_in("ann", "right");
    open.connect().await.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    let (scheme, hosts) =
        shared().url().split_once("://").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let stranger = open.through(&format!("{scheme}://{hosts}"));
    stranger.connect().await.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
}

async fn sasl_lets_in_whoever_knows_the_password() {
    let server = Zookeeper::new().sasl("ann", "right").start().unwrap();
    let place = Place::on(server.url()).with("auth=sasl");
    let right = place.logged_in("ann", "right").connect().await;
    let guard = right.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&place.logged_in("ann", "right").connect().await, NAME, LONG);
    until_waiting(&right, NAME, 1).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    for wrong in [place.logged_in("ann", CANARY), place.logged_in("bob", CANARY)] {
        let error = refusal(&wrong).await;
        assert!(error.is_denied() && error.to_string().contains("login failed"), "{error}");
    }
    // No login at all.
    let error = refusal(&Place::on(server.url())).await;
    assert!(error.is_denied(), "{error}");
}

fn file(server: &Server, name: &str) -> String {
    server.folder().join(name).display().to_string()
}

async fn tls_with_the_right_authority_gets_locks() {
    let server = Zookeeper::new().tls().start().unwrap();
    let place = Place::on(server.url());
    let trusting = place.with(&format!("ca={}", file(&server, "ca.crt")));
    let (locks, other) = (trusting.connect().await, trusting.connect().await);
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(&other, NAME, LONG);
    until_waiting(&locks, NAME, 1).await;
    guard.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    let foreign = place.with(&format!("ca={}", file(&server, "foreign-ca.crt")));
    for untrusting in [foreign, place.clone()] {
        let error = refusal(&untrusting).await;
        assert!(error.is_denied() && error.to_string().contains("certificate"), "{error}");
    }
    let plain = refusal(&place.through(&server.url().replace("zookeepers", "zookeeper"))).await;
    assert!(plain.is_unavailable(), "{plain}");
}

async fn tls_with_a_client_certificate_gets_locks() {
    let server = Zookeeper::new().tls_client_auth().start().unwrap();
    let place = Place::on(server.url()).with(&format!("ca={}", file(&server, "ca.crt")));
    let known =
        place.with(&format!("cert={}&key={}", file(&server, "client.crt"), file(&server, "client.key")));
    known.connect().await.mutex(NAME).ttl(LONG).lock().await.unwrap().release().await.unwrap();
    let error = refusal(&place).await;
    assert!(error.is_unavailable(), "{error}");
}

async fn nobody_at_the_address_is_said_at_once() {
    let nobody = test_servers::ports::free().unwrap().addr();
    let error = refusal(&Place::on(&format!("zookeeper://ann:{CANARY}@{nobody}"))).await;
    assert!(error.is_unavailable() && error.to_string().contains("start the server"), "{error}");
}
