//! Processes that run out of file descriptors or memory.

use std::{fs::File, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidelock::Locks;

use super::{
    LONG, NAME, until, within,
    worker::{Folder, Worker, say, told},
};

/// Opens files until there is no descriptor left.
fn exhaust_descriptors() -> Vec<File> {
    let limit = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
                return files;
            }
        }
    }
}

/// A worker that holds, has no descriptor left, and tells what then works and what does not.
pub(crate) async fn hold_without_descriptors(locks: &Locks, ttl: Duration) {
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    let _files = exhaust_descriptors();
    say("held");
    // Over several renewals.
    tokio::time::sleep(ttl * 2).await;
    say(&format!("is held: {}", guard.is_held()));
    let mut failed = None;
    for index in 0..500 {
        if let Err(error) = locks.mutex(format!("names/{index}")).try_lock().await {
            failed = Some(error);
            break;
        }
    }
    say(&format!("lock: {}", failed.expect("some shard was never opened")));
    let url = format!("file:{}/locks", super::process::Job::of_this_process().unwrap().place);
    say(&format!("connect: {}", Locks::connect(&url).await.unwrap_err()));
    told().await;
    guard.release().await.unwrap();
    say("released");
}

/// A worker that waits without a descriptor to watch those who are ahead.
pub(crate) async fn wait_without_descriptors(locks: &Locks, ttl: Duration) {
    // The shard is open from here on.
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    let _files = exhaust_descriptors();
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    say(&format!("held {}", guard.token()));
    guard.release().await.unwrap();
}

/// A worker that holds and then asks for more memory than it may have.
pub(crate) async fn hold_without_memory(locks: &Locks, ttl: Duration) {
    let guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
    say(&format!("held {}", guard.token()));
    told().await;
    let limit = Rlimit { current: Some(64 << 20), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).unwrap();
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![1_u8; 1 << 20]);
    }
}

#[tokio::test]
async fn a_holder_without_descriptors_keeps_its_lock_and_errors_name_the_limit() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let mut holder = Worker::start(&folder, "exhausted", Duration::from_secs(1));
    holder.hear("held");
    let mutex = locks.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    assert_eq!(holder.hear("is held:"), "true");
    for what in ["lock:", "connect:"] {
        let error = holder.hear(what);
        assert!(error.contains("ulimit -n"), "{what} {error}");
    }
    assert!(!waiter.is_finished(), "the lock was renewed all the time");
    holder.tell();
    holder.hear("released");
    within("the next holds", waiter).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_without_descriptors_gets_the_lock_when_its_holder_leaves_or_dies() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    for dies in [true, false] {
        let mut holder = Worker::start(&folder, "pass", Duration::from_secs(1));
        holder.hear("held");
        let mut waiter = Worker::start(&folder, "exhausted-waiter", LONG);
        until(&locks, NAME, |view| view.waiters.len() == 1).await;
        if dies {
            holder.kill();
        } else {
            holder.tell();
        }
        waiter.hear("held");
    }
}

#[tokio::test]
async fn a_holder_that_dies_for_want_of_memory_lets_the_next_in_at_once() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let mut holder = Worker::start(&folder, "starved", LONG);
    let before: u64 = holder.hear("held").parse().unwrap();
    let mutex = locks.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until(&locks, NAME, |view| view.waiters.len() == 1).await;
    holder.tell();
    let guard = within("the next holds", waiter).await.unwrap();
    assert!(guard.token().get() > before);
    guard.release().await.unwrap();
}
