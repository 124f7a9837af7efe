//! `tidelock break` of locks that are found by their age or the start of their names.

mod common;

use std::time::Duration;

use common::{Store, stderr, stdout, until};

/// Leaves locks held.
#[track_caller]
fn acquire(store: &Store, names: &[&str]) {
    for name in names {
        let output = store.output(&["acquire", name, "--label", "ci", "--ttl", "10m"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

fn held<const N: usize>(store: &Store, names: [&str; N]) -> [bool; N] {
    names.map(|name| store.holders(name) == 1)
}

#[test]
fn nothing_is_broken_without_a_yes() {
    let store = Store::new();
    acquire(&store, &["deploy/b", "deploy/a", "report"]);
    let listed = store.output(&["break", "--prefix", "deploy/", "--reason", "CI is gone"]);
    assert_eq!(listed.status.code(), Some(1));
    let text = stdout(&listed);
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["NAME", "deploy/a", "deploy/b"], "{text}");
    assert_eq!(stderr(&listed), "tidelock: nothing was broken: add --yes to break these 2 locks\n");
    assert_eq!(held(&store, ["deploy/a", "deploy/b", "report"]), [true; 3]);
}

#[test]
fn locks_are_broken_by_the_start_of_their_names() {
    let store = Store::new();
    acquire(&store, &["deploy/a", "deploy/b", "deploy", "report"]);
    let broken = store.output(&["break", "--prefix", "deploy/", "--reason", "CI is gone", "--yes"]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    let text = stdout(&broken);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("evicted ci from lock \"deploy/a\" on file "), "{text}");
    assert!(lines.iter().all(|line| line.ends_with(": CI is gone")), "{text}");
    assert_eq!(held(&store, ["deploy/a", "deploy/b", "deploy", "report"]), [false, false, true, true]);
    let none = store.output(&["break", "--prefix", "deploy/", "--reason", "CI is gone", "--yes"]);
    let says = "nobody holds a lock whose name starts with \"deploy/\" on file: there is nothing to break";
    assert_eq!((none.status.code(), stderr(&none)), (Some(1), format!("tidelock: {says}\n")));
}

#[test]
fn only_holders_that_are_old_enough_are_evicted() {
    let store = Store::new();
    acquire(&store, &["old", "old/too"]);
    let age = |name: &str| {
        let lock = common::json(&["show", name, "--json", "--url", &store.url()]);
        Duration::from_millis(lock["holders"][0]["age_ms"].as_u64().expect("an age"))
    };
    until("they are old enough", || age("old/too") > Duration::from_secs(2));
    acquire(&store, &["new"]);
    for args in [&["--older-than", "1h"][..], &["new", "--older-than", "1h"]] {
        let none = store.output(&[&["break", "--yes", "--reason", "x"], args].concat());
        assert_eq!((none.status.code(), stdout(&none).as_str()), (Some(1), ""), "{args:?}");
        assert!(stderr(&none).contains("for 1h00m or longer: there is nothing"), "{}", stderr(&none));
    }
    let broken = store.output(&["break", "old", "--older-than", "1s", "--reason", "x"]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    assert_eq!(held(&store, ["old", "old/too", "new"]), [false, true, true]);
    let broken = store.output(&["break", "--older-than", "1s", "--prefix", "old", "--yes", "--reason", "x"]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    assert_eq!(held(&store, ["old", "old/too", "new"]), [false, false, true]);
}

#[test]
fn a_lock_whose_name_begins_with_a_dash_is_broken_too() {
    let store = Store::new();
    assert!(store.output(&["acquire", "--name", "--yes"]).status.success());
    assert_eq!(store.output(&["show", "--name", "--yes"]).status.code(), Some(0));
    let broken = store.output(&["break", "--name", "--yes", "--reason", "x"]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    assert_eq!(store.output(&["show", "--name", "--yes"]).status.code(), Some(1));
}
