//! Worker processes: this test binary, started again with a job in its environment.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tidelock::Locks;

use crate::support::{NAME, Place};

const JOB: &str = "TIDELOCK_TEST_JOB";
const URL: &str = "TIDELOCK_TEST_URL";
const TTL: &str = "TIDELOCK_TEST_TTL";

/// A worker process. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts one that waits for the lock, holds it, and says when it was lost.
    pub(crate) fn start(place: &Place, ttl: Duration) -> Self {
        Self::start_as(place, ttl, "")
    }

    /// As [`start`](Self::start), on behalf of an owner.
    pub(crate) fn start_as(place: &Place, ttl: Duration, owner: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(JOB, format!("hold {owner}"))
            .env(URL, place.url())
            .env(TTL, ttl.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    /// Waits until the worker says something that begins so, and gives the rest.
    pub(crate) fn hear(&mut self, beginning: &str) -> String {
        for line in self.said.by_ref() {
            if let Some(rest) = line.unwrap().strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
        panic!("the worker ended without saying {beginning:?}")
    }

    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
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

/// Does a worker's job, if this process is one.
pub(crate) fn work() -> bool {
    let Ok(job) = std::env::var(JOB) else { return false };
    let url = std::env::var(URL).unwrap();
    let ttl = Duration::from_millis(std::env::var(TTL).unwrap().parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&url).await.unwrap();
        let owner = job.strip_prefix("hold ").expect("there is one job");
        hold(&locks, ttl, owner).await
    });
    true
}

/// Holds until it is killed, and says when it has lost the lock.
async fn hold(locks: &Locks, ttl: Duration, owner: &str) {
    let mut mutex = locks.mutex(NAME).ttl(ttl);
    if !owner.is_empty() {
        mutex = mutex.owner(owner);
    }
    let guard = mutex.lock().await.unwrap();
    println!("held {}", guard.token());
    let loss = guard.lost().await;
    println!("lost {loss}");
    std::future::pending().await
}
