//! `GET /metrics` of `tidelock serve`, and the rules that read it, as Prometheus' own `promtool` sees them.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use common::{
    Store,
    serve::{Connection, Server},
    until,
};
use test_servers::Redis;

/// Runs `promtool` of the Debian package `prometheus`, with this input, and returns what it complains of.
#[track_caller]
fn promtool(args: &[&str], input: &str) {
    let mut child = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, of the Debian package prometheus: cargo xtask test installs it");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {args:?}: {}\n{input}", String::from_utf8_lossy(&said));
}

fn contrib(file: &str) -> String {
    format!("{}/../../contrib/metrics/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// The figures of a server, by their names and labels.
fn figures(server: &Server) -> (String, BTreeMap<String, f64>) {
    let mut connection = server.connect();
    connection.send("GET", "/metrics", "", "");
    let (status, text) = connection.text();
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let (key, value) = line.rsplit_once(' ').expect("a value");
        (key.to_owned(), value.parse().expect("a number"))
    };
    let figures = lines.map(read).collect();
    (text, figures)
}

fn has(server: &Server, key: &str, value: f64) -> bool {
    figures(server).1.get(key) == Some(&value)
}

#[test]
fn prometheus_reads_the_figures_of_locks_held_through_the_server() {
    let server = Server::with(&["--metrics-group", "orders/*", "--observe"]);
    let first = server.hold("orders/1", "");
    let second = server.hold("orders/1", "");
    let _other = server.hold("report", r#"{"label":"a \"quoted\" \\ one"}"#);
    until("both levels are seen", || {
        has(&server, r#"tidelock_locks_held{store="file",group="orders/*"}"#, 1.0)
            && has(&server, r#"tidelock_calls_waiting{store="file",group="orders/*"}"#, 1.0)
            && has(&server, r#"tidelock_locks_held{store="file",group="other"}"#, 1.0)
            && has(&server, "tidelock_serve_streams_open", 3.0)
    });
    first.connection.close();
    let mut second = second;
    assert_eq!(second.outcome()["event"], "granted");
    second.connection.close();
    until("the holds have ended and are timed", || {
        has(&server, r#"tidelock_locks_held{store="file",group="orders/*"}"#, 0.0)
            && has(&server, r#"tidelock_hold_seconds_count{store="file",group="orders/*"}"#, 2.0)
    });
    let (text, figures) = figures(&server);
    promtool(&["check", "metrics"], &text);
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"] {
        assert!(figures[name] > 0.0, "{name} in {text}");
    }
    assert_eq!(figures[r#"tidelock_acquired_total{store="file",group="orders/*",outcome="held"}"#], 2.0);
}

#[test]
fn with_observe_the_figures_are_of_the_whole_store() {
    let store = Store::new();
    let server = Server::on(&store.url(), &["--observe"]);
    let mut elsewhere = store.run(&["job"], "echo held; cat");
    assert_eq!(elsewhere.line(), "held");
    let waiting = server.hold("job", "");
    until("the whole store is seen", || {
        has(&server, r#"tidelock_store_locks_held{store="file"}"#, 1.0)
            && has(&server, r#"tidelock_store_claims_waiting{store="file"}"#, 1.0)
            && has(&server, r#"tidelock_store_longest_line_length{store="file"}"#, 1.0)
    });
    let (text, figures) = figures(&server);
    assert!(figures[r#"tidelock_store_longest_hold_seconds{store="file"}"#] > 0.0, "{text}");
    assert!(figures[r#"tidelock_store_oldest_waiter_seconds{store="file"}"#] > 0.0, "{text}");
    assert_eq!(figures[r#"tidelock_store_silent_seconds{store="file"}"#], 0.0, "{text}");
    // What alerts look for an increase of is there before it grows.
    assert_eq!(figures[r#"tidelock_store_clock_jumped_total{store="file"}"#], 0.0, "{text}");
    assert_eq!(figures[r#"tidelock_lost_total{store="file",reason="expired"}"#], 0.0, "{text}");
    promtool(&["check", "metrics"], &text);
    drop(waiting);
    assert_eq!(elsewhere.end().0, Some(0));
    until("the store is empty", || has(&server, r#"tidelock_store_locks_held{store="file"}"#, 0.0));
}

#[test]
fn a_jump_of_the_stores_clock_is_counted() {
    let redis = Redis::new().own_clock().start().expect("a server");
    let server = Server::on(redis.url(), &["--observe", "--interval", "200ms"]);
    let _hold = server.hold("job", r#"{"ttl":"15s"}"#);
    until("the hold has an age", || {
        figures(&server)
            .1
            .get(r#"tidelock_store_longest_hold_seconds{store="redis"}"#)
            .is_some_and(|age| *age > 2.0)
    });
    assert!(has(&server, r#"tidelock_store_clock_jumped_total{store="redis"}"#, 0.0));
    redis.set_clock_ahead(5).expect("its clock is set");
    until("the observer of the store sees it", || {
        has(&server, r#"tidelock_store_clock_jumped_total{store="redis"}"#, 1.0)
    });
    until("a client that renews a lock sees it", || {
        has(&server, r#"tidelock_clock_jumped_total{store="redis"}"#, 1.0)
    });
    assert!(has(&server, r#"tidelock_store_clock_jumped_total{store="redis"}"#, 1.0), "it is one jump");
}

#[test]
fn figures_over_tcp_need_the_token_and_more_groups_than_allowed_are_refused() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("token");
    fs::write(&path, TOKEN).expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
    let server = Server::with(&["--listen", "tcp:127.0.0.1:0", "--token-file", &path.display().to_string()]);
    let address =
        server.listening["listen"].as_str().and_then(|at| at.strip_prefix("tcp:")).expect("an address");
    for (headers, expected) in [("", 401), (&*format!("Authorization: Bearer {TOKEN}\r\n"), 200)] {
        let mut connection = Connection::tcp(address);
        connection.send("GET", "/metrics", headers, "");
        assert_eq!(connection.text().0, expected, "{headers}");
    }
    let many: Vec<String> = (0..65).flat_map(|n| ["--metrics-group".to_owned(), format!("{n}/*")]).collect();
    let refused =
        common::tidelock(["serve", "--url", "memory:"].into_iter().chain(many.iter().map(String::as_str)))
            .output()
            .expect("it runs");
    assert!(!refused.status.success());
    assert!(common::stderr(&refused).contains("at most 64"), "{}", common::stderr(&refused));
}

#[test]
fn the_alert_rules_are_valid_and_fire_when_they_should() {
    promtool(&["check", "rules", &contrib("alerts.yml")], "");
    promtool(&["test", "rules", &contrib("alerts.test.yml")], "");
}

#[test]
fn the_dashboard_is_json_with_an_expression_in_every_panel() {
    let board: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(contrib("grafana.json")).expect("a file")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let shown = panels.iter().filter(|panel| panel["type"] != "row");
    for panel in shown {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
}
