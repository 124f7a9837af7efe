//! Several processes and one store: who waits, who is told what, and who comes next.

mod common;

use common::{Running, Store, json, kill, output, runs, stderr, stdout, tidelock, until};
use rustix::process::Signal;

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo $$; read line";

#[test]
fn a_second_run_waits_for_the_first_and_has_a_larger_token() {
    let store = Store::new();
    let token = "echo $TIDELOCK_TOKEN; read line";
    let mut first = store.run(&["job"], token);
    let earlier: u64 = first.line().parse().expect("a token");
    let mut second = store.run(&["job"], token);
    until("the second waits", || store.waiters("job") == 1);
    first.say("go on");
    assert_eq!(first.end().0, Some(0));
    assert!(second.line().parse::<u64>().expect("a token") > earlier);
    assert_eq!(second.end().2, "");
}

#[test]
fn without_a_url_all_processes_of_a_user_share_a_store() {
    let home = tempfile::tempdir().expect("a directory");
    let in_home = |args: &[&str]| {
        let mut command = tidelock(args);
        command.env("TIDELOCK_DIR", home.path());
        command
    };
    let mut first = Running::of(in_home(&["run", "job", "--", "sh", "-c", HOLD]));
    assert_ne!(first.line(), "");
    // From another directory, with another home, and with a variable that is there but says nothing.
    let mut second = in_home(&["run", "job", "--wait", "0", "--", "true"]);
    let second = second.current_dir("/").env("HOME", "/").env("TIDELOCK_URL", "").output().expect("runs");
    assert_eq!(second.status.code(), Some(124), "{}", stderr(&second));
}

#[test]
fn a_killed_holder_lets_the_next_one_in_long_before_its_ttl() {
    let store = Store::new();
    let mut first = store.run(&["job", "--ttl", "1h"], HOLD);
    let pid = first.line().parse().expect("a process id");
    let mut second = store.run(&["job"], HOLD);
    until("the second waits", || store.waiters("job") == 1);
    first.signal(Signal::KILL);
    assert_ne!(second.line(), "");
    until("the first command is gone", || !runs(pid));
}

#[test]
fn a_try_does_not_wait_and_says_who_holds_it() {
    let store = Store::new();
    let mut first = store.run(&["job", "--label", "worker-7"], HOLD);
    first.line();
    let second = output(&["run", "job", "--url", &store.url(), "--wait", "0", "--", "true"]);
    assert_eq!(second.status.code(), Some(124));
    let text = stderr(&second);
    assert!(text.starts_with("tidelock: lock \"job\" on file is taken; held by worker-7 for "), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_wait_ends_in_time_says_who_holds_it_and_leaves_the_line() {
    let store = Store::new();
    let mut first = store.run(&["job", "--label", "worker-7"], HOLD);
    first.line();
    for more in [&[][..], &["--lock", "another"]] {
        let url = store.url();
        let args = [&["run", "job", "--url", &url, "--wait", "100ms"], more, &["--", "true"]].concat();
        let second = output(&args);
        assert_eq!(second.status.code(), Some(124));
        let text = stderr(&second);
        assert!(text.contains("waiting for lock \"job\" on file; held by worker-7 for "), "{text}");
        assert_eq!(store.waiters("job"), 0);
    }
}

#[test]
fn a_log_is_told_once_that_the_wait_is_long() {
    let store = Store::new();
    let mut first = store.run(&["job", "--label", "worker-7"], HOLD);
    first.line();
    let second = output(&["run", "job", "--url", &store.url(), "--wait", "3s", "--", "true"]);
    let text = stderr(&second);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((second.status.code(), lines.len()), (Some(124), 2), "{text}");
    assert!(lines[0].starts_with("tidelock: waiting for lock \"job\" for 2"), "{text}");
    assert!(lines[0].contains(": place 1 of 1 in line, held by worker-7 for "), "{text}");
    let quiet = output(&["run", "job", "-q", "--url", &store.url(), "--wait", "2.2s", "--", "true"]);
    assert_eq!((quiet.status.code(), stderr(&quiet).as_str()), (Some(124), ""));
}

#[test]
fn flags_of_flock_mean_what_they_mean_there() {
    let store = Store::new();
    let mut first = store.run(&["job"], HOLD);
    first.line();
    let refused = |args: &[&str]| {
        let refused = store.output(&[&["run", "job"], args, &["--", "true"]].concat());
        (refused.status.code(), stderr(&refused).lines().count())
    };
    assert_eq!(refused(&["-n"]), (Some(124), 1));
    assert_eq!(refused(&["--try"]), (Some(124), 1));
    assert_eq!(refused(&["-w", "100ms"]), (Some(124), 1));
    assert_eq!(refused(&["-n", "-q"]), (Some(124), 0));
    assert_eq!(refused(&["-w", "0.1", "-q"]), (Some(124), 0));
    for code in [0, 1, 7, 255] {
        assert_eq!(refused(&["-nq", "-E", &code.to_string()]), (Some(code), 0));
        assert_eq!(refused(&["-w", "100ms", "--busy-code", &code.to_string()]), (Some(code), 1));
        let ticket = store.output(&["acquire", "job", "-n", "-E", &code.to_string()]);
        assert_eq!((ticket.status.code(), stdout(&ticket).as_str()), (Some(code), ""));
    }
    // The code is for a lock that is taken, and for nothing else.
    let other = |args: &[&str]| store.output(&[&["run", "other", "-nq", "-E", "9"], args].concat());
    assert_eq!(other(&["--", "sh", "-c", "exit 124"]).status.code(), Some(124));
    let broken = other(&["--url", "file:/dev/null/x", "--", "true"]);
    assert_eq!((broken.status.code(), stderr(&broken).lines().count()), (Some(125), 1));
}

#[test]
fn readers_run_together_and_a_writer_waits() {
    let store = Store::new();
    let mut readers = [0, 1].map(|_| store.run(&["job", "--shared"], HOLD));
    assert!(readers.iter_mut().all(|reader| !reader.line().is_empty()));
    let writer = output(&["run", "job", "--url", &store.url(), "--wait", "0", "--", "true"]);
    assert_eq!(writer.status.code(), Some(124));
    assert!(stderr(&writer).contains(" and 1 more"), "{}", stderr(&writer));
}

#[test]
fn permits_are_counted_over_processes() {
    let store = Store::new();
    let url = store.url();
    let mut first = store.run(&["job", "--permits", "3/5"], HOLD);
    first.line();
    let ask =
        |permits| output(&["run", "job", "--url", &url, "--wait", "0", "--permits", permits, "--", "true"]);
    assert_eq!(ask("2/5").status.code(), Some(0));
    assert_eq!(ask("3/5").status.code(), Some(124));
    let mismatch = ask("1/4");
    assert_eq!(mismatch.status.code(), Some(125));
    assert_eq!(stderr(&mismatch).lines().count(), 1, "{}", stderr(&mismatch));
}

#[test]
fn the_same_owner_enters_again_from_inside() {
    let store = Store::new();
    let script = format!(
        "{} run job --owner me --wait 0 --url '{}' -- echo inside",
        env!("CARGO_BIN_EXE_tidelock"),
        store.url()
    );
    let outer = store.run(&["job", "--owner", "me"], &script);
    assert_eq!(outer.end(), (Some(0), "inside\n".to_owned(), String::new()));
}

#[test]
fn several_locks_taken_in_any_order_never_block_each_other_for_ever() {
    let store = Store::new();
    let turns: Vec<_> = (0..6)
        .map(|turn| {
            let names = if turn % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            store.run(&[names[0], "--lock", names[1], "--wait", "20s"], "echo done")
        })
        .collect();
    for turn in turns {
        assert_eq!(turn.end(), (Some(0), "done\n".to_owned(), String::new()));
    }
}

#[test]
fn break_stops_the_command_and_lets_the_next_one_in() {
    let store = Store::new();
    let url = store.url();
    let script = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let mut first = store.run(&["job", "--label", "worker-7"], script);
    assert_eq!(first.line(), "up");
    let mut second = store.run(&["job"], HOLD);
    until("the second waits", || store.waiters("job") == 1);
    let broken = output(&["break", "job", "--reason", "it hangs", "--url", &url]);
    assert_eq!((broken.status.code(), stderr(&broken).as_str()), (Some(0), ""));
    let text = stdout(&broken);
    assert!(text.starts_with("evicted worker-7 from lock \"job\" on file after "), "{text}");
    assert!(text.ends_with(": it hangs\n"), "{text}");
    let (code, out, complaints) = first.end();
    assert_eq!((code, out.as_str()), (Some(123), "told\n"));
    assert!(complaints.contains("lost lock \"job\""), "{complaints}");
    assert_ne!(second.line(), "");
}

#[test]
fn break_tells_programs_whom_it_evicted() {
    let store = Store::new();
    let script = "echo up; while :; do sleep 0.01; done";
    let mut readers = [0, 1].map(|_| store.run(&["job", "--shared", "--label", "reader"], script));
    assert!(readers.iter_mut().all(|reader| !reader.line().is_empty()));
    let broken = json(&["break", "job", "--reason", "it hangs", "--json", "--url", &store.url()]);
    assert_eq!((&broken["name"], &broken["reason"]), (&"job".into(), &"it hangs".into()));
    assert_eq!(broken["evicted"].as_array().map(Vec::len), Some(2));
    assert_eq!(broken["evicted"][0]["label"], "reader");
    assert!(readers.into_iter().all(|reader| reader.end().0 == Some(123)));
}

#[test]
fn ls_and_show_tell_who_holds_and_who_waits() {
    let store = Store::new();
    let url = store.url();
    let mut first = store.run(&["orders/1", "--label", "worker-7", "--owner", "me"], HOLD);
    let mut other = store.run(&["reports/1", "--permits", "2/5"], HOLD);
    assert!(!first.line().is_empty() && !other.line().is_empty());
    let _second = store.run(&["orders/1", "--label", "worker-8"], HOLD);
    until("the second waits", || store.waiters("orders/1") == 1);

    let text = stdout(&output(&["ls", "--url", &url]));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with("orders/1") && lines[1].ends_with(" 1"), "{text}");
    assert!(lines[1].contains("worker-7") && lines[2].contains("sh (pid "), "{text}");
    let listed = json(&["ls", "reports/", "--json", "--url", &url]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!((&listed[0]["name"], &listed[0]["holders"][0]["permits"]), (&"reports/1".into(), &2.into()));

    let text = stdout(&output(&["show", "orders/1", "--url", &url]));
    assert!(text.starts_with("lock \"orders/1\" on file: 1 holder, 1 waiting\n"), "{text}");
    assert!(text.contains("holds ") && text.contains("waits, place 1  worker-8"), "{text}");
    let shown = json(&["show", "orders/1", "--json", "--url", &url]);
    assert_eq!(
        (&shown["holders"][0]["label"], &shown["holders"][0]["owner"]),
        (&"worker-7".into(), &"me".into())
    );
    assert_eq!(shown["waiters"][0]["token"], serde_json::Value::Null);
}

#[test]
fn a_signal_ends_the_wait_and_leaves_the_line() {
    let store = Store::new();
    let mut first = store.run(&["job"], HOLD);
    first.line();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let second = store.run(&["job"], "echo never");
        until("the second waits", || store.waiters("job") == 1);
        kill(second.id(), signal);
        assert_eq!(second.end(), (Some(code), String::new(), String::new()));
        until("the line is empty", || store.waiters("job") == 0);
    }
}

#[test]
fn doctor_finds_the_embedded_store_fit() {
    let store = Store::new();
    let found = json(&["doctor", "--json", "--url", &store.url()]);
    assert_eq!((&found["abilities"]["store"], &found["locks_in_use"]), (&"file".into(), &0.into()));
    assert_eq!(found["problems"], serde_json::json!([]));
    let text = output(&["doctor", "--url", &store.url()]);
    assert_eq!(text.status.code(), Some(0));
    assert!(stdout(&text).ends_with("fit for locks\n"), "{}", stdout(&text));
}

#[test]
fn a_directory_that_cannot_be_written_is_one_clear_sentence() {
    for args in
        [&["run", "job", "--url", "file:/dev/null/x", "--", "true"][..], &["ls", "--url", "file:/proc/x"]]
    {
        let output = output(args);
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(125), 1), "{text}");
        assert!(text.starts_with("tidelock: "), "{text}");
    }
}
