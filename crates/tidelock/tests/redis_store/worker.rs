//! What worker processes do on Redis.

use std::time::Duration;

use tidelock::Locks;

pub(crate) use crate::process::Worker;
use crate::{
    process::{Job, say},
    support::NAME,
};

/// Does a worker's job, if this process is one.
pub(crate) fn work() -> bool {
    let Some(job) = Job::of_this_process() else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&job.place).await.unwrap();
        let ("hold", owner) = job.words() else { panic!("no such job: {job:?}") };
        hold(&locks, job.ttl, owner).await
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
    say(&format!("held {}", guard.token()));
    let loss = guard.lost().await;
    say(&format!("lost {loss}"));
    std::future::pending().await
}
