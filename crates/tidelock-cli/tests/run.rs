//! `tidelock run` with one process: what the command gets, and what becomes of it.

mod common;

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, process::Stdio, time::Duration};

use common::{Running, kill, output, runs, stderr, stdout, tidelock, until};
use rustix::process::Signal;

const MEMORY: [&str; 3] = ["job", "--url", "memory:"];

fn run(script: &str) -> std::process::Output {
    output(&["run", "job", "--url", "memory:", "--", "sh", "-c", script])
}

#[test]
fn run_returns_what_the_command_says() {
    for code in [0, 1, 7, 255] {
        assert_eq!(run(&format!("exit {code}")).status.code(), Some(code));
    }
}

#[test]
fn run_counts_signals_from_128_as_shells_do() {
    assert_eq!(run("kill -9 $$").status.code(), Some(137));
    assert_eq!(run("kill -TERM $$").status.code(), Some(143));
}

#[test]
fn run_passes_input_output_and_complaints_through() {
    let mut running = Running::start(&MEMORY, "read line; echo \"out $line\"; echo \"err $line\" >&2");
    running.say("hello");
    assert_eq!(running.end(), (Some(0), "out hello\n".to_owned(), "err hello\n".to_owned()));
}

#[test]
fn the_command_knows_the_name_and_the_token() {
    let output = run("echo $TIDELOCK_NAME $TIDELOCK_TOKEN ${TIDELOCK_NAMES-none}");
    let text = stdout(&output);
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!((words[0], words[2]), ("job", "none"));
    assert!(words[1].parse::<u64>().is_ok_and(|token| token > 0), "{text}");
}

#[test]
fn several_locks_come_with_a_line_each_in_the_order_typed() {
    let script = "echo \"$TIDELOCK_NAMES\"; echo \"$TIDELOCK_TOKENS\"; echo \"$TIDELOCK_NAME\"";
    let args = ["run", "b", "--lock", "a c", "--lock", "b", "--url", "memory:", "--", "sh", "-c", script];
    let output = output(&args);
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[1], lines[4]), (5, "b", "a c", "b"), "{text}");
    assert!(lines[2..4].iter().all(|token| token.parse::<u64>().is_ok()), "{text}");
}

#[test]
fn shares_and_permits_are_held_too() {
    for share in [&["--shared"][..], &["--permits", "2/5"]] {
        let args = [&["run", "job", "--url", "memory:", "--wait", "0"], share, &["--", "true"]].concat();
        assert_eq!(output(&args).status.code(), Some(0), "{share:?}");
    }
}

#[test]
fn a_command_that_is_not_there_fails_before_anything_is_locked() {
    for (command, code, says) in [
        ("no-such-command", 127, "not found"),
        ("./no/such/command", 127, "not found"),
        ("", 127, "empty"),
        ("/", 126, "cannot be run"),
        ("/dev/null", 126, "cannot be run"),
    ] {
        // A store that cannot be connected shows that it was not asked.
        let output = output(&["run", "job", "--url", "nowhere:", "--", command]);
        assert_eq!(output.status.code(), Some(code), "{command:?}");
        let text = stderr(&output);
        assert!(text.starts_with("tidelock: ") && text.contains(says), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn a_command_that_the_system_refuses_cannot_be_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("script");
    std::fs::write(&file, "#!/no/such/interpreter\n").expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    let output = tidelock(["run", "job", "--url", "memory:", "--"]).arg(&file).output().expect("runs");
    // The interpreter is what is not found, as a shell says it.
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).starts_with("tidelock: command "), "{}", stderr(&output));
}

#[test]
fn the_command_leads_a_process_group_of_its_own() {
    let output = run("echo $$; cut -d ' ' -f 5 /proc/$$/stat");
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn signals_are_forwarded_to_the_command() {
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ] {
        let script = format!("trap 'echo got {name}; exit 9' {name}; echo up; while :; do sleep 0.01; done");
        let mut running = Running::start(&MEMORY, &script);
        assert_eq!(running.line(), "up");
        running.signal(signal);
        let (code, out, complaints) = running.end();
        assert_eq!((code, out.as_str()), (Some(9), &*format!("got {name}\n")), "{name}: {complaints}");
    }
}

#[test]
fn what_tidelock_was_started_to_ignore_the_command_ignores_too() {
    let script = format!(
        "trap '' HUP; exec {} run job --url memory: -- grep SigIgn /proc/self/status",
        env!("CARGO_BIN_EXE_tidelock")
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("runs");
    let text = stdout(&output);
    let mask = text.split_whitespace().nth(1).and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let mask = mask.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(mask & 1, 1, "HUP is ignored: {mask:x}");
    assert_eq!(mask >> 12 & 1, 0, "PIPE is not: {mask:x}");
}

#[test]
fn run_stops_the_command_when_the_lock_is_lost() {
    let script = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let mut running = Running::start(&["job", "--url", "memory:", "--ttl", "50ms"], script);
    assert_eq!(running.line(), "up");
    pause_past_the_ttl(&running);
    let (code, out, complaints) = running.end();
    assert_eq!((code, out.as_str()), (Some(123), "told\n"));
    assert!(complaints.starts_with("tidelock: lost lock \"job\" on memory: "), "{complaints}");
}

#[test]
fn run_kills_what_does_not_listen_after_the_grace() {
    let script = "trap '' TERM; sh -c 'echo $$; while :; do sleep 0.01; done' & \
                  echo $$; while :; do sleep 0.01; done";
    let args = ["job", "--url", "memory:", "--ttl", "50ms", "--kill-after", "100ms"];
    let mut running = Running::start(&args, script);
    let pids = [running.line(), running.line()].map(|pid| pid.parse::<u32>().expect("a process id"));
    pause_past_the_ttl(&running);
    let (code, _, _) = running.end();
    assert_eq!(code, Some(123));
    until("all of the group is gone", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn what_the_command_left_behind_is_stopped_after_a_loss_too() {
    // The leader ends on TERM, its child does not listen.
    let script = "(trap '' TERM; exec >/dev/null 2>&1; while :; do sleep 0.01; done) & \
                  echo $!; while :; do sleep 0.01; done";
    let args = ["job", "--url", "memory:", "--ttl", "50ms", "--kill-after", "200ms"];
    let mut running = Running::start(&args, script);
    let pid = running.line().parse().expect("a process id");
    pause_past_the_ttl(&running);
    assert_eq!(running.end().0, Some(123));
    until("the child that was left behind is gone", || !runs(pid));
}

/// The lease runs on while nobody renews it.
fn pause_past_the_ttl(running: &Running) {
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(150));
    running.signal(Signal::CONT);
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_tidelock_takes_the_command_along() {
    let mut running = Running::start(&MEMORY, "trap '' HUP TERM INT; echo $$; while :; do sleep 0.01; done");
    let pid = running.line().parse().expect("a process id");
    assert!(runs(pid));
    running.signal(Signal::KILL);
    until("the command is gone", || !runs(pid));
}

#[test]
fn a_killed_tidelock_takes_along_what_the_command_started() {
    // Not the shell but what it waits for does the work, as in most scripts.
    let script = "trap '' HUP TERM INT; sh -c 'echo $$; while :; do sleep 0.01; done'; true";
    let mut running = Running::start(&MEMORY, script);
    let pid = running.line().parse().expect("a process id");
    running.signal(Signal::KILL);
    until("all of the group is gone", || !runs(pid));
}

/// A shell that starts a daemon as daemons start: a fork, a session of its own, another fork. Prints its id.
const DAEMON: &str = "setsid sh -c '(trap \"\" HUP TERM INT; exec >/dev/null 2>&1 <&1; while :; do sleep 0.01; done) & echo $!'";

#[test]
#[cfg(target_os = "linux")]
fn a_killed_tidelock_takes_along_what_left_the_session_of_the_command() {
    let mut running = Running::start(&MEMORY, &format!("{DAEMON}; while :; do sleep 0.01; done"));
    let pid = running.line().parse().expect("a process id");
    assert!(runs(pid));
    running.signal(Signal::KILL);
    until("the daemon is gone", || !runs(pid));
}

#[test]
#[cfg(target_os = "linux")]
fn what_left_the_session_of_the_command_is_stopped_after_a_loss_too() {
    let args = ["job", "--url", "memory:", "--ttl", "50ms", "--kill-after", "200ms"];
    let mut running = Running::start(&args, &format!("{DAEMON}; while :; do sleep 0.01; done"));
    let pid = running.line().parse().expect("a process id");
    pause_past_the_ttl(&running);
    assert_eq!(running.end().0, Some(123));
    until("the daemon is gone", || !runs(pid));
}

#[test]
#[cfg(target_os = "linux")]
fn a_daemon_that_outlives_its_command_stays() {
    let mut running = Running::start(&MEMORY, DAEMON);
    let pid: u32 = running.line().parse().expect("a process id");
    assert_eq!(running.end().0, Some(0));
    assert!(runs(pid));
    kill(pid, Signal::KILL);
}

#[test]
#[cfg(target_os = "linux")]
fn a_supervisor_that_ends_all_processes_gently_lets_the_command_end_as_it_likes() {
    let mut running =
        Running::start(&MEMORY, "trap 'echo told; exit 9' TERM; echo up; while :; do sleep 0.01; done");
    assert_eq!(running.line(), "up");
    for child in children(running.id()) {
        kill(child, Signal::TERM);
    }
    running.signal(Signal::TERM);
    let (code, out, complaints) = running.end();
    assert_eq!((code, out.as_str()), (Some(9), "told\n"), "{complaints}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_command_does_not_outlive_a_watcher_that_was_killed() {
    let mut running = Running::start(&MEMORY, "echo $$; while :; do sleep 0.01; done");
    let pid = running.line().parse().expect("a process id");
    children(running.id()).into_iter().for_each(|child| kill(child, Signal::KILL));
    let (code, _, complaints) = running.end();
    assert_eq!(code, Some(125), "{complaints}");
    until("the command is gone", || !runs(pid));
}

#[test]
fn what_the_command_left_behind_on_purpose_stays() {
    let script = "sh -c 'exec >/dev/null 2>&1; read line < \"$0\"' \"$1\" & echo $!";
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("runs").success());
    let mut command = tidelock(["run", "job", "--url", "memory:", "--", "sh", "-c"]);
    command.arg(script.replace("$1", fifo.to_str().expect("text")));
    let mut running = Running::of(command);
    let pid = running.line().parse().expect("a process id");
    assert_eq!(running.end().0, Some(0));
    assert!(runs(pid));
    std::fs::write(&fifo, "end\n").expect("it reads");
    until("it ends when it is told", || !runs(pid));
}

/// The children of a process.
fn children(parent: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn a_command_that_somebody_stops_by_hand_keeps_its_lock() {
    let mut running = Running::start(&MEMORY, "echo $$; read line; echo $line");
    let pid: u32 = running.line().parse().expect("a process id");
    kill(pid, Signal::STOP);
    let state = |pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    until("it is stopped", || state(pid).contains(") T "));
    assert!(!state(running.id()).contains(") T "));
    kill(pid, Signal::CONT);
    running.say("on");
    assert_eq!(running.end(), (Some(0), "on\n".to_owned(), String::new()));
}

#[test]
fn bad_input_gets_one_sentence_and_125() {
    let long = "x".repeat(513);
    for (args, says) in [
        (&["run", "", "--", "true"][..], "empty"),
        (&["run", &long, "--", "true"], "513 bytes"),
        (&["run", "a\nb", "--", "true"], "U+000A"),
        (&["run", "a\u{1b}[2Jb", "--", "true"], "U+001B"),
        (&["run", "a", "--lock", "", "--", "true"], "empty"),
        (&["run", "a", "--ttl", "0", "--", "true"], "too short"),
        (&["run", "a", "--ttl", "2d", "--", "true"], "too long"),
        (&["run", "a", "--ttl", "soon", "--", "true"], "250ms"),
        (&["run", "a", "--wait", "-1", "--", "true"], "'-1' for '--wait <TIME>': a time is not negative"),
        (&["run", "a", "--wait", "-1s", "--", "true"], "'-1s' for '--wait <TIME>': a time is not negative"),
        (&["run", "a", "--ttl", "-1s", "--", "true"], "not negative"),
        (&["run", "a", "--wait", "30s1m", "--", "true"], "1m30s"),
        (&["run", "a", "--wait", "--", "true"], "the option before -- needs a value"),
        (&["run", "a", "--wait", "1s", "-n", "--", "true"], "cannot be used"),
        (&["run", "a", "-E", "256", "--", "true"], "0..=255"),
        (&["run", "a", "-E", "-1", "--", "true"], "-1"),
        (&["run", "a", "--name", "b", "--", "true"], "cannot be used"),
        (&["run", "--name", "", "--", "true"], "empty"),
        (&["run", "a", "--wait", "", "--", "true"], "--wait"),
        (&["run", "a", "--kill-after", "9999999999d", "--", "true"], "too long"),
        (&["run", "a", "--permits", "0/5", "--", "true"], "1 to 5"),
        (&["run", "a", "--permits", "6/5", "--", "true"], "1 to 5"),
        (&["run", "a", "--permits", "0/0", "--", "true"], "has at least 1"),
        (&["run", "a", "--permits", "-1/5", "--", "true"], "two whole numbers"),
        (&["run", "a", "--permits", "x", "--", "true"], "2/5"),
        (&["run", "a", "--permits", "1/2", "--shared", "--", "true"], "cannot be used"),
        (&["run", "a", "--lock", "b", "--shared", "--", "true"], "cannot be used"),
        (&["run", "a", "--lock", "b", "--permits", "1/2", "--", "true"], "cannot be used"),
        (&["run", "a", "--label", "", "--", "true"], "label"),
        (&["run", "a", "--label", "a\nb", "--", "true"], "label"),
        (&["run", "a", "--owner", "", "--", "true"], "owner"),
        (&["run", "a", "--"], "<CMD>"),
        (&["run", "a"], "<CMD>"),
        (&["run", "--", "true"], "<NAME>"),
        (&["run"], "<NAME>"),
        (&["run", "a", "true"], "after --"),
        (&["acquire"], "<NAME>"),
        (&["acquire", ""], "empty"),
        (&["acquire", "a", "b"], "'b'"),
        (&["acquire", "a", "--ttl", "2d"], "by its ticket"),
        (&["acquire", "a", "--permits", "1/2", "--shared"], "cannot be used"),
        (&["acquire", "a"], "use another store"),
        (&["renew"], "<TICKET>"),
        (&["renew", "tl1.x"], "no ticket"),
        (&["release"], "<TICKET>"),
        (&["release", "-"], "standard input"),
        (&["show", ""], "empty"),
        (&["show"], "<NAME>"),
        (&["break", "a"], "--reason"),
        (&["break", "--reason", "x"], "<NAME>"),
        (&["break", "a", "--prefix", "b", "--reason", "x"], "cannot be used"),
        (&["break", "--prefix", "", "--reason", "x"], "the prefix is empty"),
        (&["break", "--older-than", "-1h", "--reason", "x"], "not negative"),
        (&["break", "a", "--reason", " "], "reason"),
        (&["break", "a", "--reason", &long], "513 bytes"),
        (&["break", "a", "--reason", "a\nb"], "one line"),
        (&["break", "\u{7f}", "--reason", "x"], "U+007F"),
        (&["completions", "cmd.exe"], "cmd.exe"),
        (&["man", "--dir", "/dev/null/man"], "/dev/null/man"),
    ] {
        let output = tidelock(args).env("TIDELOCK_URL", "memory:").output().expect("runs");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {text}");
        assert!(text.starts_with("tidelock: ") && text.contains(says), "{args:?}: {text}");
        assert_eq!((text.lines().count(), stdout(&output).as_str()), (1, ""), "{args:?}: {text}");
    }
}

#[test]
fn a_name_may_begin_with_a_dash_after_its_option() {
    let script = "echo \"$TIDELOCK_NAMES\"";
    let args = ["run", "--name", "-x", "--lock", "--url", "--url", "memory:", "--", "sh", "-c", script];
    let output = output(&args);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("-x\n--url\n", ""));
}

#[test]
fn bytes_that_are_no_text_are_refused_as_a_name_and_passed_to_the_command() {
    let bytes = OsStr::from_bytes(b"\xff\xfe");
    let output = tidelock([OsStr::new("run"), bytes, OsStr::new("--"), OsStr::new("true")]).output();
    assert_eq!(output.expect("runs").status.code(), Some(125));
    let mut command = tidelock(["run", "job", "--url", "memory:", "--", "printf", "%s"]);
    assert_eq!(command.arg(bytes).output().expect("runs").stdout, b"\xff\xfe");
}

#[test]
fn an_unknown_store_is_named_and_its_password_is_not() {
    for args in [&["run", "job", "--", "true"][..], &["ls"], &["doctor"], &["show", "x"]] {
        for url in ["gopher://me:secret@host/?password=secret", "secret"] {
            let output = tidelock(args).env("TIDELOCK_URL", url).output().expect("runs");
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{text}");
            assert!(text.starts_with("tidelock: ") && text.lines().count() == 1, "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }
}

#[test]
fn the_flag_wins_over_the_environment() {
    let mut command = tidelock(["run", "job", "--url", "memory:", "--", "true"]);
    assert!(command.env("TIDELOCK_URL", "nowhere:").status().expect("runs").success());
    let mut command = tidelock(["run", "job", "--", "true"]);
    assert!(command.env("TIDELOCK_URL", "memory:").status().expect("runs").success());
}

#[test]
fn run_works_with_everything_closed() {
    let script =
        format!("exec {} run job --url memory: -- true <&- >&- 2>&-", env!("CARGO_BIN_EXE_tidelock"));
    let status = std::process::Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).status();
    assert_eq!(status.expect("runs").code(), Some(0));
}
