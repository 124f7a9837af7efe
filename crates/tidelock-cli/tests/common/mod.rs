//! The real binary, and ways to wait for what it does.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod browser;
pub(crate) mod page;
pub(crate) mod serve;

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine: it ends tests that would hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The binary with arguments, without input, and with no store of the user who runs the tests.
pub(crate) fn tidelock<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    // What started the tests may ignore signals (nohup, a job in the background): tidelock would
    // rightly do the same.
    let mut command = Command::new("env");
    command
        .args(["--default-signal", env!("CARGO_BIN_EXE_tidelock")])
        .args(args)
        .stdin(Stdio::null())
        .env_remove("TIDELOCK_URL")
        .env_remove("TIDELOCK_URL_FILE")
        .env_remove("TIDELOCK_URL_WITHHELD");
    // The home of the user database counts otherwise, whatever HOME says.
    command.env("TIDELOCK_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/locks"));
    command
}

/// Runs it to its end.
pub(crate) fn output(args: &[&str]) -> Output {
    tidelock(args).output().expect("the binary runs")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// What it printed as JSON.
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    let output = output(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; one that has ended and that nobody has waited for does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// A store in a directory of its own.
pub(crate) struct Store(TempDir);

impl Store {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// In a directory with a name that people may read in a picture.
    pub(crate) fn named(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir();
        Self(folder.expect("a temporary directory of this name"))
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.0.path().display())
    }

    /// How many wait in the line of a name.
    pub(crate) fn waiters(&self, name: &str) -> usize {
        let lock = json(&["show", name, "--json", "--url", &self.url()]);
        lock["waiters"].as_array().expect("a list").len()
    }

    /// How many hold a name.
    pub(crate) fn holders(&self, name: &str) -> usize {
        let lock = json(&["show", name, "--json", "--url", &self.url()]);
        lock["holders"].as_array().expect("a list").len()
    }

    /// The binary with this store.
    pub(crate) fn tidelock(&self, args: &[&str]) -> Command {
        let mut command = tidelock(args);
        command.env("TIDELOCK_URL", self.url());
        command
    }

    /// Runs the binary with this store to its end.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.tidelock(args).output().expect("the binary runs")
    }

    /// A shell under a lock of this store.
    pub(crate) fn run(&self, args: &[&str], script: &str) -> Running {
        let url = self.url();
        Running::start(&[&["--url", &url], args].concat(), script)
    }
}

/// `tidelock run` with a shell script, under way.
pub(crate) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(args: &[&str], script: &str) -> Self {
        Self::of(tidelock(args_of_run(args, script)))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { input: child.stdin.take(), child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.id(), signal);
    }

    /// The next line that the script prints: empty at its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Lets a script go on that reads a line.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("a pipe"), "{line}").expect("the script reads");
    }

    /// Waits for the end: the code, what was printed since, and what was complained.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        drop(self.input.take());
        let (mut out, mut complaints) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).expect("text");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut complaints).expect("text");
        (self.child.wait().expect("it ends").code(), out, complaints)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind. What has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn args_of_run<'a>(args: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"][..], args, &["--", "sh", "-c", script]].concat()
}
