//! `tidelock events`: what happens in a store, as other processes make it happen.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use common::{Running, Store, output, runs, stderr, tidelock, until};
use rustix::process::Signal;
use serde_json::Value;
use test_servers::{Etcd, Redis, Zookeeper};

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo held; read line";

/// `tidelock events`, and what it prints.
struct Watching(Running);

impl Watching {
    /// Watches a store, and says how many locks were in use when it began.
    fn start(url: &str, args: &[&str]) -> (Self, u64) {
        let mut watching = Self(Running::of(tidelock([&["events", "--json", "--url", url], args].concat())));
        let first = watching.next();
        assert_eq!(first["event"], "watching", "{first}");
        let locks = first["locks"].as_u64().expect("a number");
        (watching, locks)
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.0.line()).expect("a line of JSON")
    }

    /// The next event, which is this one of this holder or waiter.
    fn expect(&mut self, event: &str, label: &str) -> Value {
        let next = self.next();
        assert_eq!((&next["event"], &next["label"]), (&event.into(), &label.into()), "{next}");
        assert!(next["at_ms"].as_u64() > Some(1_700_000_000_000), "{next}");
        next
    }
}

fn hold(url: &str, label: &str) -> Running {
    Running::start(&["--url", url, "--label", label, "--ttl", "5s", "job"], HOLD)
}

/// One claim after another, each seen before the next begins.
fn what_happens_is_printed_as_it_happens(url: &str, released: &str) {
    let mut before = Running::start(&["--url", url, "earlier"], HOLD);
    assert_eq!(before.line(), "held");
    let (mut watching, locks) = Watching::start(url, &[]);
    assert_eq!(locks, 1, "what is held when it begins is counted, and did not happen now");
    let mut first = hold(url, "one");
    let granted = watching.expect("granted", "one");
    assert!(granted["name"] == "job" && granted["token"].is_string(), "{granted}");
    assert_eq!(first.line(), "held");
    let mut second = hold(url, "two");
    watching.expect("queued", "two");
    first.say("");
    assert_eq!(first.end().0, Some(0));
    let ended = watching.expect(released, "one");
    assert!(ended["held_ms"].is_u64(), "{ended}");
    let granted = watching.expect("granted", "two");
    assert!(granted["waited_ms"].is_u64(), "{granted}");
    assert_eq!(second.line(), "held");
    // Nobody renews it any more, and nobody waits.
    second.signal(Signal::STOP);
    let expired = watching.expect("expired", "two");
    assert!(expired["held_ms"].is_u64(), "{expired}");
    second.signal(Signal::KILL);
    watching.0.signal(Signal::INT);
    let (code, rest, complaints) = watching.0.end();
    assert_eq!((code, &*rest, &*complaints), (Some(0), "", ""));
    drop(before);
}

#[test]
fn what_happens_is_printed_as_it_happens_on_files() {
    what_happens_is_printed_as_it_happens(&Store::new().url(), "gone");
}

#[test]
fn what_happens_is_printed_as_it_happens_on_redis() {
    let server = Redis::new().start().expect("a server");
    what_happens_is_printed_as_it_happens(server.url(), "released");
}

#[test]
fn what_happens_is_printed_as_it_happens_on_etcd() {
    let server = Etcd::new().start().expect("a server");
    what_happens_is_printed_as_it_happens(server.url(), "released");
}

/// An eviction of one program's lock by a second one, as a third one prints it.
fn an_eviction_is_printed_with_its_reason(url: &str) {
    let (mut watching, _) = Watching::start(url, &[]);
    let mut holder = hold(url, "one");
    watching.expect("granted", "one");
    assert_eq!(holder.line(), "held");
    let broken = output(&["break", "job", "--reason", "it hangs", "--url", url]);
    assert!(broken.status.success(), "{}", stderr(&broken));
    let evicted = watching.expect("evicted", "one");
    assert!(
        evicted["reason"].as_str().is_some_and(|reason| reason.starts_with("it hangs; by ")),
        "{evicted}"
    );
    holder.signal(Signal::KILL);
}

#[test]
fn an_eviction_is_printed_with_its_reason_on_redis() {
    let server = Redis::new().start().expect("a server");
    an_eviction_is_printed_with_its_reason(server.url());
}

#[test]
fn an_eviction_is_printed_with_its_reason_on_redis_without_scripts() {
    let server = Redis::new().start().expect("a server");
    an_eviction_is_printed_with_its_reason(&format!("{}?scripting=off", server.url()));
}

#[test]
fn an_eviction_is_printed_with_its_reason_on_etcd() {
    let server = Etcd::new().start().expect("a server");
    an_eviction_is_printed_with_its_reason(server.url());
}

#[test]
fn an_eviction_is_printed_with_its_reason_on_zookeeper() {
    let server = Zookeeper::new().start().expect("a server");
    // The first claim of all gets its token a moment after its place.
    assert!(output(&["run", "--url", server.url(), "first", "--", "true"]).status.success());
    an_eviction_is_printed_with_its_reason(server.url());
}

#[test]
fn a_store_that_does_not_answer_is_an_event_and_its_return_as_well() {
    let server = Redis::new().append_only().start().expect("a server");
    let (mut watching, _) = Watching::start(server.url(), &[]);
    server.kill().expect("it is killed");
    let lost = watching.next();
    assert!(lost["event"] == "sight_lost" && lost["reason"].is_string(), "{lost}");
    server.restart().expect("it comes back");
    assert_eq!(watching.next()["event"], "sight_regained");
    let mut holder = hold(server.url(), "one");
    watching.expect("granted", "one");
    assert_eq!(holder.line(), "held");
}

#[test]
fn only_names_that_begin_so_are_printed_and_text_has_no_control_characters() {
    let store = Store::new();
    let mut watching =
        Running::of(tidelock(["events", "--url", &store.url(), "orders/", "job", "--interval", "100ms"]));
    assert!(watching.line().ends_with("watching        0 locks in use"));
    let mut other = store.run(&["other"], HOLD);
    assert_eq!(other.line(), "held");
    let mut wanted = store.run(&["orders/\u{202e}1", "--label", "worker-7"], HOLD);
    assert_eq!(wanted.line(), "held");
    let line = watching.line();
    let (time, rest) = line.split_once("  ").expect("columns");
    assert!(time.len() == "2026-01-01T00:00:00.000Z".len() && time.ends_with('Z'), "{line}");
    assert!(rest.starts_with("granted         orders/\\u{202e}1  worker-7  token "), "{line}");
    watching.signal(Signal::TERM);
    assert_eq!(watching.end().0, Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_it_though_nothing_happens() {
    let store = Store::new();
    let script =
        format!("{} events --url {} | head -n 1 > /dev/null", env!("CARGO_BIN_EXE_tidelock"), store.url());
    let mut shell = std::process::Command::new("sh").args(["-c", &script]).spawn().expect("a shell");
    let id = shell.id();
    until("the pipeline ends", || !runs(id));
    assert!(shell.wait().expect("it ends").success());
}

#[test]
fn a_store_that_cannot_be_reached_is_an_error() {
    let failed = output(&["events", "--url", "redis://127.0.0.1:1"]);
    assert_eq!(failed.status.code(), Some(125), "{}", stderr(&failed));
}
