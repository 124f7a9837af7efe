//! What the events of the page say, with real processes on real stores.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{collections::HashMap, os::unix::net::UnixStream};

use common::{
    Running, output,
    serve::{Connection, Server},
    stderr,
};
use serde_json::{Value, json};
use test_servers::{Etcd, Redis, Zookeeper};

/// A reader of the events, and what it knows by them.
struct Viewer {
    connection: Connection<UnixStream>,
    viewer: Value,
    rows: HashMap<String, Value>,
    events: Vec<Value>,
    health: Value,
}

impl Viewer {
    fn open(server: &Server) -> Self {
        let mut connection = server.connect();
        connection.send("GET", "/ui/events", "", "");
        assert_eq!(connection.head(), (200, None));
        let mut viewer = Self {
            connection,
            viewer: json!(null),
            rows: HashMap::new(),
            events: vec![],
            health: json!(null),
        };
        viewer.until(|viewer| !viewer.viewer.is_null());
        viewer
    }

    /// Reads until it knows what it should.
    #[track_caller]
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let start = std::time::Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < common::PATIENCE, "{:?} {:?}", self.rows, self.events);
            let chunk = self.connection.chunk().expect("the server is there");
            let text = String::from_utf8(chunk).expect("text");
            for event in text.split("\n\n") {
                let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
                self.take(serde_json::from_str(data).expect("JSON"));
            }
        }
    }

    fn take(&mut self, news: Value) {
        if let Some(viewer) = news.get("viewer") {
            self.viewer = viewer.clone();
        }
        if news["all"] == true {
            self.rows.clear();
        }
        let list = |name: &str| news[name].as_array().cloned().unwrap_or_default();
        for row in list("rows") {
            self.rows.insert(row["name"].as_str().expect("a name").to_owned(), row);
        }
        for name in list("gone") {
            self.rows.remove(name.as_str().expect("a name"));
        }
        self.events.extend(list("events"));
        if let Some(health) = news.get("health") {
            self.health = health.clone();
        }
    }

    fn label(&self, name: &str, kind: &str) -> Option<&str> {
        self.rows.get(name)?[kind].get(0)?["label"].as_str()
    }

    fn happened(&self, word: &str, label: &str) -> Option<&Value> {
        self.events.iter().find(|event| event["event"] == word && event["label"] == label)
    }
}

fn hold(url: &str, name: &str, label: &str) -> Running {
    let args = ["--url", url, name, "--label", label];
    Running::start(&args, "echo held; read line")
}

/// A lock appears, ages, a waiter moves up, and it goes.
fn life(url: &str, args: &[&str], released: &str) {
    let server = Server::on(url, args);
    let mut viewer = Viewer::open(&server);
    viewer.until(|viewer| !viewer.health["since"].is_null());
    let mut first = hold(url, "orders/42", "first");
    assert_eq!(first.line(), "held");
    viewer.until(|viewer| viewer.label("orders/42", "holders") == Some("first"));
    let focus = json!({"viewer": viewer.viewer, "names": ["orders/42"]});
    assert_eq!(server.ask("POST", "/ui/focus", &focus.to_string()).0, 200);
    let (since, until) = {
        let holder = &viewer.rows["orders/42"]["holders"][0];
        (holder["since"].as_u64().expect("a time"), holder["until"].as_u64().expect("a time"))
    };
    assert!(until > since && viewer.happened("granted", "first").is_some(), "{:?}", viewer.events);
    let mut second = hold(url, "orders/42", "second");
    viewer.until(|viewer| viewer.label("orders/42", "waiters") == Some("second"));
    assert!(viewer.happened("queued", "second").is_some());
    first.end();
    assert_eq!(second.line(), "held");
    viewer.until(|viewer| viewer.label("orders/42", "holders") == Some("second"));
    viewer.until(|viewer| viewer.happened("granted", "second").is_some());
    assert!(viewer.happened("granted", "second").expect("it holds")["waited_ms"].is_u64());
    assert!(viewer.happened(released, "first").is_some(), "{:?}", viewer.events);
    second.end();
    viewer.until(|viewer| viewer.rows.is_empty() && viewer.happened(released, "second").is_some());
    let (_, history) = server.ask("GET", "/ui/history?name=orders/42", "");
    let words: Vec<_> = history["events"].as_array().expect("events").iter().map(|it| &it["event"]).collect();
    assert_eq!(words.len(), 5, "{words:?}");
}

#[test]
fn a_lock_on_files_appears_ages_is_handed_over_and_goes() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    life(&format!("file:{}", folder.path().display()), &[], "gone");
}

#[test]
fn a_lock_on_redis_appears_ages_is_handed_over_and_goes() {
    let redis = Redis::new().start().expect("a server");
    life(redis.url(), &[], "released");
}

#[test]
fn redis_tells_of_a_new_lock_however_seldom_everything_is_looked_at() {
    let redis = Redis::new().start().expect("a server");
    life(redis.url(), &["--interval", "1h"], "released");
}

#[test]
fn etcd_tells_of_a_new_lock_however_seldom_everything_is_looked_at() {
    let etcd = Etcd::new().start().expect("a server");
    life(etcd.url(), &["--interval", "1h"], "released");
}

#[test]
fn zookeeper_tells_of_a_new_lock_however_seldom_everything_is_looked_at() {
    let zookeeper = Zookeeper::new().start().expect("a server");
    // The first claim of all gets its token a moment after its place.
    assert!(output(&["run", "--url", zookeeper.url(), "first", "--", "true"]).status.success());
    life(zookeeper.url(), &["--interval", "1h"], "gone");
}

#[test]
fn the_kernel_tells_of_a_new_lock_in_files_however_seldom_everything_is_looked_at() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    life(&format!("file:{}", folder.path().display()), &["--interval", "1h"], "gone");
}

#[test]
fn a_redis_cluster_tells_of_a_new_lock_however_seldom_everything_is_looked_at() {
    let cluster = Redis::new().start_cluster().expect("servers");
    life(cluster.url(), &["--interval", "1h"], "gone");
}

/// On files, nobody tells of evictions but the server whose hold it was.
#[test]
fn what_became_of_a_hold_of_the_server_is_told() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let url = format!("file:{}", folder.path().display());
    let server = Server::on(&url, &[]);
    let mut viewer = Viewer::open(&server);
    let released = server.hold("deploy", r#"{"label":"ci-runner-1"}"#);
    viewer.until(|viewer| viewer.label("deploy", "holders") == Some("ci-runner-1"));
    drop(released);
    viewer.until(|viewer| viewer.happened("released", "ci-runner-1").is_some());
    let _evicted = server.hold("deploy", r#"{"label":"ci-runner-2"}"#);
    viewer.until(|viewer| viewer.label("deploy", "holders") == Some("ci-runner-2"));
    let broken = output(&["break", "deploy", "--reason", "it hangs", "--url", &url]);
    assert!(broken.status.success(), "{}", stderr(&broken));
    viewer.until(|viewer| viewer.happened("evicted", "ci-runner-2").is_some());
    let evicted = viewer.happened("evicted", "ci-runner-2").expect("it was");
    assert!(
        evicted["reason"].as_str().is_some_and(|reason| reason.starts_with("it hangs; by ")),
        "{evicted}"
    );
    let _lost = server.hold("deploy", r#"{"label":"ci-runner-3","max_hold":"1500ms"}"#);
    viewer.until(|viewer| viewer.happened("lost", "ci-runner-3").is_some());
}

/// Redis tells of every eviction to those who listen: nobody did.
#[test]
fn a_claim_that_was_evicted_while_nobody_viewed_is_not_said_to_be_released() {
    let redis = Redis::new().start().expect("a server");
    let server = Server::on(redis.url(), &[]);
    let mut viewer = Viewer::open(&server);
    let mut holder = hold(redis.url(), "deploy", "first");
    assert_eq!(holder.line(), "held");
    viewer.until(|viewer| viewer.label("deploy", "holders") == Some("first"));
    drop(viewer);
    let start = std::time::Instant::now();
    while server.ask("GET", "/ui/history", "").1["gaps"].as_array().is_none_or(Vec::is_empty) {
        assert!(start.elapsed() < common::PATIENCE, "the server knows that nobody views");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let broken = output(&["break", "deploy", "--reason", "it hangs", "--url", redis.url()]);
    assert!(broken.status.success(), "{}", stderr(&broken));
    let mut viewer = Viewer::open(&server);
    viewer.until(|viewer| viewer.happened("gone", "first").is_some());
    assert!(viewer.happened("released", "first").is_none(), "{:?}", viewer.events);
}

#[test]
fn an_eviction_over_the_protocol_is_told_with_its_reason() {
    let server = Server::start();
    let mut viewer = Viewer::open(&server);
    let holder = server.hold("deploy", r#"{"label":"ci-runner-3"}"#);
    viewer.until(|viewer| viewer.label("deploy", "holders") == Some("ci-runner-3"));
    let claim = viewer.rows["deploy"]["holders"][0]["claim"].as_str().expect("a claim").to_owned();
    let path = format!("/v1/locks/deploy/claims/{claim}?reason=it+hangs");
    assert_eq!(server.ask("DELETE", &path, "").0, 200);
    viewer.until(|viewer| viewer.happened("evicted", "ci-runner-3").is_some());
    let evicted = viewer.happened("evicted", "ci-runner-3").expect("it was");
    assert!(
        evicted["reason"].as_str().is_some_and(|reason| reason.starts_with("it hangs; by ")),
        "{evicted}"
    );
    drop(holder);
}

#[test]
fn a_store_that_is_gone_is_told_and_so_is_its_return() {
    let redis = Redis::new().start().expect("a server");
    let server = Server::on(redis.url(), &[]);
    let mut viewer = Viewer::open(&server);
    viewer.until(|viewer| !viewer.health["since"].is_null() && viewer.health["error"].is_null());
    redis.kill().expect("it ends");
    viewer.until(|viewer| viewer.health["error"].is_string());
    redis.restart().expect("it starts");
    viewer.until(|viewer| viewer.health["error"].is_null());
    let (_, history) = server.ask("GET", "/ui/history", "");
    let gaps = history["gaps"].as_array().expect("gaps");
    assert!(gaps.len() == 1 && gaps[0]["to"].is_u64(), "{gaps:?}");
}
