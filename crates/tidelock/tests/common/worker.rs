//! Worker processes: this test binary, started again with a job in its environment.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    io::{self, BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const JOB: &str = "TIDELOCK_TEST_JOB";
const PLACE: &str = "TIDELOCK_TEST_PLACE";
const TTL: &str = "TIDELOCK_TEST_TTL";

/// What a worker is to do.
#[derive(Debug)]
pub(crate) struct Job {
    /// What, and with what.
    pub(crate) what: String,
    /// Where: a URL or a directory.
    pub(crate) place: String,
    pub(crate) ttl: Duration,
}

impl Job {
    /// The job of this process, if it is a worker.
    pub(crate) fn of_this_process() -> Option<Self> {
        let what = std::env::var(JOB).ok()?;
        let ttl = Duration::from_millis(std::env::var(TTL).unwrap().parse().unwrap());
        Some(Self { what, place: std::env::var(PLACE).unwrap(), ttl })
    }

    /// What, and with what.
    pub(crate) fn words(&self) -> (&str, &str) {
        self.what.split_once(' ').unwrap_or((&self.what, ""))
    }
}

/// Tells the test something, on a line of its own, whatever the harness wrote before.
pub(crate) fn say(what: &str) {
    println!("\n@{what}");
}

/// A worker process. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(place: &(impl ToString + ?Sized), what: &str, ttl: Duration) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), place, what, ttl).unwrap()
    }

    /// Starts a worker with a command that runs this program.
    pub(crate) fn run(
        mut command: Command,
        place: &(impl ToString + ?Sized),
        what: &str,
        ttl: Duration,
    ) -> io::Result<Self> {
        command
            .args(["worker_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(JOB, what)
            .env(PLACE, place.to_string())
            .env(TTL, ttl.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Ok(Self { child, said })
    }

    /// Tells a worker that waits for it to go on.
    pub(crate) fn tell(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until a worker that is done has ended: until then it has its session.
    pub(crate) fn end(mut self) {
        self.child.wait().unwrap();
    }

    /// Waits until the worker says something that begins so, and gives the rest.
    pub(crate) fn hear(&mut self, beginning: &str) -> String {
        let mut heard = Vec::new();
        for line in self.said.by_ref() {
            let line = line.unwrap();
            if let Some(rest) = line.strip_prefix('@').and_then(|line| line.strip_prefix(beginning)) {
                return rest.trim().to_owned();
            }
            heard.push(line);
        }
        panic!("the worker ended without saying {beginning:?}, but: {heard:?}")
    }

    /// Waits until the worker is stopped.
    pub(crate) fn wait_until_stopped(&self) {
        let (_, status) =
            waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
