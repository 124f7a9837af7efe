//! The shell's twin of the example `worker_pool`, with the real binary.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use common::until;
use rustix::process::{Pid, Signal, kill_process_group};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tidelock/examples/worker_pool.sh");

/// A worker, with its commands in a group of processes as in a terminal. Killed at the end of the test.
struct Worker(Child);

impl Worker {
    fn start(url: &str, log: &Path) -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().expect("a directory");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        // The tests may be started with signals ignored, and their children would inherit that.
        let mut command = Command::new("env");
        command.args(["--default-signal", "sh", SCRIPT, url]).arg(log);
        command.env("PATH", path).env_remove("TIDELOCK_URL_FILE").env_remove("TIDELOCK_URL_WITHHELD");
        Self(command.stdin(Stdio::null()).process_group(0).spawn().expect("a shell"))
    }

    fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.0), signal).expect("the worker runs");
    }

    fn end(&mut self) -> ExitStatus {
        until("a worker ends", || self.0.try_wait().expect("a child").is_some());
        self.0.wait().expect("a child")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The workers that did each job, from a log with a line `JOB TOKEN WORKER` for each result.
fn results(log: &Path) -> BTreeMap<u32, Vec<u32>> {
    let mut results = BTreeMap::<u32, Vec<u32>>::new();
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        let [job, token, worker] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        assert!(token.parse::<u64>().is_ok(), "{line:?}");
        results.entry(job.parse().expect("a job")).or_default().push(worker.parse().expect("a process"));
    }
    results
}

/// Takes a worker that has done a job out of the list.
fn take_one_that_works(log: &Path, workers: &mut Vec<Worker>) -> Worker {
    let mut found = None;
    until("a worker has done a job", || {
        let results = results(log);
        let has_worked = |worker: &Worker| results.values().flatten().any(|pid| *pid == worker.0.id());
        found = workers.iter().position(has_worked);
        found.is_some()
    });
    workers.remove(found.expect("a worker"))
}

#[test]
fn four_workers_do_every_job_once_though_one_is_stopped_and_one_is_killed() {
    let folder = tempfile::tempdir().expect("a directory");
    let (url, log) = (format!("file:{}", folder.path().join("locks").display()), folder.path().join("log"));
    // So that work is left until two are gone.
    let hold = ["17", "18", "19"].map(|job| {
        let mut hold =
            common::Running::start(&[&format!("job/{job}"), "--url", &url], "echo held; read line");
        assert_eq!(hold.line(), "held");
        hold
    });
    let mut workers: Vec<_> = (0..4).map(|_| Worker::start(&url, &log)).collect();
    let mut stopped = take_one_that_works(&log, &mut workers);
    stopped.signal(Signal::INT);
    assert_eq!(stopped.end().code(), Some(130));
    let mut killed = take_one_that_works(&log, &mut workers);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().signal(), Some(9));
    drop(hold);
    for worker in &mut workers {
        assert!(worker.end().success());
    }
    let results = results(&log);
    assert!(results.keys().copied().eq(0..20), "{results:?}");
    assert!(results.values().all(|workers| workers.len() == 1), "{results:?}");
}
