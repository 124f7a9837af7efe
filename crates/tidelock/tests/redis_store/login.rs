//! Servers that do not let a client in, are not there, or are something else; and secrets, which stay secret.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use test_servers::{Redis, RedisConnection};
use tidelock::backends::redis::RedisConfig;

use crate::support::{
    LONG, NAME, Place, got,
    login::{self, CANARY, refusal},
    nobody, shared, until_waiting, waiter,
};

trials! {
    a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence,
    a_password_never_shows_in_errors_or_debug_output,
    a_unix_socket_reaches_the_same_locks,
    locks_of_two_databases_do_not_meet,
    a_replica_is_refused_with_what_to_name_instead,
    nobody_at_the_address_is_said_at_once,
    a_peer_that_talks_nonsense_or_never_answers_is_given_up,
    a_sentinel_that_does_not_know_the_master_is_denied,
}

async fn a_wrong_password_and_an_unknown_user_are_refused_with_one_sentence() {
    let server = Redis::new().password("right").user("known", "right", "~* &* +@all").start().unwrap();
    let wrong = [("", CANARY), ("known", CANARY), ("unknown", CANARY), ("known", "")];
    login::lets_in_nobody_else(&server, &wrong).await;
    // No login at all.
    let error = refusal(&Place::on(&format!("redis://{}", server.addr()))).await;
    assert!(error.is_denied() && error.to_string().contains("correct the user and password"), "{error}");
}

async fn a_password_never_shows_in_errors_or_debug_output() {
    let server = Redis::new().password(CANARY).start().unwrap();
    let config = RedisConfig::from_url(server.url()).unwrap();
    let login = format!("me:{CANARY}@{}", nobody());
    let urls = [
        format!("redis://{login}"),
        format!("redis://{login}/not-a-number"),
        format!("redis://{login}?no-such-option=1"),
        format!("rediss://{login}"),
        format!("rediss://{login}?ca=/no/such/file"),
        format!("redis+sentinel://{login}/master?sentinel_password={CANARY}"),
        format!("redis+cluster://{login}"),
        format!("redis+nonsense://{login}"),
        format!("redis://me:{CANARY}%zz@host"),
        format!("redis://me:{CANARY}"),
    ];
    login::never_shows(&server, &Place::at(&server), config, &urls).await;
}

async fn a_unix_socket_reaches_the_same_locks() {
    let (server, place) = (shared(), Place::shared());
    let socket = server.unix_socket().unwrap().display().to_string();
    let near = place.through(&format!("redis+unix://{socket}")).connect().await;
    let far = place.connect().await;
    let guard = near.mutex(NAME).lock().await.unwrap();
    assert!(far.mutex(NAME).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let error = refusal(&place.through(&format!("redis+unix://{socket}.not-there"))).await;
    assert!(error.is_unavailable(), "{error}");
}

async fn locks_of_two_databases_do_not_meet() {
    let (server, place) = (shared(), Place::shared());
    let one = place.through(&format!("{}/1", server.url()));
    let (zero, one, same) = (place.connect().await, one.connect().await, place.with("db=1").connect().await);
    let first = zero.mutex(NAME).lock().await.unwrap();
    let second = one.mutex(NAME).try_lock().await.unwrap().expect("another database");
    assert!(same.mutex(NAME).try_lock().await.unwrap().is_none());
    // Channels have no databases: that a claim of the other one moved is no news here.
    let waiting = waiter(&same, NAME, LONG);
    until_waiting(&one, NAME, 1).await;
    first.release().await.unwrap();
    assert!(!waiting.is_finished());
    second.release().await.unwrap();
    got(waiting).await.release().await.unwrap();
    let error = refusal(&place.through(&format!("{}/9999", server.url()))).await;
    assert!(error.is_denied(), "{error}");
}

async fn a_replica_is_refused_with_what_to_name_instead() {
    let servers = Redis::new().start_with_replicas(1).unwrap();
    let error = refusal(&Place::on(servers.replicas()[0].url())).await;
    assert!(error.to_string().contains("it is a replica"), "{error}");
    assert!(error.to_string().contains("name its master"), "{error}");
}

async fn nobody_at_the_address_is_said_at_once() {
    for scheme in ["redis", "redis+cluster"] {
        let error = refusal(&Place::on(&format!("{scheme}://{}", nobody()))).await;
        assert!(error.is_unavailable(), "{error}");
    }
    let error = refusal(&Place::on(&format!("redis+sentinel://{}/master", nobody()))).await;
    assert!(error.is_unavailable(), "{error}");
    let error = refusal(&Place::on("redis://no-such-host.invalid")).await;
    assert!(error.is_unavailable(), "{error}");
}

/// A peer that takes connections and says this to each.
fn stranger(says: &'static [u8]) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in accepting.incoming() {
            let Ok(mut stream) = stream else { return };
            if says.is_empty() {
                // Kept open, and never answered.
                silent.push(stream);
                continue;
            }
            // Whatever comes of it: the client may be gone.
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(says);
        }
    });
    listener
}

async fn a_peer_that_talks_nonsense_or_never_answers_is_given_up() {
    let web: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for says in [web, b"\x00\x01\x02\xff", b"-ERR unknown command\r\n", b""] {
        let peer = stranger(says).local_addr().unwrap();
        for url in [
            format!("redis://{peer}"),
            format!("redis+cluster://{peer}"),
            format!("redis+sentinel://{peer}/master"),
        ] {
            let error = refusal(&Place::on(&url)).await;
            assert!(error.is_unavailable() || error.is_denied(), "{error}");
        }
    }
}

async fn a_sentinel_that_does_not_know_the_master_is_denied() {
    // As good as any: it is asked for the master's name only.
    let server = shared();
    RedisConnection::open(server.addr()).unwrap();
    let error = refusal(&Place::on(&format!("redis+sentinel://{}/master", server.addr()))).await;
    assert!(error.is_denied(), "{error}");
    let error = refusal(&Place::on(&format!("redis+cluster://{}", server.addr()))).await;
    assert!(error.is_denied(), "{error}");
}
