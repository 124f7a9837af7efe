//! The store in files, with real processes: killed, stopped, many, and with files that are not right.
//!
//! `TIDELOCK_STORM_SECONDS=60` makes the storms longer. `-- --ignored --nocapture figures` measures;
//! `TIDELOCK_HAND_OVERS=1000000` makes it hand over as often.
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod broken;
mod endings;
#[path = "../common/ends.rs"]
mod ends;
mod figures;
#[cfg(feature = "testing")]
mod inside;
mod limits;
#[cfg(target_os = "linux")]
mod machines;
mod namespaces;
#[path = "../common/outlived.rs"]
mod outlived;
#[cfg(target_os = "linux")]
mod places;
#[path = "../common/worker.rs"]
mod process;
mod processes;
mod sale;
mod worker;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidelock::{Locks, Name, backend::LockView};
use worker::{Folder, NAME, Worker, check, read};

/// What takes longer hangs. Generous: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(30);

/// Not a test of its own: with a job in its environment this process is a worker.
#[test]
fn worker_process() {
    worker::work();
}

async fn within<T: Send>(what: &str, work: impl Future<Output = T> + Send) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Polls until the line looks as it should.
async fn until(locks: &Locks, name: &str, is: impl Fn(&LockView) -> bool + Send + Sync) {
    let looks = async {
        while !locks.look(&[name]).await.unwrap().first().is_some_and(&is) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within("the line looks as it should", looks).await;
}

#[tokio::test]
async fn a_holder_killed_with_9_lets_the_next_in_at_once() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let mut times = Vec::new();
    for _ in 0..5 {
        let mut holder = Worker::start(&folder, "hold", LONG);
        let before: u64 = holder.hear("held").parse().unwrap();
        let mutex = locks.mutex(NAME).ttl(LONG);
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until(&locks, NAME, |view| view.waiters.len() == 1).await;
        let killed = Instant::now();
        holder.child.kill().unwrap();
        let guard = within("the next holds", waiter).await.unwrap();
        times.push(killed.elapsed());
        assert!(guard.token().get() > before);
        guard.release().await.unwrap();
    }
    times.sort();
    println!("from kill -9 to the next holder: median {:?}, longest {:?}", times[2], times[4]);
    assert!(times[4] < Duration::from_secs(5), "{times:?}");
}

#[tokio::test]
async fn a_holder_killed_while_nobody_waited_is_noticed_by_a_try_and_by_a_newcomer() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    for tries in [true, false] {
        let mut holder = Worker::start(&folder, "hold", LONG);
        holder.hear("held");
        assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none());
        holder.kill();
        let guard = if tries {
            locks.mutex(NAME).try_lock().await.unwrap().expect("its holder is dead")
        } else {
            within("the newcomer holds", locks.mutex(NAME).lock()).await.unwrap()
        };
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn waiters_killed_with_9_do_not_block_the_line() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let guard = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
    let mut dead: Vec<_> = (0..3).map(|_| Worker::start(&folder, "hold", LONG)).collect();
    until(&locks, NAME, |view| view.waiters.len() == 3).await;
    let other = folder.connect().await;
    let mutex = other.mutex(NAME).ttl(LONG);
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until(&locks, NAME, |view| view.waiters.len() == 4).await;
    dead.iter_mut().for_each(Worker::kill);
    guard.release().await.unwrap();
    within("the living one holds", waiter).await.unwrap().release().await.unwrap();
    assert_eq!(locks.look_all().await.unwrap(), []);
}

#[tokio::test]
async fn a_writer_killed_while_it_waits_lets_the_reader_behind_it_in() {
    let folder = Folder::new();
    let (locks, other) = (folder.connect().await, folder.connect().await);
    let reader = locks.rw_lock(NAME).ttl(LONG).read().await.unwrap();
    let mut first = Worker::start(&folder, "hold", LONG);
    until(&locks, NAME, |view| view.waiters.len() == 1).await;
    let rw = other.rw_lock(NAME).ttl(LONG);
    let last = tokio::spawn(async move { rw.read().await.unwrap() });
    until(&locks, NAME, |view| view.waiters.len() == 2).await;
    // The writer goes while it waits: the claim behind it now has another one ahead.
    first.kill();
    let last = within("the reader behind the dead writer holds", last).await.unwrap();
    reader.release().await.unwrap();
    last.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_stopped_past_its_ttl_has_lost_the_lock_when_it_goes_on() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let mut holder = Worker::start(&folder, "hold", Duration::from_millis(400));
    let before: u64 = holder.hear("held").parse().unwrap();
    holder.signal(Signal::STOP);
    let guard = within("the lease ends", locks.mutex(NAME).lock()).await.unwrap();
    assert!(guard.token().get() > before);
    holder.signal(Signal::CONT);
    assert!(holder.hear("lost").contains("the lock"));
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

fn storm_length() -> Duration {
    let seconds = std::env::var("TIDELOCK_STORM_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

/// The fewest kills that are a storm.
const ENOUGH: u32 = 100;

#[test]
fn a_storm_of_kills_leaves_no_overlap_and_tokens_grow() {
    let folder = Folder::new();
    let start = || Worker::start(&folder, "rounds 1000000000", LONG);
    let mut workers: Vec<_> = (0..5).map(|_| start()).collect();
    let end = Instant::now() + storm_length();
    let (mut kills, mut state) = (0, 0x9E37_79B9_u64);
    // On a busy machine it takes longer until there were enough.
    while Instant::now() < end || kills < ENOUGH {
        // Between 2 and 8 ms, as a fault injector: no condition could say when.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(2_000 + (state >> 33) % 6_000));
        let victim = (state >> 40) as usize % workers.len();
        workers[victim].kill();
        workers[victim] = start();
        kills += 1;
    }
    drop(workers);
    let (holds, breaches) = check(&folder.0);
    println!("{kills} kills, {holds} holds, {} breaches", breaches.len());
    assert_eq!(breaches, Vec::<String>::new());
    assert!(holds > 50, "{kills} kills, {holds} holds");
    // After the storm it works as before, and at once.
    let begun = Instant::now();
    let mut last = Worker::start(&folder, "rounds 10", LONG);
    last.hear("done");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn sixty_four_processes_count_without_losing_any() {
    let folder = Folder::new();
    let mut workers: Vec<_> = (0..64).map(|_| Worker::start(&folder, "rounds 10", LONG)).collect();
    for worker in &mut workers {
        worker.hear("done");
    }
    assert_eq!(read(&folder.0).0, 640);
    assert_eq!(check(&folder.0), (640, Vec::new()));
}

#[tokio::test]
async fn two_directories_are_two_stores() {
    let (one, two) = (Folder::new(), Folder::new());
    let (a, b) = (one.connect().await, two.connect().await);
    let first = a.mutex(NAME).lock().await.unwrap();
    let second = b.mutex(NAME).try_lock().await.unwrap().expect("another store");
    assert!(a.mutex(NAME).try_lock().await.unwrap().is_none());
    first.release().await.unwrap();
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_directory_is_one_store_however_it_is_named() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let path = folder.locks();
    let guard = locks.mutex(NAME).lock().await.unwrap();
    for url in [
        format!("file://{}", path.display()),
        path.display().to_string(),
        format!("{}/../locks/", path.display()),
    ] {
        let other = Locks::connect(&url).await.unwrap();
        assert!(other.mutex(NAME).try_lock().await.unwrap().is_none(), "{url}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn hostile_names_are_locks_of_their_own_and_no_files() {
    let folder = Folder::new();
    let (locks, other) = (folder.connect().await, folder.connect().await);
    let longest = "🔒".repeat(128);
    let names =
        ["../../escape", "..", "/", "s", "00.shard", "a", "A", "a ", "%00", "{a}", "*", "-", &longest];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.mutex(name).try_lock().await.unwrap().expect(name));
        assert!(other.mutex(name).try_lock().await.unwrap().is_none(), "{name}");
    }
    let mut sorted = names.map(|name| Name::new(name).unwrap());
    sorted.sort();
    let seen: Vec<_> = other.look_all().await.unwrap().into_iter().map(|view| view.name).collect();
    assert_eq!(seen, sorted);
    let files = std::fs::read_dir(folder.locks()).unwrap().map(|entry| entry.unwrap().file_name());
    for file in files.map(|file| file.into_string().unwrap()) {
        assert!(file == "s" || file.ends_with(".shard") && file.len() == 8, "{file}");
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[tokio::test]
async fn a_client_that_ends_leaves_no_files_of_its_own_and_clears_those_of_the_dead() {
    let folder = Folder::new();
    let mut dead = Worker::start(&folder, "hold", LONG);
    dead.hear("held");
    dead.kill();
    let locks = folder.connect().await;
    let sessions = || std::fs::read_dir(folder.locks().join("s")).unwrap().count();
    assert_eq!(sessions(), 3, "doorbell, life and text of the one that lives");
    drop(locks);
    let gone = async {
        while sessions() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within("the files are gone", gone).await;
}
