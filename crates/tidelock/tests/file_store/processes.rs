//! Readers, waiters and containers: lines of several processes in which one is killed or stopped.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    LONG, NAME,
    namespaces::{contained, skipped},
    storm_length, until, within,
    worker::{Folder, Worker, check, read},
};

#[tokio::test]
async fn a_reader_killed_among_readers_does_not_keep_the_writer_out() {
    for dies_first in [true, false] {
        let folder = Folder::new();
        let locks = folder.connect().await;
        let mut readers: Vec<_> = (0..3).map(|_| Worker::start(&folder, "read", LONG)).collect();
        for reader in &mut readers {
            reader.hear("held");
        }
        let rw = locks.rw_lock(NAME).ttl(LONG);
        let writer = tokio::spawn(async move { rw.write().await.unwrap() });
        until(&locks, NAME, |view| view.holders.len() == 3 && view.waiters.len() == 1).await;
        if dies_first {
            readers[1].kill();
            until(&locks, NAME, |view| view.holders.len() == 2).await;
            assert!(!writer.is_finished(), "two still read");
        }
        for index in [0, 2] {
            readers[index].tell();
            readers[index].hear("done");
        }
        if !dies_first {
            assert!(!writer.is_finished(), "one still reads");
            readers[1].kill();
        }
        within("the writer holds", writer).await.unwrap().release().await.unwrap();
        assert_eq!(locks.look_all().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_waiter_granted_while_it_is_stopped_does_not_believe_to_hold() {
    let folder = Folder::new();
    let (locks, other) = (folder.connect().await, folder.connect().await);
    let first = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut sleeper = Worker::start(&folder, "hold", Duration::from_secs(2));
    until(&locks, NAME, |view| view.waiters.len() == 1).await;
    let asleep = locks.look(&[NAME]).await.unwrap()[0].waiters[0].id;
    let mutex = other.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until(&locks, NAME, |view| view.waiters.len() == 2).await;
    sleeper.signal(Signal::STOP);
    sleeper.wait_until_stopped();
    first.release().await.unwrap();
    // It is its turn, and it does not know.
    until(&locks, NAME, |view| view.holders.first().is_some_and(|holder| holder.id == asleep)).await;
    let guard = within("the lease of the sleeper ends", waiter).await.unwrap();
    sleeper.signal(Signal::CONT);
    // It hears of its grant now, and takes a new place instead of it.
    until(&locks, NAME, |view| view.waiters.len() == 1).await;
    assert!(guard.is_held());
    let before = guard.token().get();
    guard.release().await.unwrap();
    let token: u64 = sleeper.hear("held").parse().unwrap();
    assert!(token > before, "it believed to hold with the token {token}, and {before} was in use");
}

/// A worker with process numbers, mounts and a network of its own, as in a container.
fn start_in_container(folder: &Folder, job: &str) -> Option<Worker> {
    let command = contained(&["--pid", "--mount", "--mount-proc", "--net"], "")?;
    Some(Worker::run(command, folder, job, LONG).unwrap())
}

/// The worker itself: what was started is `unshare`, and the worker is its child.
fn inner(worker: &Worker) -> Pid {
    let pid = worker.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn two_containers_that_share_the_directory_share_the_locks() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let Some(mut contained) = start_in_container(&folder, "hold") else {
        return skipped("this user may not make namespaces with unshare");
    };
    let before: u64 = contained.hear("held").parse().unwrap();
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
    let mutex = locks.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until(&locks, NAME, |view| view.waiters.len() == 1).await;
    kill_process(inner(&contained), Signal::KILL).unwrap();
    let guard = within("the one outside holds", waiter).await.unwrap();
    assert!(guard.token().get() > before);
    // And the other way round: a bell from outside is heard inside.
    let mut contained = start_in_container(&folder, "hold").unwrap();
    until(&locks, NAME, |view| view.waiters.len() == 1).await;
    let before = guard.token().get();
    guard.release().await.unwrap();
    assert!(contained.hear("held").parse::<u64>().unwrap() > before);
}

#[test]
fn processes_in_and_out_of_a_container_count_without_losing_any() {
    let folder = Folder::new();
    let Some(inside) = start_in_container(&folder, "rounds 200") else {
        return skipped("this user may not make namespaces with unshare");
    };
    let outside = Worker::start(&folder, "rounds 200", LONG);
    for mut worker in [inside, outside] {
        worker.hear("done");
    }
    assert_eq!(read(&folder.0).0, 400);
    assert_eq!(check(&folder.0), (400, Vec::new()));
}

#[test]
#[ignore = "needs TIDELOCK_EARLIER_WORKER: this test program as an earlier version built it"]
fn programs_of_an_earlier_version_and_of_this_one_count_without_losing_any() {
    let folder = Folder::new();
    let earlier = std::env::var_os("TIDELOCK_EARLIER_WORKER").expect("the path of the program");
    let start_earlier = || Worker::run(Command::new(&earlier), &folder, "rounds 1000000000", LONG).unwrap();
    let start = || Worker::start(&folder, "rounds 1000000000", LONG);
    let mut workers: Vec<_> = (0..3).flat_map(|_| [start_earlier(), start()]).collect();
    let (end, mut kills) = (Instant::now() + storm_length(), 0);
    while Instant::now() < end {
        // As a fault injector: no condition could say when.
        std::thread::sleep(Duration::from_millis(5));
        let victim = kills % workers.len();
        workers[victim].kill();
        workers[victim] = if victim % 2 == 0 { start_earlier() } else { start() };
        kills += 1;
    }
    drop(workers);
    let (holds, breaches) = check(&folder.0);
    println!("{kills} kills, {holds} holds, {} breaches", breaches.len());
    assert_eq!(breaches, Vec::<String>::new());
    assert!(kills > 50 && holds > 50, "{kills} kills, {holds} holds");
}
