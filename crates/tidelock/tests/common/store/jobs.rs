//! What worker processes do.

use std::time::Duration;

use tidelock::{Locks, testing::Clock};

use super::{
    NAME,
    conditions::PATIENCE,
    ends,
    worker::{Job, say},
};

/// Does a worker's job, if this process is one.
pub(crate) fn work() -> bool {
    let Some(job) = Job::of_this_process() else { return false };
    if let ("end", how) = job.words() {
        ends::end(&job.place, job.ttl, how);
        return true;
    }
    let before = (job.what == "install before").then(install_provider);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect_within(&job.place, PATIENCE / 2).await.unwrap();
        match job.words() {
            ("hold", owner) => hold(&locks, job.ttl, owner).await,
            ("turns", turns) => take_turns(&locks, job.ttl, turns.parse().unwrap()).await,
            ("install", when) => install(&locks, when, before).await,
            _ => panic!("no such job: {job:?}"),
        }
    });
    true
}

/// Installs the cryptography that the program wants. Says whether it could.
fn install_provider() -> bool {
    rustls::crypto::ring::default_provider().install_default().is_ok()
}

/// Uses a lock, and says whether the program could install its cryptography.
async fn install(locks: &Locks, when: &str, before: Option<bool>) {
    locks.mutex(NAME).lock().await.unwrap().release().await.unwrap();
    let could = before.unwrap_or_else(install_provider);
    say(&format!("installed {when}: {could}"));
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

/// Takes the lock so many times, and says from when to when it relied on it each time. A store that does not answer
/// is asked again.
async fn take_turns(locks: &Locks, ttl: Duration, turns: usize) {
    // The same clock in all processes of the machine.
    let clock = Clock::machine();
    let mutex = locks.mutex(NAME).ttl(ttl);
    let (mut taken, mut errors) = (0, 0);
    while taken < turns {
        let guard = match mutex.lock().await {
            Ok(guard) => guard,
            Err(error) => {
                eprintln!("{error}");
                errors += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let from = clock.now();
        let mut until = None;
        // Some work, so that there is something to overlap with: it stops when the lock is lost.
        for _ in 0..4 {
            let now = clock.now();
            if !guard.is_held() {
                break;
            }
            until = Some(now);
            tokio::time::sleep(Duration::from_micros(250)).await;
        }
        // A process that stood still until its lease had ended relied on nothing.
        if let Some(until) = until {
            say(&format!("turn {} {} {}", from.as_nanos(), until.as_nanos(), guard.token()));
            taken += 1;
        }
        let _ = guard.release().await;
    }
    say(&format!("done {errors}"));
}
