//! `tidelock torture`: runs on files of this machine, and verdicts on histories that are written here.

mod common;

use std::{fs, path::Path, process::Command};

use common::{tidelock, until};
use serde_json::Value;
use tempfile::TempDir;

const CONFIRMED: &str = "--yes-this-is-a-test-server";

fn url(folder: &TempDir) -> String {
    format!("file:{}", folder.path().join("store").display())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_on_files_is_clean_and_leaves_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let output = tidelock(["torture", "--url", &url(&folder), CONFIRMED, "--for", "6s", "--ttl", "500ms"])
        .args(["--clients", "3", "--kill", "1s", "--stop", "1s", "--seed", "7", "--json", "--report"])
        .arg(&report)
        .output()
        .unwrap();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{complained}");
    let value: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(value["verdict"], "clean");
    assert_eq!(value["seed"], 7);
    assert!(value["counts"]["grants"].as_u64() > Some(0), "{said}");
    let faults = value["counts"]["faults"].as_array().unwrap();
    let is_kill = |fault: &Value| fault["kind"].as_str().unwrap().starts_with("kill");
    assert!(faults.iter().any(is_kill), "{said}");
    assert!(value["skipped"][0].as_str().unwrap().contains("no servers"), "{said}");
    assert!(report.join("report.txt").is_file());
    let left = tidelock(["ls", "torture/", "--json", "--url", &url(&folder)]).output().unwrap();
    assert_eq!(text(&left.stdout).trim(), "[]");

    // The same histories have the same verdict, and a second run does not mix with them.
    let again = tidelock(["torture", "--check"]).arg(&report).output().unwrap();
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stdout).starts_with("clean: "), "{}", text(&again.stdout));
    let mixed =
        tidelock(["torture", "--url", &url(&folder), CONFIRMED, "--report"]).arg(&report).output().unwrap();
    assert_eq!(mixed.status.code(), Some(125));
    assert!(text(&mixed.stderr).contains("not empty"), "{}", text(&mixed.stderr));
}

#[test]
fn a_store_is_not_tortured_unless_somebody_says_that_nobody_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        (vec!["--url", &url(&folder)], CONFIRMED),
        (vec!["--url", "memory:", CONFIRMED], "do not share memory"),
        (vec![CONFIRMED], "name the store"),
    ] {
        let output = tidelock(["torture"]).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(text(&output.stderr).contains(why), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(!folder.path().join("store").exists());
}

#[test]
fn a_signal_ends_a_run_with_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let run = tidelock(["torture", "--url", &url(&folder), CONFIRMED, "--for", "1h", "--ttl", "500ms"])
        .args(["--clients", "2", "--report"])
        .arg(&report)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let has_granted = || {
        let text = fs::read_to_string(report.join("client-0.0.log")).unwrap_or_default();
        text.contains(" granted ")
    };
    until("a client is granted a lock", has_granted);
    let killed = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).starts_with("clean: "));
}

/// Histories of two clients that held the same lock at once, while the second one was cut off.
fn write_overlap(folder: &Path) {
    let client = |number: u32, asked: u64, granted: u64, token: u64| {
        format!(
            "1000 hello {number} 0\n\
             {asked} asked 0 0 x 0 -\n\
             {granted} granted 0 {token} {}\n\
             5000000000 releasing 0 4000000000\n5000001000 released 0 ok\n\
             6000000000 bye done\n",
            9_000_000_000 - granted
        )
    };
    fs::write(folder.join("client-0.0.log"), client(0, 2_000, 1_000_000_000, 1024)).expect("a file");
    // Its process was killed while it wrote the last line.
    let torn = client(1, 1_500_000_000, 2_000_000_000, 2048) + "6000000001 checked 0 90000";
    fs::write(folder.join("client-1.0.log"), torn).expect("a file");
    let run = "500 plan 42 redis 3000000000 true false\n\
               500 lock 0 3000000000 torture/x/mutex-0\n\
               1900000000 fault 0 cut client-1.0\n2100000000 healed 0\n";
    fs::write(folder.join("run.log"), run).expect("a file");
}

#[test]
fn a_violation_is_told_as_a_story_with_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    write_overlap(folder.path());
    let output = tidelock(["torture", "--check"]).arg(folder.path()).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "VIOLATIONS: 2 requests",
        "seed 42",
        "violated 1 times: two held at once",
        "client-0.0 (request 0, token 1024) held \"torture/x/mutex-0\"",
        "granted to client-1.0 (request 0, token 2048): both for 3000.0 ms",
        "fault cut client-1.0: began -0.1000 s, healed +0.1000 s",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    let picture = fs::read_to_string(folder.path().join("violation-1.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("client-1.0"), "{picture}");
}

#[test]
fn histories_that_cannot_be_read_are_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        let output = tidelock(["torture", "--check"]).arg(folder.path()).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, why) = check();
    assert_eq!(code, Some(125), "{why}");
    write_overlap(folder.path());
    let path = folder.path().join("client-0.0.log");
    let damaged = fs::read_to_string(&path).unwrap().replace("granted 0", "grunted 0");
    fs::write(&path, damaged).unwrap();
    let (code, why) = check();
    assert_eq!(code, Some(125));
    assert!(why.contains("which is no event"), "{why}");
}
