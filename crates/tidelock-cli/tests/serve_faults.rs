//! `tidelock serve` while clients, servers and stores are stopped, killed and cut off.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use common::{
    kill,
    serve::{Hold, Server},
    until,
};
use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};
use serde_json::{Value, json};
use test_servers::{Etcd, Postgres, Redis};

/// The clock that clients count on, which runs in suspend: in microseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

/// A client that is a process of its own: curl.
struct Curl {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Its clock before it asked.
    noted: u64,
}

impl Curl {
    fn hold(socket: &Path, name: &str, body: &str) -> Self {
        let noted = now();
        let mut child = Command::new("curl")
            .args(["-sN", "--unix-socket"])
            .arg(socket)
            .args(["-d", body, &format!("http://localhost/v1/locks/{name}")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl is installed");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines, noted }
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Until when it relies on its lock, by a line that it has read.
    fn until(&self, event: &Value) -> u64 {
        self.noted + event["until_us"].as_u64().expect("a number")
    }

    fn signal(&self, signal: Signal) {
        kill(self.child.id(), signal);
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// kill -9 of a client frees its lock although its lease is 30 s long: the next one waits for 15 s at most.
fn a_killed_client_frees_its_lock(url: &str) {
    let server = Server::on(url, &[]);
    let mut client = Curl::hold(&server.socket, "job", r#"{"ttl":"30s"}"#);
    let token = client.event()["token"].as_str().expect("text").parse::<u128>().expect("a number");
    let mut next = server.hold("job", r#"{"wait":"15s"}"#);
    assert_eq!(next.first["event"], "waiting");
    client.signal(Signal::KILL);
    next.first = next.outcome();
    assert_eq!(next.first["event"], "granted", "{url}");
    assert!(next.token() > token, "{url}");
    // Another program sees the same.
    let other = Server::on(url, &[]);
    let mut waiter = other.hold("job", r#"{"wait":"15s"}"#);
    next.connection.close();
    assert_eq!(waiter.outcome()["event"], "granted", "{url}");
}

#[test]
fn a_killed_client_frees_its_lock_on_files() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    a_killed_client_frees_its_lock(&format!("file:{}", folder.path().display()));
}

#[test]
fn a_killed_client_frees_its_lock_on_redis() {
    let store = Redis::new().start().expect("a server");
    a_killed_client_frees_its_lock(store.url());
}

#[test]
fn a_killed_client_frees_its_lock_on_etcd() {
    let store = Etcd::new().start().expect("a server");
    a_killed_client_frees_its_lock(store.url());
}

#[test]
fn a_killed_client_frees_its_lock_on_postgres() {
    let store = Postgres::new().start().expect("a server");
    a_killed_client_frees_its_lock(store.url());
}

#[test]
fn a_waiter_that_is_killed_leaves_the_queue() {
    let server = Server::start();
    let _holder = server.hold("job", "");
    let mut waiter = Curl::hold(&server.socket, "job", "{}");
    assert_eq!(waiter.event()["event"], "waiting");
    let mut last = server.hold("job", "");
    assert_eq!(last.first["ahead"], 1);
    waiter.signal(Signal::KILL);
    assert_eq!(last.event().expect("news")["ahead"], 0);
}

#[test]
fn a_client_that_is_stopped_loses_its_lock_after_it_relies_on_it() {
    let server = Server::start();
    let mut client = Curl::hold(&server.socket, "job", r#"{"ttl":"1s"}"#);
    let granted = client.event();
    client.signal(Signal::STOP);
    let mut next = server.hold("job", "");
    assert_eq!(next.outcome()["event"], "granted");
    let held = now();
    // What it reads when it goes on, it may rely on: the window of each line had ended.
    client.signal(Signal::CONT);
    let mut event = granted;
    while event["event"] != "lost" {
        let until = client.until(&event);
        assert!(until <= held, "it relied on the lock for {} us too long", until - held);
        event = client.event();
    }
    assert_eq!(event["reason"], "unread");
}

#[test]
fn a_server_that_is_stopped_loses_its_locks_after_clients_rely_on_them() {
    let server = Server::start();
    let other = Server::on(&server.url(), &[]);
    let mut client = Curl::hold(&server.socket, "job", r#"{"ttl":"1s"}"#);
    let granted = client.event();
    let mut next = other.hold("job", "");
    server.signal(Signal::STOP);
    assert_eq!(next.outcome()["event"], "granted");
    let held = now();
    server.signal(Signal::CONT);
    let mut event = granted;
    while event["event"] != "lost" {
        assert!(client.until(&event) <= held, "{event}");
        event = client.event();
    }
}

#[test]
fn a_server_that_is_killed_leaves_locks_held_for_as_long_as_clients_rely_on_them() {
    let mut server = Server::start();
    let other = Server::on(&server.url(), &[]);
    let mut client = Curl::hold(&server.socket, "job", r#"{"ttl":"2s"}"#);
    let granted = client.event();
    let mut next = other.hold("job", "");
    assert_eq!(next.first["event"], "waiting");
    server.signal(Signal::KILL);
    assert_eq!(next.outcome()["event"], "granted");
    assert!(client.until(&granted) <= now());
    // The socket that it left is replaced, and its holds are not known.
    server.restart();
    let (status, unknown) =
        server.ask("POST", &format!("/v1/holds/{}", granted["hold"].as_str().expect("text")), "");
    assert_eq!((status, &unknown["kind"]), (404, &json!("not_found")));
}

#[test]
fn a_store_that_does_not_answer_ends_the_hold_in_time() {
    let store = Redis::new().start().expect("a server");
    let server = Server::on(store.url(), &[]);
    let mut hold = server.hold("job", r#"{"ttl":"1s"}"#);
    store.pause().expect("it can be stopped");
    let lost = hold.outcome();
    assert_eq!((&lost["event"], &lost["reason"]), (&json!("lost"), &json!("expired")), "{lost}");
    assert_eq!(server.ask("DELETE", &hold.path(), "").0, 410);
    let (status, down) = server.ask("GET", "/v1/locks/job", "");
    assert_eq!((status, &down["kind"], &down["retryable"]), (503, &json!("unavailable"), &json!(true)));
    let (status, _) = server.ask("POST", "/v1/locks/other", r#"{"wait":"100ms","progress":false}"#);
    assert!([408, 503].contains(&status), "{status}");
    store.resume().expect("it goes on");
    assert_eq!(server.hold("other", "").first["event"], "granted");
}

#[test]
fn a_server_that_is_told_to_end_tells_its_holders_and_gives_their_locks_back() {
    let mut server = Server::start();
    let other = Server::on(&server.url(), &[]);
    let mut client = Curl::hold(&server.socket, "job", r#"{"ttl":"30s"}"#);
    assert_eq!(client.event()["event"], "granted");
    let mut here = server.hold("job", "");
    let mut there = other.hold("job", r#"{"wait":"15s"}"#);
    server.signal(Signal::TERM);
    assert_eq!(client.event()["reason"], "shutdown");
    assert_eq!(here.outcome()["kind"], "unavailable");
    assert_eq!(there.outcome()["event"], "granted");
    assert_eq!(server.end(), (Some(0), String::new()));
    assert!(!server.socket.exists());
}

#[test]
fn a_server_that_ends_leaves_the_lock_of_a_client_that_is_stopped_to_its_lease() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let url = format!("file:{}", folder.path().display());
    let mut server = Server::on(&url, &["--grace", "100ms"]);
    let other = Server::on(&url, &[]);
    let mut client = Curl::hold(&server.socket, "job", r#"{"ttl":"3s"}"#);
    let granted = client.event();
    client.signal(Signal::STOP);
    let mut next = other.hold("job", "");
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    assert_eq!(next.outcome()["event"], "granted");
    assert!(client.until(&granted) <= now());
}

#[test]
fn a_client_with_an_open_body_keeps_its_lock_for_as_long_as_it_relies_on_it() {
    let mut server = Server::start();
    let other = Server::on(&server.url(), &[]);
    let asked = now();
    let mut hold = Hold::opened(server.connect(), "/v1/locks/job", r#"{"ttl":"3s"}"#);
    let until = asked + hold.first["until_us"].as_u64().expect("a number");
    let mut next = other.hold("job", "");
    server.signal(Signal::TERM);
    assert_eq!(hold.outcome()["reason"], "shutdown");
    // It does not close its stream.
    assert_eq!(next.outcome()["event"], "granted");
    assert!(until <= now());
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_private_server_ends_with_its_program() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let url = format!("file:{}", folder.path().display());
    let mut server = Server::on(&url, &["--until-stdin-closes"]);
    let other = Server::on(&url, &[]);
    let hold = server.hold("job", r#"{"ttl":"30s"}"#);
    let mut next = other.hold("job", r#"{"wait":"15s"}"#);
    // All that ends with a program, whatever kills it.
    server.close_input();
    hold.connection.close();
    assert_eq!(next.outcome()["event"], "granted");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_socket_has_one_server_and_one_that_nobody_answers_is_replaced() {
    let mut server = Server::start();
    let listen = format!("unix:{}", server.socket.display());
    let second = common::output(&["serve", "--listen", &listen, "--url", &server.url()]);
    assert_eq!(second.status.code(), Some(125));
    assert!(common::stderr(&second).contains("another server listens there"), "{}", common::stderr(&second));
    server.signal(Signal::KILL);
    server.restart();
    assert_eq!(server.ask("GET", "/healthz", "").0, 200);
    let file = server.socket.with_extension("txt");
    std::fs::write(&file, "precious").expect("a file");
    let refused =
        common::output(&["serve", "--listen", &format!("unix:{}", file.display()), "--url", &server.url()]);
    assert_eq!(refused.status.code(), Some(125));
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "precious");
}

#[test]
fn many_streams_are_held_at_once_and_all_go_with_their_client() {
    let server = Server::start();
    let holds: Vec<_> = (0..200).map(|n| server.hold(&format!("job-{n}"), "")).collect();
    let (_, locks) = server.ask("GET", "/v1/locks", "");
    assert_eq!(locks.as_array().map(Vec::len), Some(200));
    drop(holds);
    until("all are free", || server.ask("GET", "/v1/locks", "").1 == json!([]));
}
