//! Locks that stay held between processes: acquired by one, renewed and given back by others.

mod common;

use std::{
    io::{ErrorKind, PipeWriter, Write},
    process::{Command, Output, Stdio},
};

use common::{Running, Store, json, stderr, stdout, tidelock, until};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::Signal,
};

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo $TIDELOCK_TOKEN; read line";

/// Takes a lock in a process that ends: its ticket.
#[track_caller]
fn acquire(store: &Store, args: &[&str]) -> String {
    let output = store.output(&[&["acquire"], args].concat());
    let (text, complaints) = (stdout(&output), stderr(&output));
    assert_eq!((output.status.code(), complaints.as_str()), (Some(0), ""));
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_owned()
}

/// The code of a verb with a ticket.
fn code(store: &Store, verb: &str, ticket: &str) -> Option<i32> {
    store.output(&[verb, ticket]).status.code()
}

/// Whether somebody else gets the lock without waiting.
fn is_free(store: &Store, args: &[&str]) -> bool {
    let args = [&["run", "job", "--wait", "0"], args, &["--", "true"]].concat();
    let output = store.output(&args);
    match output.status.code() {
        Some(0) => true,
        Some(124) => false,
        code => panic!("{code:?}: {}", stderr(&output)),
    }
}

#[track_caller]
fn is_one_sentence(output: &Output, code: i32, says: &str) {
    let text = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(code), ""), "{text}");
    assert!(text.starts_with("tidelock: ") && text.contains(says), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_lock_stays_held_after_the_process_that_acquired_it_and_is_given_back_by_another() {
    let store = Store::new();
    let ticket = acquire(&store, &["job"]);
    assert!(!is_free(&store, &[]));
    let mut waits = store.run(&["job"], HOLD);
    until("somebody waits", || store.waiters("job") == 1);
    let released = store.output(&["release", &ticket]);
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
    assert_eq!(stdout(&released), "gave back lock \"job\" on file\n");
    assert_ne!(waits.line(), "");
    // A ticket that was used does not give back what somebody else holds.
    assert_eq!(code(&store, "release", &ticket), Some(123));
    assert_eq!(store.holders("job"), 1);
    waits.say("end");
    assert_eq!(waits.end().0, Some(0));
}

#[test]
fn renewing_keeps_a_lock_beyond_its_ttl() {
    let store = Store::new();
    let ttl = ["--ttl", "3s"];
    let kept = acquire(&store, &["job", ttl[0], ttl[1]]);
    // Acquired later and not renewed, so that its end is after that of the first one's ttl.
    let witness = acquire(&store, &["witness", ttl[0], ttl[1]]);
    until("the one that nobody renews has lapsed", || {
        let renewed = store.output(&["renew", &kept]);
        assert_eq!(stdout(&renewed), "renewed lock \"job\" on file for 3s\n", "{}", stderr(&renewed));
        store.output(&["run", "witness", "--wait", "0", "--", "true"]).status.success()
    });
    assert_eq!(code(&store, "renew", &witness), Some(123));
    assert_eq!(code(&store, "release", &kept), Some(0));
    assert!(is_free(&store, &[]));
}

#[test]
fn a_ticket_has_all_of_its_ttl_though_it_was_waited_for() {
    let store = Store::new();
    let held = acquire(&store, &["job"]);
    let mut waits = Running::of(store.tidelock(&["acquire", "job", "--ttl", "2s"]));
    until("some of the lease with which it waits is over", || {
        let lock = json(&["show", "job", "--json", "--url", &store.url()]);
        lock["waiters"][0]["expires_in_ms"].as_u64().is_some_and(|left| left < 1_700)
    });
    // After the wait began and before it ended, so that it lapses before the one that waited.
    acquire(&store, &["witness", "--ttl", "2s"]);
    assert_eq!(code(&store, "release", &held), Some(0));
    assert!(waits.line().starts_with("tl1."));
    until("it has lapsed", || is_free(&store, &[]));
    let witness = store.output(&["run", "witness", "--wait", "0", "--", "true"]);
    assert!(witness.status.success(), "what was taken before is held for longer");
}

#[test]
fn a_ticket_that_has_lapsed_says_so() {
    let store = Store::new();
    let ticket = acquire(&store, &["job", "--ttl", "500ms"]);
    // Gets it by the lease alone.
    assert_eq!(store.output(&["run", "job", "--", "true"]).status.code(), Some(0));
    for verb in ["renew", "release"] {
        let output = store.output(&[verb, &ticket]);
        is_one_sentence(&output, 123, "this ticket does not hold lock \"job\" on file: it lapsed");
    }
}

#[test]
fn a_ticket_that_was_broken_is_void() {
    let store = Store::new();
    let ticket = acquire(&store, &["job", "--label", "nightly"]);
    let broken = store.output(&["break", "job", "--reason", "forgotten"]);
    assert!(stdout(&broken).starts_with("evicted nightly from lock \"job\""), "{}", stdout(&broken));
    assert_eq!(code(&store, "renew", &ticket), Some(123));
    assert_eq!(code(&store, "release", &ticket), Some(123));
    assert!(is_free(&store, &[]));
}

#[test]
fn a_ticket_is_read_from_standard_input_before_that_is_closed() {
    let store = Store::new();
    let ticket = acquire(&store, &["job"]);
    for (verb, says) in [("renew", "renewed lock"), ("release", "gave back lock")] {
        let mut running = Running::of(store.tidelock(&[verb, "-"]));
        running.say(&ticket);
        assert!(running.line().starts_with(says));
        assert_eq!(running.end().0, Some(0));
    }
    assert!(is_free(&store, &[]));
}

#[test]
fn programs_are_told_all_about_a_ticket() {
    let store = Store::new();
    let url = store.url();
    let acquired = json(&["acquire", "a \"job\"", "--ttl", "90s", "--json", "--url", &url]);
    let ticket = acquired["ticket"].as_str().expect("a ticket");
    assert_eq!((&acquired["name"], &acquired["store"]), (&"a \"job\"".into(), &"file".into()));
    assert_eq!(acquired["ttl_ms"], 90_000);
    assert!(acquired["token"].as_str().is_some_and(|token| token.parse::<u64>().is_ok()), "{acquired}");
    for verb in ["renew", "release"] {
        let told = json(&[verb, ticket, "--json", "--url", &url]);
        for key in ["name", "token", "ttl_ms", "store"] {
            assert_eq!(told[key], acquired[key], "{verb} {key}");
        }
        assert!(told.get("ticket").is_none(), "the one that asks has it already: {told}");
    }
}

#[test]
fn garbage_is_no_ticket() {
    let store = Store::new();
    let ticket = acquire(&store, &["job"]);
    let cut = &ticket[..ticket.len() / 2];
    let long = "tl1.".repeat(20_000);
    for garbage in ["", "x", "tl1", "tl1.....", "tl9.a.b.c.d.e", "🔒", cut, &long] {
        for verb in ["renew", "release"] {
            is_one_sentence(&store.output(&[verb, garbage]), 125, "this is no ticket");
        }
    }
    for garbage in [&b"\xff\xfe\n"[..], b"{\"ticket\": 1}", &[0; 100_000]] {
        let mut command = store.tidelock(&["release", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        // What is too long is not read to its end.
        let _ = child.stdin.take().expect("a pipe").write_all(garbage);
        is_one_sentence(&child.wait_with_output().expect("it ends"), 125, "this is no ticket");
    }
    assert_eq!(code(&store, "release", &ticket), Some(0));
}

#[test]
fn a_ticket_needs_its_store() {
    let store = Store::new();
    let ticket = acquire(&store, &["job"]);
    let on = |url: &str| tidelock(["release", &ticket, "--url", url]).output().expect("runs");
    is_one_sentence(&on("file:/dev/null/x"), 125, "/dev/null/x");
    is_one_sentence(&on("memory:"), 125, "use another store");
    is_one_sentence(&on(&Store::new().url()), 123, "of another store");
    assert_eq!(store.holders("job"), 1);
}

#[test]
fn acquire_waits_in_line_like_run() {
    let store = Store::new();
    let mut first = store.run(&["job", "--label", "worker-7"], HOLD);
    first.line();
    let taken = "lock \"job\" on file is taken; held by worker-7 for ";
    is_one_sentence(&store.output(&["acquire", "job", "--wait", "0"]), 124, taken);
    let late = "waiting for lock \"job\" on file; held by worker-7 for ";
    is_one_sentence(&store.output(&["acquire", "job", "--wait", "100ms"]), 124, late);
    assert_eq!(store.waiters("job"), 0);
    let mut second = Running::of(store.tidelock(&["acquire", "job"]));
    until("the second waits", || store.waiters("job") == 1);
    first.say("end");
    assert!(second.line().starts_with("tl1."));
    assert_eq!(second.end(), (Some(0), String::new(), String::new()));
    assert_eq!(store.holders("job"), 1);
}

#[test]
fn a_signal_ends_the_wait_of_acquire_and_leaves_the_line() {
    let store = Store::new();
    let ticket = acquire(&store, &["job"]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waits = Running::of(store.tidelock(&["acquire", "job"]));
        until("it waits", || store.waiters("job") == 1);
        waits.signal(signal);
        assert_eq!(waits.end(), (Some(code), String::new(), String::new()));
        until("the line is empty", || store.waiters("job") == 0);
    }
    assert_eq!(code(&store, "release", &ticket), Some(0));
}

#[test]
fn an_acquire_that_is_killed_while_it_waits_leaves_no_place() {
    let store = Store::new();
    let ticket = acquire(&store, &["job"]);
    let killed = Running::of(store.tidelock(&["acquire", "job", "--ttl", "1h"]));
    until("it waits", || store.waiters("job") == 1);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().0, None);
    let mut next = store.run(&["job"], HOLD);
    until("only the next one waits", || {
        let lock = json(&["show", "job", "--json", "--url", &store.url()]);
        let waiters = lock["waiters"].as_array().expect("a list");
        waiters.len() == 1 && waiters[0]["label"].as_str().is_some_and(|label| label.starts_with("sh "))
    });
    assert_eq!(code(&store, "release", &ticket), Some(0));
    assert_ne!(next.line(), "");
}

#[test]
fn a_ticket_that_cannot_be_printed_leaves_nothing_held() {
    let store = Store::new();
    let acquire = || store.tidelock(&["acquire", "job"]);
    let (reader, gone) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = acquire().stdout(gone).stderr(Stdio::piped()).output().expect("runs");
    is_one_sentence(&output, 125, "cannot print the ticket of lock \"job\", so the lock is given back");
    assert_eq!(store.holders("job"), 0);
    if cfg!(target_os = "linux") {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let output = acquire().stdout(full).stderr(Stdio::piped()).output().expect("runs");
        is_one_sentence(&output, 125, "so the lock is given back");
        assert_eq!(store.holders("job"), 0);
    }
    for output in [">&-", "1</dev/null"] {
        let script = format!("exec {} acquire job {output}", env!("CARGO_BIN_EXE_tidelock"));
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &script]).env("TIDELOCK_URL", store.url()).output().expect("runs");
        is_one_sentence(&output, 125, "standard output is closed");
        assert_eq!(store.holders("job"), 0);
    }
}

#[test]
fn a_ticket_that_is_thrown_away_holds_the_lock_until_its_ttl_is_over() {
    let store = Store::new();
    let thrown = store.tidelock(&["acquire", "job"]).stdout(Stdio::null()).status().expect("runs");
    assert!(thrown.success());
    assert_eq!(store.holders("job"), 1);
}

#[test]
fn a_signal_reaches_an_acquire_whose_ticket_nobody_reads() {
    let store = Store::new();
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    fill(&writer);
    let mut child = store.tidelock(&["acquire", "job"]).stdout(writer).spawn().expect("runs");
    until("it holds", || store.holders("job") == 1);
    common::kill(child.id(), Signal::TERM);
    assert_eq!(child.wait().expect("it ends").code(), Some(143));
    assert_eq!(store.holders("job"), 0);
}

/// Writes into a pipe until nothing more fits.
fn fill(mut pipe: &PipeWriter) {
    let flags = fcntl_getfl(pipe).expect("flags");
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("set");
    for size in [4096, 1] {
        let full = loop {
            if let Err(error) = pipe.write(&vec![b'x'; size]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
    }
    fcntl_setfl(pipe, flags).expect("set");
}

#[test]
fn readers_hold_together_by_their_tickets() {
    let store = Store::new();
    let tickets = [0, 1].map(|_| acquire(&store, &["job", "--shared"]));
    assert!(is_free(&store, &["--shared"]));
    for ticket in tickets {
        assert!(!is_free(&store, &[]));
        assert_eq!(code(&store, "renew", &ticket), Some(0));
        assert_eq!(code(&store, "release", &ticket), Some(0));
    }
    assert!(is_free(&store, &[]));
}

#[test]
fn permits_are_held_by_their_ticket() {
    let store = Store::new();
    let ticket = acquire(&store, &["job", "--permits", "3/5"]);
    assert!(is_free(&store, &["--permits", "2/5"]));
    assert!(!is_free(&store, &["--permits", "3/5"]));
    assert_eq!(code(&store, "renew", &ticket), Some(0));
    assert_eq!(code(&store, "release", &ticket), Some(0));
    assert!(is_free(&store, &["--permits", "5/5"]));
}

#[test]
fn tokens_grow_from_tickets_to_runs_and_back() {
    let store = Store::new();
    let url = store.url();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let acquired = json(&["acquire", "job", "--json", "--url", &url]);
        tokens.push(acquired["token"].as_str().expect("a token").parse::<u64>().expect("a number"));
        assert_eq!(code(&store, "release", acquired["ticket"].as_str().expect("a ticket")), Some(0));
        let mut run = store.run(&["job"], HOLD);
        tokens.push(run.line().parse().expect("a token"));
        assert_eq!(run.end().2, "");
    }
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

#[test]
fn show_names_the_program_that_acquired() {
    let store = Store::new();
    acquire(&store, &["job"]);
    let lock = json(&["show", "job", "--json", "--url", &store.url()]);
    let label = lock["holders"][0]["label"].as_str().expect("a label");
    assert!(label.starts_with("ticket of ") && label.contains(&std::process::id().to_string()), "{label}");
}

#[test]
fn a_run_whose_lock_is_broken_says_for_which_reason() {
    let store = Store::new();
    let mut running = store.run(&["job"], "echo up; while :; do sleep 0.01; done");
    assert_eq!(running.line(), "up");
    let reason = "hangs since noon, says \"ops\"";
    assert_eq!(store.output(&["break", "job", "--reason", reason]).status.code(), Some(0));
    let (code, _, complaints) = running.end();
    assert_eq!(code, Some(123));
    let says = format!("lost lock \"job\" on file: it was taken away by force ({reason}; by ");
    assert!(complaints.contains(&says), "{complaints}");
}

#[test]
fn a_reason_may_be_as_long_as_it_may_and_no_longer() {
    let store = Store::new();
    acquire(&store, &["job"]);
    let longest = "ü".repeat(64);
    let output = store.output(&["break", "job", "--reason", &format!("{longest}.")]);
    is_one_sentence(&output, 125, "the reason has 129 bytes, at most 128 are allowed");
    assert_eq!(store.holders("job"), 1);
    assert_eq!(store.output(&["break", "job", "--reason", &longest]).status.code(), Some(0));
}
