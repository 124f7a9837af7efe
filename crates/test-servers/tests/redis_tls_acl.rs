//! Redis servers that do not let everybody in: TLS, certificates of clients, users with few rights.

#![allow(clippy::unwrap_used, reason = "the helpers of the tests fail the test, as the tests do")]

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{eventually, leaves_nothing};
use test_servers::{Error, Redis, RedisConnection, Server};

/// What `PING` brings over TLS to a client that trusts `ca`, and may have more to say.
fn tls_ping(server: &Server, ca: &Path, more: &[&Path]) -> String {
    let mut command = Command::new("redis-cli");
    command.arg("-p").arg(server.addr().port().to_string()).arg("--tls").arg("--cacert").arg(ca);
    for (option, file) in ["--cert", "--key"].iter().zip(more) {
        command.arg(option).arg(file);
    }
    let output = command.arg("PING").stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_server_with_tls_serves_those_who_trust_its_authority() {
    let server = Redis::new().tls().start().unwrap();
    assert_eq!(server.url(), format!("rediss://{}", server.addr()).as_str());
    let certificates = server.certificates().unwrap();
    assert_eq!(tls_ping(&server, &certificates.ca(), &[]), "PONG\n");
    assert_eq!(server.unix_socket(), None);

    let mut plain = RedisConnection::open(server.addr()).unwrap();
    assert!(plain.call(&["PING"]).is_err(), "nobody is served without TLS");

    server.kill().unwrap();
    {
        let _stranger = TcpListener::bind(server.addr()).unwrap();
        server.relaunch().unwrap();
        let error = server.wait_ready().unwrap_err().to_string();
        assert!(error.contains("found its address in use"), "{error}");
    }
    server.restart().unwrap();
    assert_eq!(tls_ping(&server, &certificates.ca(), &[]), "PONG\n");
    leaves_nothing(server, |server| vec![server]);
}

#[test]
fn who_trusts_another_authority_refuses_the_server() {
    let server = Redis::new().tls().start().unwrap();
    let answer = tls_ping(&server, &server.certificates().unwrap().foreign_ca(), &[]);
    assert!(answer.contains("certificate verify failed"), "{answer}");
    eventually("the server is told why", || server.log_tail().contains("alert unknown ca"));
}

#[test]
fn an_expired_certificate_is_what_is_served() {
    let server = Redis::new().tls_expired().start().unwrap();
    let answer = tls_ping(&server, &server.certificates().unwrap().ca(), &[]);
    assert!(answer.contains("certificate verify failed"), "{answer}");
    eventually("the server is told why", || server.log_tail().contains("alert certificate expired"));
    assert_eq!(server.ask(&["PING"]).unwrap(), "PONG\n", "the administrator does not care");
}

#[test]
fn with_client_authentication_only_clients_with_a_certificate_are_served() {
    let server = Redis::new().tls_client_auth().start().unwrap();
    let certificates = server.certificates().unwrap();
    let (cert, key) = (certificates.client_cert(), certificates.client_key());
    assert_eq!(tls_ping(&server, &certificates.ca(), &[&cert, &key]), "PONG\n");
    let answer = tls_ping(&server, &certificates.ca(), &[]);
    assert!(!answer.contains("PONG"), "{answer}");
    eventually("the server says why", || server.log_tail().contains("peer did not return a certificate"));
}

#[test]
fn the_administrator_gets_through_every_door() {
    let doors = [
        Redis::new(),
        Redis::new().password("secret"),
        Redis::new().without_default_user(),
        Redis::new().tls().password("secret"),
        Redis::new().tls_client_auth().without_default_user().user("few", "rights", "+ping"),
        Redis::new().tls_expired().without_default_user(),
    ];
    for options in doors {
        let server = options.start().unwrap();
        let written = server.command(&["SET", "key", "hello"]).unwrap();
        assert_eq!(written.as_deref(), Some("OK"), "{server:?}");
        assert_eq!(server.ask(&["GET", "key"]).unwrap(), "hello\n", "{server:?}");
        let wrong = server.command(&["SET", "key"]).unwrap_err().to_string();
        assert!(wrong.contains("wrong number of arguments"), "{wrong}");
    }
}

fn login(server: &Server, user: &str, password: &str) -> Result<RedisConnection, Error> {
    let mut redis = RedisConnection::open(server.addr())?;
    redis.call(&["AUTH", user, password])?;
    Ok(redis)
}

#[test]
fn a_user_may_do_what_its_rules_say_and_nothing_else() {
    let server = Redis::new()
        .user("reader", "secret", "~lock:* +get")
        .user("owner", "other", "~* &* +@all")
        .start()
        .unwrap();
    assert_eq!(server.url(), format!("redis://{}", server.addr()).as_str());
    assert_eq!(
        server.url_as("reader", "secret"),
        format!("redis://reader:secret@{}", server.addr()).as_str()
    );
    login(&server, "owner", "other").unwrap().call(&["SET", "lock:a", "hello"]).unwrap();

    let mut reader = login(&server, "reader", "secret").unwrap();
    let value = reader.call(&["GET", "lock:a"]).unwrap();
    assert_eq!(value.as_deref(), Some("hello"));
    for forbidden in [&["SET", "lock:a", "no"][..], &["GET", "other"], &["PING"]] {
        let refused = reader.call(forbidden).unwrap_err().to_string();
        assert!(refused.contains("NOPERM"), "{refused}");
    }
    let refused = login(&server, "reader", "wrong").unwrap_err().to_string();
    assert!(refused.contains("WRONGPASS"), "{refused}");
    // The default user is left as it was.
    RedisConnection::open(server.addr()).unwrap().call(&["SET", "lock:a", "changed"]).unwrap();
}

#[test]
fn without_the_default_user_nobody_is_served_who_does_not_say_a_name() {
    let server = Redis::new().without_default_user().user("owner", "secret", "~* &* +@all").start().unwrap();
    assert_eq!(server.url(), format!("redis://owner:secret@{}", server.addr()).as_str());
    let mut nobody = RedisConnection::open(server.addr()).unwrap();
    let refused = nobody.call(&["PING"]).unwrap_err().to_string();
    assert!(refused.contains("NOAUTH"), "{refused}");
    login(&server, "owner", "secret").unwrap().call(&["PING"]).unwrap();
}

#[test]
fn a_directive_overrules_what_the_server_would_get() {
    let server = Redis::new()
        .config("maxmemory-policy", "allkeys-lru")
        .config("client-output-buffer-limit", "pubsub 64mb 32mb 10")
        .config("save", "3600 1")
        .start()
        .unwrap();
    let get = |directive: &str| server.command(&["CONFIG", "GET", directive]).unwrap().unwrap();
    assert_eq!(get("maxmemory-policy"), "maxmemory-policy\nallkeys-lru");
    assert!(get("client-output-buffer-limit").ends_with("pubsub 67108864 33554432 10"));
    assert_eq!(get("save"), "save\n3600 1");
    let failed = Redis::new().config("no-such-directive", "yes").start().unwrap_err().to_string();
    assert!(failed.contains("no-such-directive"), "{failed}");
}

#[test]
fn replicas_follow_a_master_that_asks_for_certificates_and_names() {
    let redis = Redis::new().tls_client_auth().without_default_user().start_with_replicas(1).unwrap();
    redis.master().command(&["SET", "key", "hello"]).unwrap();
    let replica = &redis.replicas()[0];
    eventually("the replica has the key", || {
        replica.command(&["GET", "key"]).unwrap().as_deref() == Some("hello")
    });
}

#[test]
fn sentinels_replace_a_master_that_asks_for_certificates_and_names() {
    let redis = Redis::new()
        .tls_client_auth()
        .without_default_user()
        .user("owner", "secret", "~* &* +@all")
        .start_sentinel()
        .unwrap();
    assert!(redis.url().starts_with("rediss+sentinel://owner:secret@127.0.0.1:"), "{}", redis.url());
    let old = redis.master_server().unwrap();
    old.kill().unwrap();
    let new = redis.wait_for_successor(old).unwrap();
    new.command(&["SET", "key", "hello"]).unwrap();
}

#[test]
fn a_cluster_with_tls_and_names_moves_slots_and_replaces_masters() {
    let cluster = Redis::new().tls_client_auth().without_default_user().start_cluster().unwrap();
    assert!(cluster.url().starts_with("rediss+cluster://administrator:"), "{}", cluster.url());
    let old = cluster.master_of_key("key").unwrap();
    old.command(&["SET", "key", "hello"]).unwrap();
    let to = cluster.masters().into_iter().find(|master| master.addr() != old.addr()).unwrap();
    cluster.move_slot(cluster.slot_of_key("key").unwrap(), to).unwrap();
    let new = cluster.fail_over(to).unwrap();
    assert_eq!(new.command(&["GET", "key"]).unwrap().as_deref(), Some("hello"));
}
