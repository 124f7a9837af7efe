//! Worker processes: this test binary, started again with a job in its environment.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use tidelock::{Locks, clock::Clock};

/// The lock that workers share.
pub(crate) const NAME: &str = "the lock";

const JOB: &str = "TIDELOCK_TEST_JOB";
const URL: &str = "TIDELOCK_TEST_URL";
const TTL: &str = "TIDELOCK_TEST_TTL";

/// One time that a worker had the lock, on the clock that all processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// A worker process. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(url: &str, job: &str, ttl: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["worker_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(JOB, job)
            .env(URL, url)
            .env(TTL, ttl.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, said }
    }

    /// Waits until the worker says something that begins so, and gives the rest.
    pub(crate) fn hear(&mut self, beginning: &str) -> String {
        for line in self.said.by_ref() {
            let line = line.unwrap();
            if let Some(rest) = line.strip_prefix('@').and_then(|line| line.strip_prefix(beginning)) {
                return rest.trim().to_owned();
            }
        }
        panic!("the worker ended without saying {beginning:?}")
    }

    /// All that a worker of rounds held, when it is done.
    pub(crate) fn holds(mut self) -> Vec<Hold> {
        let count: usize = self.hear("done").parse().unwrap();
        let read = |_| {
            let text = self.hear("had");
            let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
            Hold { token: numbers[0], from: numbers[1], until: numbers[2] }
        };
        (0..count).map(read).collect()
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

/// What a worker does, if this process is one.
pub(crate) fn work() {
    let Ok(job) = std::env::var(JOB) else { return };
    let url = std::env::var(URL).unwrap();
    let ttl = Duration::from_millis(std::env::var(TTL).unwrap().parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match job.split_once(' ').unwrap_or((&job, "")) {
            ("hold", _) => hold(&url, ttl).await,
            ("rounds", seconds) => {
                let time = Duration::from_secs(seconds.parse().unwrap());
                let clients = [0; 2].map(|_| tokio::spawn(rounds(url.clone(), ttl, time)));
                let mut all = Vec::new();
                for client in clients {
                    all.extend(client.await.unwrap());
                }
                say(&format!("done {}", all.len()));
                for Hold { token, from, until } in all {
                    say(&format!("had {token} {from} {until}"));
                }
            }
            other => panic!("no such job: {other:?}"),
        }
    });
}

fn say(what: &str) {
    // On a line of its own, whatever the harness wrote before.
    println!("\n@{what}");
}

/// Holds until it is killed.
async fn hold(url: &str, ttl: Duration) {
    let locks = Locks::connect(url).await.unwrap();
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    say(&format!("held {}", guard.token()));
    std::future::pending().await
}

/// Takes the lock again and again, by a client of its own: in line, and by trying.
async fn rounds(url: String, ttl: Duration, time: Duration) -> Vec<Hold> {
    let (clock, mut holds) = (Clock::machine(), Vec::new());
    let mutex = Locks::connect(&url).await.unwrap().mutex(NAME).ttl(ttl);
    let end = clock.now() + time;
    for round in 0_u64.. {
        if clock.now() >= end {
            break;
        }
        let guard = if round % 5 == 4 {
            let Some(guard) = mutex.try_lock().await.unwrap() else { continue };
            guard
        } else {
            mutex.lock().await.unwrap()
        };
        let from = clock.now().as_nanos();
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        let until = clock.now().as_nanos();
        holds.push(Hold { token: guard.token().get(), from, until });
        guard.release().await.unwrap();
    }
    holds
}
