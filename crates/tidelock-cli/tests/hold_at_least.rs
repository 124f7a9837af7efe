//! `tidelock run --hold-at-least`: short commands that keep others out for a while.

#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::time::{Duration, Instant};

use common::{Running, Store, runs, stderr, stdout, until};
use rustix::process::Signal;

/// Starts a command that prints its process id and ends with 3 when a line is said to it.
fn begun(store: &Store, at_least: &str) -> Running {
    store.run(&["job", "--hold-at-least", at_least], "echo $$; read line; exit 3")
}

/// Whether the lock is free now.
fn is_free(store: &Store) -> bool {
    stdout(&store.output(&["run", "job", "-n", "-q", "--", "echo", "free"])) == "free\n"
}

#[test]
fn a_command_that_ends_early_keeps_others_out_for_the_time_and_its_code_counts() {
    let store = Store::new();
    let began = Instant::now();
    let first = store.output(&["run", "job", "--hold-at-least", "2s", "--", "sh", "-c", "exit 3"]);
    // Free at once: nobody waits for a ttl of 30 s.
    assert!(is_free(&store));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!((first.status.code(), stderr(&first).as_str()), (Some(3), ""));
}

#[test]
fn a_command_that_takes_longer_is_not_kept() {
    let store = Store::new();
    let mut running = begun(&store, "1ms");
    running.line();
    running.say("");
    assert_eq!(running.end().0, Some(3));
    assert!(is_free(&store));
}

#[test]
fn a_signal_after_the_command_ends_the_wait_and_leaves_the_lock_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let store = Store::new();
        let mut running = begun(&store, "10m");
        let command: u32 = running.line().parse().unwrap();
        running.say("");
        until("the command has ended", || !runs(command));
        assert_eq!(store.holders("job"), 1);
        running.signal(signal);
        assert_eq!(running.end(), (Some(3), String::new(), String::new()));
        assert!(!is_free(&store), "nobody else runs it for ten minutes");
        let broken = store.output(&["break", "job", "--reason", "it is needed now"]);
        assert_eq!(broken.status.code(), Some(0), "{}", stderr(&broken));
        assert!(is_free(&store));
    }
}

#[test]
fn ctrl_c_while_the_command_runs_ends_it_and_leaves_the_lock_behind() {
    let store = Store::new();
    let mut running = begun(&store, "10m");
    let command: u32 = running.line().parse().unwrap();
    running.signal(Signal::INT);
    // Its input ends later, which would end it as well.
    until("the command has ended", || !runs(command));
    assert_eq!(running.end().0, Some(130));
    assert!(!is_free(&store));
}

#[test]
fn a_process_that_is_killed_keeps_others_out_by_its_lease() {
    let store = Store::new();
    let args = ["job", "--hold-at-least", "4s", "--ttl", "2s"];
    let mut running = store.run(&args, "echo $$; read line; exit 3");
    let began = Instant::now();
    let command: u32 = running.line().parse().unwrap();
    running.say("");
    until("the command has ended", || !runs(command));
    running.signal(Signal::KILL);
    running.end();
    // Without the flag, the store notices the death at once.
    assert!(!is_free(&store));
    let waited = store.output(&["run", "job", "--", "echo", "free"]);
    assert_eq!(stdout(&waited), "free\n");
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn others_get_the_lock_when_it_is_lost_and_the_code_of_the_command_stays() {
    let store = Store::new();
    let mut running = begun(&store, "10m");
    let command: u32 = running.line().parse().unwrap();
    running.say("");
    until("the command has ended", || !runs(command));
    let broken = store.output(&["break", "job", "--reason", "it is needed now"]);
    assert_eq!(broken.status.code(), Some(0), "{}", stderr(&broken));
    assert!(is_free(&store));
    let (code, _, complaints) = running.end();
    assert_eq!(code, Some(3), "{complaints}");
    assert!(complaints.contains("it is needed now") && complaints.contains("had ended"), "{complaints}");
}

#[test]
fn contradictory_flags_are_refused_in_one_sentence() {
    let store = Store::new();
    for (args, says) in [
        (&["--hold-at-least", "soon"][..], "250ms"),
        (&["--hold-at-least", "-1s"], "not negative"),
        (&["--hold-at-least", "2d"], "too long"),
        (&["--hold-at-least", "1s", "--owner", "me"], "cannot be used"),
        (&["--hold-at-least", "1s", "--once-per", "1d"], "cannot be used"),
    ] {
        let output = store.output(&[&["run", "job"], args, &["--", "true"]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {text}");
        assert!(text.starts_with("tidelock: ") && text.contains(says), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    assert_eq!(store.holders("job"), 0);
}
