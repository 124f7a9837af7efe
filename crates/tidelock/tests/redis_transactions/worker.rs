//! What worker processes do with transactions.

use std::time::Duration;

use tidelock::{Locks, testing::Clock};

pub(crate) use crate::process::Worker;
use crate::process::{Job, say};

/// The lock that workers share.
pub(crate) const NAME: &str = "the lock";

/// One time that a worker had the lock, on the clock that all processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Worker {
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
}

/// What a worker does, if this process is one.
pub(crate) fn work() {
    let Some(job) = Job::of_this_process() else { return };
    let (url, ttl) = (job.place.clone(), job.ttl);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match job.words() {
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
