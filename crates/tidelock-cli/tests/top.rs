//! `tidelock top` in a real terminal: keys are typed into tmux, and its screens are read.
#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod common;

use std::{fs, path::PathBuf, process::Command};

use common::{Running, Store, kill, output, stderr, stdout, until};
use rustix::process::Signal;
use tempfile::TempDir;

/// A script that holds its lock until it reads a line.
const HOLD: &str = "echo held; read line";

/// A terminal of its own, with a shell in it that starts `tidelock top`.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// Starts top. Around it, the shell writes down how the terminal is set.
    fn start(store: &Store, size: (u16, u16), args: &str) -> Self {
        let terminal = Self { folder: tempfile::tempdir().expect("a temporary directory") };
        let folder = terminal.folder.path().display();
        let script = format!(
            "cd {folder}; stty -g > before; sh -c 'echo $$ > pid; exec {} top --url {} {args}'; \
             echo \"ended with $?\"; stty -g > after; cat",
            env!("CARGO_BIN_EXE_tidelock"),
            store.url(),
        );
        let (width, height) = (size.0.to_string(), size.1.to_string());
        terminal.tmux(&["new-session", "-d", "-s", "top", "-x", &width, "-y", &height, &script]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let socket = self.folder.path().join("tmux");
        let output = Command::new("tmux")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(socket)
            .args(args)
            .env_remove("TMUX")
            .env("TERM", "xterm-256color")
            .output()
            .expect("tmux, of the Debian package tmux: cargo xtask test installs it");
        assert!(output.status.success(), "tmux {args:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "top"])
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "top"], keys].concat());
    }

    /// Waits until the screen is as it should be, and returns it.
    #[track_caller]
    fn shows(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let start = std::time::Instant::now();
        loop {
            screen.clone_from(&self.screen());
            if is(&screen) {
                return screen;
            }
            assert!(start.elapsed() < common::PATIENCE, "waited in vain until {what}:\n{screen}");
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for the end, and checks that the terminal is as it was.
    #[track_caller]
    fn ended_with(&self, code: i32) {
        let said = format!("ended with {code}");
        let screen = self.shows(&said, |screen| screen.contains(&said));
        assert!(!screen.contains("tidelock top"), "the screen before is back: {screen}");
        until("the settings are read", || fs::read(self.file("after")).is_ok_and(|text| !text.is_empty()));
        let read = |name| fs::read_to_string(self.file(name)).expect("settings");
        assert_eq!(read("before"), read("after"));
        let shown = self.tmux(&["display-message", "-p", "-t", "top", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(shown.trim(), "0 1", "the first screen, with a cursor");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn row<'a>(screen: &'a str, name: &str) -> Option<&'a str> {
    screen.lines().find(|line| line.starts_with(name))
}

fn hold(store: &Store, name: &str, label: &str) -> Running {
    let mut holder = store.run(&[name, "--label", label], HOLD);
    assert_eq!(holder.line(), "held");
    holder
}

#[test]
fn locks_come_and_go_and_keys_sort_filter_and_show_the_line() {
    let store = Store::new();
    let _report = hold(&store, "report", "reporter");
    let mut first = hold(&store, "orders/1", "worker-1");
    let terminal = Terminal::start(&store, (80, 24), "--interval 100ms");
    terminal.shows("both locks are there", |screen| {
        screen.contains("2 locks, 0 waiting")
            && row(screen, "orders/1").is_some_and(|row| row.contains("worker-1"))
    });
    let _second = store.run(&["orders/1", "--label", "worker-2"], HOLD);
    terminal.shows("one waits", |screen| screen.contains("2 locks, 1 waiting"));
    terminal.keys(&["Enter"]);
    terminal.shows("the line is shown", |screen| {
        screen.contains("holds   worker-1")
            && screen.contains("1.  worker-2")
            && screen.contains("What happened")
    });
    first.say("");
    terminal.shows("the waiter moved up, and it is told", |screen| {
        screen.contains("holds   worker-2") && screen.contains("granted")
    });
    terminal.keys(&["r"]);
    terminal.shows("the order is reversed", |screen| {
        screen.contains("NAME ▲") && screen.find("report") < screen.find("orders/1")
    });
    terminal.keys(&["/", "r", "e", "p"]);
    terminal.shows("the filter is applied", |screen| {
        screen.contains("1 of 2 locks") && row(screen, "orders/1").is_none() && screen.contains("/rep")
    });
    terminal.keys(&["Escape"]);
    terminal.shows("the filter is removed", |screen| screen.contains("2 locks, 0 waiting"));
    terminal.keys(&["?"]);
    terminal.shows("the keys are listed", |screen| screen.contains("sort by waiting: longest line first"));
    terminal.keys(&["x", "q"]);
    terminal.ended_with(0);
}

#[test]
fn a_break_asks_for_a_reason_and_reaches_the_holder() {
    let store = Store::new();
    let holder = hold(&store, "job", "worker-7");
    let terminal = Terminal::start(&store, (80, 24), "--interval 100ms");
    terminal.shows("the lock is there", |screen| row(screen, "job").is_some());
    terminal.keys(&["b"]);
    terminal
        .shows("it is asked", |screen| screen.contains("Break job?") && screen.contains("Held by worker-7"));
    terminal.keys(&["Enter"]);
    terminal.shows("a reason is wanted", |screen| screen.contains("Say why"));
    terminal.keys(&["-l", "it hangs"]);
    terminal.shows("the reason is shown", |screen| screen.contains("Reason: it hangs"));
    terminal.keys(&["Enter"]);
    terminal.shows("it is broken", |screen| screen.contains("broke \"job\""));
    let (code, _, complaints) = holder.end();
    assert_eq!(code, Some(123), "{complaints}");
    assert!(complaints.contains("it hangs"), "{complaints}");
    terminal.shows("it is free", |screen| screen.contains("No lock is in use."));
    terminal.keys(&["C-c"]);
    terminal.ended_with(0);
}

#[test]
fn a_terminal_that_grows_is_used_and_one_that_shrinks_is_too() {
    let store = Store::new();
    let _holder = hold(&store, "job", "worker-7");
    let terminal = Terminal::start(&store, (200, 50), "--interval 100ms");
    terminal.shows("the lock is there", |screen| row(screen, "job").is_some());
    terminal.keys(&["Enter"]);
    terminal.shows("the pane is beside the table", |screen| {
        row(screen, "NAME").is_some_and(|line| line.contains(" job ─"))
    });
    terminal.tmux(&["resize-window", "-t", "top", "-x", "80", "-y", "24"]);
    let small = terminal.shows("the pane is below the table", |screen| {
        let lines: Vec<_> = screen.lines().collect();
        lines.len() == 24 && lines[12].contains(" job ─") && lines[23].contains("q quit")
    });
    assert!(small.lines().all(|line| line.chars().count() <= 80), "{small}");
    terminal.tmux(&["resize-window", "-t", "top", "-x", "200", "-y", "50"]);
    terminal.shows("the footer is at the end", |screen| {
        screen.lines().nth(49).is_some_and(|line| line.contains("q quit"))
    });
    terminal.keys(&["q"]);
    terminal.ended_with(0);
}

#[test]
fn a_signal_that_ends_it_gives_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let store = Store::new();
        let terminal = Terminal::start(&store, (80, 24), "--interval 100ms");
        terminal.shows("it looked", |screen| screen.contains("No lock is in use."));
        let pid = fs::read_to_string(terminal.file("pid")).expect("a process id");
        kill(pid.trim().parse().expect("a number"), signal);
        terminal.ended_with(code);
    }
}

#[test]
fn once_prints_all_locks_as_text() {
    let store = Store::new();
    let _one = hold(&store, "orders/1", "worker-1");
    let _two = hold(&store, "report", "reporter");
    let once = output(&["top", "--once", "--url", &store.url()]);
    let text = stdout(&once);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("file:") && lines[0].ends_with("  2 locks, 0 waiting"), "{text}");
    assert!(lines[2].starts_with("NAME      HELD BY   FOR"), "{text}");
    assert!(
        lines[3].starts_with("orders/1  worker-1") && lines[4].starts_with("report    reporter"),
        "{text}"
    );
    let filtered = stdout(&output(&["top", "rep", "--once", "--url", &store.url()]));
    assert!(filtered.contains("1 lock,") && !filtered.contains("orders/1"), "{filtered}");
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let store = Store::new();
    let failed = output(&["top", "--url", &store.url()]);
    assert_eq!(failed.status.code(), Some(125));
    assert!(stderr(&failed).contains("--once"), "{}", stderr(&failed));
}
