//! A tidelock inside a command under a lock, and where the password of its store goes.

mod common;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Output};

use common::{Store, output, stderr, stdout, tidelock};
use tempfile::TempDir;
use test_servers::{Redis, Server};

const PASSWORD: &str = "hunter2";
const TIDELOCK: &str = env!("CARGO_BIN_EXE_tidelock");

/// A shell under a lock that looks for the lock with another tidelock, from another directory, and then
/// prints its environment.
fn inside(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let script = format!("cd /; {TIDELOCK} ls; env");
    let mut command = tidelock([&["run", "job"], args, &["--", "sh", "-c", &script]].concat());
    command.envs(variables.iter().copied()).output().expect("the binary runs")
}

#[track_caller]
fn finds_the_lock(output: &Output) -> String {
    let text = stdout(output);
    assert_eq!((output.status.code(), stderr(output).as_str()), (Some(0), ""), "{text}");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("job ")), "{text}");
    text
}

#[track_caller]
fn is_refused(output: &Output, says: &str) {
    let text = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(125), ""), "{text}");
    assert!(text.starts_with("tidelock: ") && text.contains(says), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

fn server() -> (Server, String) {
    let server = Redis::new().append_only().password(PASSWORD).start().expect("a server");
    let url = format!("redis://:{PASSWORD}@{}", server.addr());
    (server, url)
}

/// A file that only its owner can read.
fn file(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("url");
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
    (dir, path)
}

#[test]
fn a_command_under_a_lock_uses_the_same_store() {
    let store = Store::new();
    finds_the_lock(&inside(&["--url", &store.url()], &[]));
    // Over what is in the environment already.
    for variable in ["TIDELOCK_URL", "TIDELOCK_URL_FILE", "TIDELOCK_URL_WITHHELD"] {
        finds_the_lock(&inside(&["--url", &store.url()], &[(variable, "nowhere:")]));
    }
    finds_the_lock(&inside(&[], &[("TIDELOCK_URL", &store.url())]));
}

#[test]
fn a_store_in_a_relative_directory_is_the_same_from_everywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!("cd /; {TIDELOCK} ls");
    let mut command = tidelock(["run", "job", "--url", "file:locks", "--", "sh", "-c", &script]);
    let output = command.current_dir(&dir).output().expect("the binary runs");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(stdout(&output).contains("\njob "), "{}", stdout(&output));
}

#[test]
fn a_password_reaches_the_command_only_if_that_is_asked_for() {
    let (_server, url) = server();
    let withheld = inside(&["--url", &url], &[]);
    assert_eq!(withheld.status.code(), Some(0), "{}", stderr(&withheld));
    assert!(!stdout(&withheld).contains(PASSWORD), "{}", stdout(&withheld));
    // Not silently in files.
    let text = stderr(&withheld);
    assert!(text.contains("does not pass on the password of its store redis://127.0.0.1:"), "{text}");
    assert!(text.contains("--url-file") && text.contains("--pass-url"), "{text}");
    assert!(!text.contains(PASSWORD) && text.lines().count() == 1, "{text}");
    let passed = finds_the_lock(&inside(&["--url", &url, "--pass-url"], &[]));
    assert!(passed.contains(&format!("\nTIDELOCK_URL={url}\n")), "{passed}");
}

#[test]
fn a_file_with_the_url_is_passed_on_by_its_name() {
    let (_server, url) = server();
    let (_dir, path) = file(&format!("  {url}\n\n"));
    let path = path.to_str().expect("text");
    for output in [
        inside(&["--url-file", path], &[]),
        inside(&["--url-file", path], &[("TIDELOCK_URL", "nowhere:")]),
        inside(&[], &[("TIDELOCK_URL_FILE", path)]),
    ] {
        let text = finds_the_lock(&output);
        assert!(!text.contains(PASSWORD) && text.contains(&format!("TIDELOCK_URL_FILE={path}\n")), "{text}");
    }
    for variables in [&[][..], &[("TIDELOCK_URL_FILE", path)]] {
        let args =
            if variables.is_empty() { &["--url-file", path, "--pass-url"][..] } else { &["--pass-url"] };
        let text = finds_the_lock(&inside(args, variables));
        assert!(text.contains(&format!("\nTIDELOCK_URL={url}\n")), "{text}");
    }
    // A pipe has nothing left for the second reader.
    let script = format!("echo '{url}' | {TIDELOCK} run job --url-file /dev/stdin -- {TIDELOCK} ls");
    let piped = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell runs");
    is_refused(&piped, "does not pass on the password");
}

#[test]
fn a_password_that_every_user_can_read_is_warned_of() {
    let (_server, url) = server();
    let (_dir, path) = file(&url);
    let ls = || output(&["ls", "--url-file", path.to_str().expect("text")]);
    assert_eq!((ls().status.code(), stderr(&ls()).as_str()), (Some(0), ""));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("set");
    let (code, text) = (ls().status.code(), stderr(&ls()));
    assert_eq!((code, text.lines().count()), (Some(0), 1), "{text}");
    assert!(text.contains("warning: every user of this machine can read the password in "), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    fs::write(&path, Store::new().url()).expect("written");
    assert_eq!(stderr(&ls()), "");
}

#[test]
fn a_file_that_has_no_url_gets_one_sentence() {
    for (text, says) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("file:/a\nfile:/b\n", "more than one line"),
        ("nowhere://me:hunter2@host\n", "no store for the URL scheme \"nowhere\""),
    ] {
        let (_dir, path) = file(text);
        is_refused(&output(&["ls", "--url-file", path.to_str().expect("text")]), says);
    }
    is_refused(&output(&["ls", "--url-file", "/no/such/file"]), "/no/such/file");
    is_refused(&output(&["ls", "--url-file", "/"]), "cannot be read");
    is_refused(&output(&["ls", "--url-file", "x", "--url", "memory:"]), "cannot be used");
    let both = [("TIDELOCK_URL", "memory:"), ("TIDELOCK_URL_FILE", "x")];
    is_refused(&tidelock(["ls"]).envs(both).output().expect("runs"), "are both set");
}
