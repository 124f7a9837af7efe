//! `tidelock run --once-per`: jobs that several machines start at the same time.

#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod common;

use std::{path::Path, process::Output};

use common::{Running, Store, runs, stderr, stdout, until};
use rustix::process::Signal;

/// Starts a job for a slot that lasts longer than any test, and waits for its end.
fn once(store: &Store, args: &[&str], script: &str) -> Output {
    store.output(&[&["run", "job", "--once-per", "366d"], args, &["--", "sh", "-c", script]].concat())
}

/// Starts a job that prints its process id and runs until a line is said to it.
fn begun(store: &Store, args: &[&str]) -> Running {
    let script = "echo $$; read line; exit ${line:-0}";
    let args =
        [&["run", "job", "--once-per", "366d", "--ttl", "5s"], args, &["--", "sh", "-c", script]].concat();
    Running::of(store.tidelock(&args))
}

#[test]
fn a_job_runs_once_per_slot_and_others_say_who_ran_it_and_when() {
    let store = Store::new();
    let ran = once(&store, &["--label", "worker-7"], "echo ran in $TIDELOCK_SLOT with $TIDELOCK_TOKEN");
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert!(stdout(&ran).starts_with("ran in 20"), "{}", stdout(&ran));
    let skipped = once(&store, &[], "echo twice");
    assert_eq!((skipped.status.code(), stdout(&skipped).as_str()), (Some(0), ""));
    let said = stderr(&skipped);
    assert!(said.starts_with("tidelock: skipped: ") && said.contains("done by worker-7 at 20"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(once(&store, &["--busy-code", "75"], "echo twice").status.code(), Some(75));
    let quiet = once(&store, &["-q"], "echo twice");
    assert_eq!((quiet.status.code(), stderr(&quiet).as_str()), (Some(0), ""));
}

#[test]
fn a_job_that_runs_is_not_started_again() {
    let store = Store::new();
    let mut first = begun(&store, &["--label", "worker-7"]);
    first.line();
    // For another slot, too: it takes longer than its period.
    for period in ["366d", "1s"] {
        let args = ["run", "job", "--once-per", period, "--", "echo", "twice"];
        let skipped = store.output(&args);
        assert_eq!((skipped.status.code(), stdout(&skipped).as_str()), (Some(0), ""));
        assert!(stderr(&skipped).contains("is run by worker-7 since 20"), "{}", stderr(&skipped));
    }
    first.say("0");
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn a_job_that_fails_keeps_its_slot_unless_it_is_to_be_retried() {
    let store = Store::new();
    assert_eq!(once(&store, &["--retry-failed"], "exit 3").status.code(), Some(3));
    assert_eq!(once(&store, &[], "exit 4").status.code(), Some(4), "the slot was free");
    let skipped = once(&store, &["--retry-failed"], "echo twice");
    assert_eq!((skipped.status.code(), stdout(&skipped).as_str()), (Some(0), ""));
    assert!(stderr(&skipped).contains("and failed"), "{}", stderr(&skipped));
}

#[test]
fn a_runner_that_is_killed_frees_its_slot() {
    let store = Store::new();
    let mut first = begun(&store, &[]);
    let command: u32 = first.line().parse().unwrap();
    first.signal(Signal::KILL);
    until("the command is gone", || !runs(command));
    until("the slot is free", || {
        let second = once(&store, &[], "echo ran");
        stdout(&second) == "ran\n"
    });
}

#[test]
fn a_slot_that_the_scheduler_gives_is_the_one_that_counts() {
    let store = Store::new();
    let day = stdout(&once(&store, &[], "echo $TIDELOCK_SLOT"));
    let slot = day.trim_end();
    // The same beginning, with another length: the same slot.
    let args = |name: &'static str, slot: &str| {
        ["run", name, "--once-per", "366d", "--slot", slot, "--", "sh", "-c", "echo $TIDELOCK_SLOT"]
            .map(ToOwned::to_owned)
    };
    let run = |args: [String; 10]| store.output(&args.each_ref().map(String::as_str));
    assert_eq!(stdout(&run(args("job", slot))), "");
    assert_eq!(stdout(&run(args("other", slot))), day);
    assert_eq!(stdout(&run(args("third", slot.trim_end_matches(":00Z")))), day);
}

#[test]
fn slots_that_are_done_are_listed_on_their_own() {
    let store = Store::new();
    once(&store, &["--label", "worker-7"], "true");
    let listed = stdout(&store.output(&["ls", "--done"]));
    let row = listed.lines().nth(1).unwrap_or_default();
    assert!(row.starts_with("job ") && row.contains("worker-7") && row.contains(" ok "), "{listed}");
    assert_eq!(stdout(&store.output(&["ls"])).lines().count(), 1, "it is no lock");
    let broken = store.output(&["break", "--prefix", "job", "--reason", "all", "--yes"]);
    assert_eq!(broken.status.code(), Some(1), "and is not broken with locks");
    assert_eq!(stdout(&store.output(&["ls", "--done"])).lines().count(), 2);
}

#[test]
fn twenty_processes_run_a_slot_until_it_succeeds_and_never_again() {
    let store = Store::new();
    let folder = tempfile::tempdir().unwrap();
    for job in ["one", "two", "three"] {
        let file = folder.path().join(job);
        // The first two runs fail.
        let script = format!("echo $$ >> {0}; [ $(wc -l < {0}) -gt 2 ]", file.display());
        let args = ["run", job, "--once-per", "366d", "--retry-failed", "-q", "--", "sh", "-c", &script];
        let mut started: Vec<_> = (0..20).map(|_| store.tidelock(&args).spawn().unwrap()).collect();
        for process in &mut started {
            process.wait().unwrap();
        }
        // Who came while another ran was told so; who comes later runs what failed.
        until("it is done", || store.output(&args).status.success() && lines(&file) >= 3);
        assert!(store.output(&args).status.success());
        assert_eq!(lines(&file), 3, "two failures, and then it was done once");
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn bad_input_is_one_sentence_and_125_and_nothing_is_held() {
    let store = Store::new();
    let cases: [(&[&str], &str); 17] = [
        (&["--once-per", "0"], "--once-per"),
        (&["--once-per", "soon"], "--once-per"),
        (&["--once-per", "1.5s"], "--once-per"),
        (&["--once-per", "400d"], "--once-per"),
        (&["--once-per", "-5m"], "--once-per"),
        (&["--once-per", "1h", "--slot", "now"], "2026-11-16T10:15"),
        (&["--once-per", "1h", "--slot", "2020-01-01T00:00"], "give a later one"),
        (&["--once-per", "1h", "--slot", "2199-01-01T00:00"], "has not begun"),
        (&["--once-per", "1h", "--slot", ""], "2026-11-16T10:15"),
        (&["--slot", "2026-01-01"], "--once-per"),
        (&["--retry-failed"], "--once-per"),
        (&["--once-per", "1h", "--shared"], "cannot be used"),
        (&["--once-per", "1h", "--write"], "cannot be used"),
        (&["--once-per", "1h", "--permits", "1/2"], "cannot be used"),
        (&["--once-per", "1h", "--owner", "me"], "cannot be used"),
        (&["--once-per", "1h", "--lock", "other"], "cannot be used"),
        (&["--once-per", "1h", "--hold-at-least", "5s"], "cannot be used"),
    ];
    for (args, says) in cases {
        let output = store.output(&[&["run", "job"], args, &["--", "echo", "ran"]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {text}");
        assert!(text.starts_with("tidelock: ") && text.contains(says), "{args:?}: {text}");
        assert_eq!((text.lines().count(), stdout(&output).as_str()), (1, ""), "{args:?}: {text}");
    }
    assert_eq!(store.holders("job"), 0);
}
