//! `tidelock run` on a real Redis server that is down for longer than leases last.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{
    process::Output,
    time::{Duration, Instant},
};

use common::{Running, json, output, stderr, stdout, until};
use test_servers::{Redis, Server};

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo $TIDELOCK_TOKEN; read line";
const TTL: [&str; 2] = ["--ttl", "1s"];

fn server() -> Server {
    Redis::new().durable().start().expect("a server")
}

fn run(server: &Server, args: &[&str]) -> Running {
    Running::start(&[&["job", "--url", server.url()], args].concat(), HOLD)
}

fn waiters(server: &Server) -> usize {
    let lock = json(&["show", "job", "--json", "--url", server.url()]);
    lock["waiters"].as_array().expect("a list").len()
}

/// Until all leases from before are over, and the tries of those who give up too early.
fn outlast_the_leases() {
    std::thread::sleep(Duration::from_secs(4));
}

#[track_caller]
fn is_one_sentence(output: &Output, code: i32, says: &str) {
    let text = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(code), ""), "{text}");
    assert!(text.starts_with("tidelock: ") && text.contains(says), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_waiter_gets_the_lock_after_the_server_was_dead_for_longer_than_its_ttl() {
    let server = server();
    let mut first = run(&server, &TTL);
    let token: u64 = first.line().parse().expect("a token");
    let mut second = run(&server, &TTL);
    until("the second waits", || waiters(&server) == 1);
    server.kill().expect("it can be killed");
    outlast_the_leases();
    assert_eq!(first.end().0, Some(123), "its lock is lost");
    server.restart().expect("it starts again");
    let next: u64 = second.line().parse().expect("a token");
    assert!(next > token, "{next} after {token}");
    second.say("end");
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_waiter_gets_the_lock_after_the_server_was_paused_for_longer_than_its_ttl() {
    let server = server();
    let mut first = run(&server, &TTL);
    first.line();
    let mut second = run(&server, &["--ttl", "1s", "--wait", "2m"]);
    until("the second waits", || waiters(&server) == 1);
    server.pause().expect("it can be paused");
    outlast_the_leases();
    assert_eq!(first.end().0, Some(123), "its lock is lost");
    server.resume().expect("it goes on");
    assert_ne!(second.line(), "");
    second.say("end");
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_run_that_starts_while_the_server_is_down_gets_through_when_it_starts() {
    let server = server();
    server.kill().expect("it can be killed");
    let (mut forever, mut patient) = (run(&server, &[]), run(&server, &["--wait", "2m"]));
    let mut ticket = Running::of(common::tidelock(["acquire", "other", "--url", server.url()]));
    outlast_the_leases();
    server.restart().expect("it starts again");
    forever.say("end");
    patient.say("end");
    assert!(ticket.line().starts_with("tl1."));
    for run in [forever, patient] {
        let (code, out, complaints) = run.end();
        assert_eq!((code, out.trim_end().parse::<u64>().is_ok()), (Some(0), true), "{complaints}");
        assert!(complaints.contains("waiting for lock \"job\" for "), "{complaints}");
        assert!(complaints.contains("redis is not reachable"), "{complaints}");
    }
}

#[test]
fn those_who_do_not_want_to_wait_for_a_dead_server_do_not() {
    let server = server();
    let url = server.url().to_owned();
    server.kill().expect("it can be killed");
    let start = Instant::now();
    for args in [&["--fail-fast"][..], &["--wait", "0"], &["--wait", "2m", "--fail-fast"]] {
        let args = [&["run", "job", "--url", &url], args, &["--", "true"]].concat();
        is_one_sentence(&output(&args), 125, "redis is not reachable");
    }
    is_one_sentence(&output(&["acquire", "job", "--fail-fast", "--url", &url]), 125, "not reachable");
    assert!(start.elapsed() < Duration::from_secs(20));
    let late = output(&["run", "job", "--wait", "1s", "--url", &url, "--", "true"]);
    is_one_sentence(&late, 125, "gave up after 1s");
}

#[test]
fn what_cannot_heal_fails_at_once_however_patient_one_is() {
    let server = Redis::new().password("right").start().expect("a server");
    let wrong = format!("redis://:hunter2@{}", server.addr());
    for (url, says) in [(wrong.as_str(), "user and password"), ("redis://h/zero", "not a number")] {
        is_one_sentence(&output(&["run", "job", "--url", url, "--", "true"]), 125, says);
        is_one_sentence(&output(&["acquire", "job", "--url", url, "--wait", "2m"]), 125, says);
    }
}

#[test]
fn a_run_whose_lock_was_deleted_says_that_it_was_lost_though_its_command_ended_well() {
    let server = server();
    let mut first = run(&server, &["--ttl", "5m"]);
    first.line();
    server.ask(&["FLUSHALL"]).expect("it answers");
    assert_eq!(output(&["run", "job", "--url", server.url(), "--", "true"]).status.code(), Some(0));
    first.say("end");
    let (code, _, complaints) = first.end();
    assert_eq!(code, Some(123), "{complaints}");
    assert!(complaints.contains("others may have held it meanwhile"), "{complaints}");
}
