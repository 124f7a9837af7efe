//! The real binary, as a shell sees it.

use std::process::{Command, Output, Stdio};

fn tidelock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    tidelock(args).output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn stores_prints_a_table_with_the_store_in_memory() {
    let output = output(&["stores"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.lines().next().is_some_and(|head| head.starts_with("STORE ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("memory  memory:  process")), "{text}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn stores_prints_the_same_as_json() {
    let output = output(&["stores", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let stores: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(stores[0]["store"], "memory");
    assert_eq!(stores[0]["token"], "process");
    assert_eq!(stores[0]["push"], true);
    assert_eq!(stores[0]["min_ttl_ms"], 20);
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = output(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), format!("tidelock {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_shows_an_example_and_the_exit_codes() {
    for args in [&["--help"][..], &["help"], &["-h"]] {
        let output = output(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let text = stdout(&output);
        assert!(text.contains("Example:\n  tidelock stores"), "{text}");
        assert!(text.contains("125  tidelock itself failed"), "{text}");
    }
}

#[test]
fn whatever_was_typed_wrongly_is_explained_and_exits_with_125() {
    for (args, names) in [
        (&["unlock-everything"][..], "unlock-everything"),
        (&["stores", "--yaml"], "--yaml"),
        (&["stores", "memory:"], "memory:"),
        (&["--quiet"], "--quiet"),
        (&[], "Usage: tidelock"),
    ] {
        let output = output(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(stderr(&output).contains(names), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = tidelock(&["stores"]).stdout(writer).stderr(Stdio::piped()).output().expect("runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure_and_says_so() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = tidelock(&["stores"]).stdout(full).stderr(Stdio::piped()).output().expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("tidelock: "), "{}", stderr(&output));
}
