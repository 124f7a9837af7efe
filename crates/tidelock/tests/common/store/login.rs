//! Servers that do not let a client in, or should be refused; and secrets, which stay secret.

use std::{error::Error as _, fmt::Debug, time::Duration};

use test_servers::Server;
use tidelock::{Error, Locks, testing::print_engine};

use super::{LONG, NAME, Place, hand_over, is_one_sentence, within, worker::Worker};

/// What a password looks like that must not be seen anywhere.
pub(crate) const CANARY: &str = "canary81c2";

/// Why an attempt failed, in one sentence.
pub(crate) async fn refused<T: Debug>(attempt: impl Future<Output = Result<T, Error>> + Send) -> Error {
    let error = within("the attempt ends", attempt).await.expect_err("it is refused");
    is_one_sentence(&error);
    assert!(!all_of(&error).contains(CANARY), "{}", all_of(&error));
    error
}

/// All that an error shows, with all that caused it.
fn all_of(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    text
}

/// Why a client cannot connect.
pub(crate) async fn refusal(place: &Place) -> Error {
    refused(place.try_connect()).await
}

/// A client with the login of the server's URL gets locks, and each wrong login learns how to correct it.
pub(crate) async fn lets_in_nobody_else(server: &Server, wrong: &[(&str, &str)]) {
    let place = Place::at(server);
    place.serves().await;
    for (user, password) in wrong {
        let error = refusal(&place.through(&server.url_as(user, password))).await;
        assert!(error.is_denied(), "{error}");
        assert!(error.to_string().contains("correct the user and password in the URL"), "{error}");
    }
}

/// The password of a place on a server is shown neither by what is printed about its client nor by any error, of these
/// URLs neither. The server is killed meanwhile.
pub(crate) async fn never_shows(server: &Server, place: &Place, config: impl Debug, urls: &[String]) {
    let mut seen = vec![format!("{config:?}")];
    let locks = place.connect().await;
    let guard = locks.mutex(NAME).lock().await.unwrap();
    seen.push(format!("{locks:?} {guard:?} {:?} {:?}", locks.concerns(), locks.look_all().await.unwrap()));
    seen.push(print_engine(&locks));
    guard.release().await.unwrap();
    server.kill().unwrap();
    let error = within("it is said", locks.mutex(NAME).fail_fast(true).lock()).await.unwrap_err();
    assert!(error.source().is_some(), "the driver's error is the source of {error:?}");
    seen.push(format!("{} {locks:?} {}", all_of(&error), print_engine(&locks)));
    for url in urls {
        let error = refused(Locks::connect(url)).await;
        seen.push(all_of(&error));
    }
    for text in seen {
        assert!(!text.contains(CANARY), "{text}");
    }
}

/// The locks of a server with TLS, for clients that trust its authority.
pub(crate) fn trusting(server: &Server) -> Place {
    let ca = server.certificates().unwrap().ca();
    Place::at(server).with(&format!("ca={}", ca.display()))
}

/// Who trusts the authority of the server gets locks.
pub(crate) async fn serves_who_trusts_it(server: &Server) {
    let place = trusting(server);
    hand_over(&place.connect().await, &place.connect().await).await;
}

/// Who does not trust the authority of the server refuses it, with an error of this kind.
pub(crate) async fn is_refused_by_who_trusts_another(server: &Server, kind: fn(&Error) -> bool) {
    let place = Place::at(server);
    let foreign = server.certificates().unwrap().foreign_ca();
    // Those that the machine trusts do not include it either.
    for untrusting in [place.with(&format!("ca={}", foreign.display())), place] {
        let error = refusal(&untrusting).await;
        assert!(kind(&error) && error.to_string().contains("certificate"), "{error}");
    }
}

/// A server whose certificate has expired is refused, until it has another one.
pub(crate) async fn is_refused_while_its_certificate_has_expired(server: &Server) {
    let place = trusting(server);
    place.serves().await;
    server.show_certificate(true).unwrap();
    within("it is refused", async {
        loop {
            // One that reads its files a moment later may still serve.
            let asked =
                async { place.try_connect().await?.mutex(NAME).ttl(LONG).lock().await?.release().await };
            let Err(error) = asked.await else { continue };
            assert!(error.is_denied(), "{error}");
            assert!(error.to_string().to_lowercase().contains("expired"), "{error}");
            break;
        }
    })
    .await;
    server.show_certificate(false).unwrap();
    within("it serves again", async {
        while place.try_connect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    place.serves().await;
}

/// A server that asks for a certificate serves those who have one. Says what others hear.
pub(crate) async fn serves_who_has_a_certificate(server: &Server) -> Error {
    let (place, files) = (trusting(server), server.certificates().unwrap());
    let cert = format!("cert={}", files.client_cert().display());
    place.with(&format!("{cert}&key={}", files.client_key().display())).serves().await;
    let error = refusal(&place.with(&cert)).await;
    assert!(error.is_invalid_url() && error.to_string().contains("cert and key"), "{error}");
    refusal(&place).await
}

/// Without TLS, nothing is installed for a program, which may do it whenever it wants. With TLS, the driver takes what is
/// installed for the process: what the program installed before, or else what the client did.
pub(crate) fn leaves_cryptography_to_the_program(plain: &Place, encrypted: &Place) {
    for (place, when, could) in
        [(plain, "after", true), (encrypted, "before", true), (encrypted, "after", false)]
    {
        let mut program = Worker::start(&place.url(), &format!("install {when}"), LONG);
        assert_eq!(program.hear("installed"), format!("{when}: {could}"));
        program.end();
    }
}
