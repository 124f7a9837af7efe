//! `tidelock elect` and `tidelock leader`, with several processes and the faults that happen to them.

#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod common;

use std::process::Command;

use common::{Running, Store, runs, stderr, stdout, until};
use rustix::process::Signal;

/// A candidate whose command prints its term and its process id, and ends when a line is said to it.
fn candidate(store: &Store, label: &str, args: &[&str]) -> Running {
    let script = "echo \"$TIDELOCK_TOKEN $$\"; read line; exit ${line:-0}";
    let args =
        [&["elect", "boss", "--ttl", "5s", "--label", label], args, &["--", "sh", "-c", script]].concat();
    Running::of(store.tidelock(&args))
}

/// The term that a candidate's command prints, and its process id. Waits until it leads.
fn term(candidate: &mut Running) -> (u64, u32) {
    let line = candidate.line();
    let (token, pid) = line.split_once(' ').unwrap_or_else(|| panic!("no term: {line:?}"));
    (token.parse().unwrap(), pid.parse().unwrap())
}

fn leader(store: &Store, args: &[&str]) -> (Option<i32>, String) {
    let output = store.output(&[&["leader", "boss"], args].concat());
    (output.status.code(), stdout(&output).trim_end().to_owned())
}

#[test]
fn the_command_runs_on_the_leader_only_and_the_next_one_takes_over_when_it_ends() {
    let store = Store::new();
    let mut first = candidate(&store, "first", &["--once"]);
    let (one, _) = term(&mut first);
    let mut second = candidate(&store, "second", &["--once"]);
    until("the second waits", || store.waiters("boss") == 1);
    first.say("7");
    assert_eq!(first.end().0, Some(7), "with --once, the command's code");
    let (two, _) = term(&mut second);
    assert!(two > one);
    second.say("0");
    assert_eq!(second.end().0, Some(0));
    assert_eq!(leader(&store, &[]), (Some(1), "nobody leads \"boss\"".to_owned()));
}

#[test]
fn a_leader_that_is_killed_is_replaced_and_its_command_is_gone() {
    let store = Store::new();
    let mut first = candidate(&store, "first", &[]);
    let (one, command) = term(&mut first);
    let mut second = candidate(&store, "second", &[]);
    until("the second waits", || store.waiters("boss") == 1);
    first.signal(Signal::KILL);
    let (two, _) = term(&mut second);
    assert!(two > one);
    until("the command of the first is gone", || !runs(command));
    second.signal(Signal::TERM);
    // Before its input ends, which would end the command, too.
    until("the second has ended", || !runs(second.id()));
    let (code, _, said) = second.end();
    assert_eq!(code, Some(143), "{said}");
}

#[test]
fn a_leader_that_stood_still_past_its_ttl_ends_its_command_and_is_a_candidate_again() {
    let store = Store::new();
    let mut first = candidate(&store, "first", &[]);
    let (one, command) = term(&mut first);
    let mut second = candidate(&store, "second", &[]);
    until("the second waits", || store.waiters("boss") == 1);
    first.signal(Signal::STOP);
    // Its command runs on, as nobody can tell it.
    let (two, _) = term(&mut second);
    assert!(two > one);
    first.signal(Signal::CONT);
    until("the command of the first is gone", || !runs(command));
    until("the first waits again", || store.waiters("boss") == 1);
    second.say("0");
    let (three, _) = term(&mut first);
    assert!(three > two, "the lead goes to the next candidate, not back");
}

#[test]
fn a_leader_that_is_evicted_stops_its_command_first() {
    let store = Store::new();
    let mut first = candidate(&store, "first", &["--once", "--kill-after", "1s"]);
    let (_, command) = term(&mut first);
    assert!(store.output(&["break", "boss", "--reason", "by hand"]).status.success());
    let (code, _, said) = first.end();
    assert_eq!(code, Some(123), "{said}");
    assert!(said.contains("by hand") && !runs(command), "{said}");
}

#[test]
fn a_signal_reaches_the_command_and_ends_the_candidacy() {
    let store = Store::new();
    let script = "trap 'echo told; exit 0' TERM; echo \"$TIDELOCK_TOKEN $$\"; while :; do sleep 0.05; done";
    let mut first = Running::of(store.tidelock(&["elect", "boss", "--", "sh", "-c", script]));
    term(&mut first);
    let second = candidate(&store, "second", &[]);
    until("the second waits", || store.waiters("boss") == 1);
    second.signal(Signal::TERM);
    assert_eq!(second.end().0, Some(143), "a candidate that never led");
    assert_eq!(store.waiters("boss"), 0, "and left the queue");
    first.signal(Signal::TERM);
    assert_eq!(first.line(), "told");
    assert_eq!(first.end().0, Some(0));
    assert_eq!(store.holders("boss"), 0);
}

#[test]
fn restart_says_when_to_be_a_candidate_again() {
    let store = Store::new();
    for (when, says, code) in [("never", "3", 3), ("on-failure", "0", 0)] {
        let mut one = candidate(&store, "one", &["--restart", when]);
        term(&mut one);
        one.say(says);
        assert_eq!(one.end().0, Some(code), "{when}");
    }
    for (when, says) in [("on-failure", "3"), ("always", "0")] {
        let mut one = candidate(&store, "one", &["--restart", when]);
        let (first, _) = term(&mut one);
        one.say(says);
        let (second, _) = term(&mut one);
        assert!(second > first, "{when}");
        one.say("");
    }
}

#[test]
fn the_leader_is_shown_with_what_it_advertises() {
    let store = Store::new();
    let mut first = candidate(&store, "first", &["--advertise", "http://10.0.0.7:8080/é"]);
    let (token, _) = term(&mut first);
    let (code, text) = leader(&store, &[]);
    assert_eq!(code, Some(0));
    for part in ["first leads \"boss\"", &token.to_string(), "advertises http://10.0.0.7:8080/é"] {
        assert!(text.contains(part), "{text}");
    }
    let token = token.to_string();
    for (field, value) in [("advertised", "http://10.0.0.7:8080/é"), ("label", "first"), ("token", &token)] {
        assert_eq!(leader(&store, &["--field", field]), (Some(0), value.to_owned()));
    }
    let (_, text) = leader(&store, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["name"], "boss");
    assert_eq!(json["leader"]["advertised"], "http://10.0.0.7:8080/é");
    assert_eq!(json["leader"]["token"], token);
    assert_eq!(leader(&store, &["--is-me", "first"]), (Some(0), String::new()));
    assert_eq!(leader(&store, &["--is-me", "second"]), (Some(1), String::new()));
    let shown = stdout(&store.output(&["show", "boss"]));
    assert!(shown.contains("first advertises http://10.0.0.7:8080/é"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_slice(&store.output(&["show", "boss", "--json"]).stdout).unwrap();
    assert_eq!(json["holders"][0]["advertised"], "http://10.0.0.7:8080/é");
}

#[test]
fn watching_prints_a_line_for_each_change() {
    let store = Store::new();
    let mut watch = Running::of(store.tidelock(&["leader", "boss", "--watch"]));
    assert_eq!(watch.line(), "nobody leads \"boss\"");
    let mut values = Running::of(store.tidelock(&["leader", "boss", "--watch", "--field", "advertised"]));
    assert_eq!(values.line(), "");
    let mut first = candidate(&store, "first", &["--once", "--advertise", "here"]);
    term(&mut first);
    let line = watch.line();
    assert!(line.starts_with("first leads \"boss\"") && line.ends_with("advertises here"), "{line}");
    assert_eq!(values.line(), "here");
    first.say("0");
    assert_eq!(watch.line(), "nobody leads \"boss\"");
    assert_eq!(values.line(), "");
}

#[test]
fn bad_input_is_one_sentence_and_125_and_nothing_is_held() {
    let store = Store::new();
    let long = "x".repeat(1_025);
    let cases: [(&[&str], &str); 19] = [
        (&["elect", "boss", "--advertise", "", "--", "true"], "empty"),
        (&["elect", "boss", "--advertise", &long, "--", "true"], "1025 bytes"),
        (&["elect", "boss", "--advertise", "a\u{1f}b", "--", "true"], "control character"),
        (&["elect", "boss", "--label", "", "--", "true"], "empty"),
        (&["elect", "", "--", "true"], "empty"),
        (&["elect", "boss", "--ttl", "0", "--", "true"], "too short"),
        (&["elect", "boss", "--ttl", "2d", "--", "true"], "too long"),
        (&["elect", "boss", "--restart", "sometimes", "--", "true"], "on-failure"),
        (&["elect", "boss", "--once", "--restart", "always", "--", "true"], "cannot be used"),
        (&["elect", "boss"], "<CMD>"),
        (&["elect", "--", "true"], "<NAME>"),
        (&["leader"], "<NAME>"),
        (&["leader", ""], "empty"),
        (&["leader", "boss", "--is-me", ""], "--is-me"),
        (&["leader", "boss", "--is-me", "x", "--watch"], "cannot be used"),
        (&["leader", "boss", "--is-me", "x", "--json"], "cannot be used"),
        (&["leader", "boss", "--is-me", "x", "--field", "label"], "cannot be used"),
        (&["leader", "boss", "--json", "--field", "label"], "cannot be used"),
        (&["leader", "boss", "--field", "address"], "advertised"),
    ];
    for (args, says) in cases {
        let output = Command::output(&mut store.tidelock(args)).unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {text}");
        assert!(text.starts_with("tidelock: ") && text.contains(says), "{args:?}: {text}");
        assert_eq!((text.lines().count(), output.stdout.len()), (1, 0), "{args:?}: {text}");
    }
    assert_eq!(store.holders("boss"), 0);
}
