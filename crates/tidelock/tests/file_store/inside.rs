//! Processes that die or stop inside a change of a shard, which nobody could hit from outside.

use std::{
    os::unix::process::ExitStatusExt,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    LONG, NAME, PATIENCE, storm_length, until, within,
    worker::{Folder, Worker, check},
};

fn assert_killed(worker: &mut Worker) {
    let status = worker.child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it was to kill itself: {status:?}");
}

#[tokio::test]
async fn a_process_killed_while_it_takes_a_lock_keeps_nobody_out() {
    for fault in ["half-written:kill:1", "written:kill:1"] {
        let folder = Folder::new();
        let locks = folder.connect().await;
        let first = locks.mutex(NAME).lock().await.unwrap();
        let before = first.token();
        first.release().await.unwrap();
        let mut dies = Worker::start_with_fault(&folder, "hold", LONG, fault);
        assert_killed(&mut dies);
        // Far sooner than the ttl of the dead one.
        let guard = within(fault, locks.mutex(NAME).lock()).await.unwrap();
        assert!(guard.token() > before, "{fault}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_process_killed_while_it_takes_a_place_behind_others_keeps_nobody_out() {
    for fault in ["half-written:kill:1", "written:kill:1"] {
        let folder = Folder::new();
        let (locks, other) = (folder.connect().await, folder.connect().await);
        let holder = locks.mutex(NAME).ttl(LONG).lock().await.unwrap();
        let mut dies = Worker::start_with_fault(&folder, "hold", LONG, fault);
        assert_killed(&mut dies);
        let mutex = other.mutex(NAME).ttl(LONG).label("alive");
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until(&locks, NAME, |view| view.waiters.last().is_some_and(|last| &*last.label == "alive")).await;
        holder.release().await.unwrap();
        within(fault, waiter).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_process_killed_while_it_gives_a_lock_back_lets_the_next_in_at_once() {
    // The second change of the process is the one that gives back, the first that rings a bell too.
    for fault in ["half-written:kill:2", "written:kill:2", "unrung:kill:1"] {
        let folder = Folder::new();
        let locks = folder.connect().await;
        let mut dies = Worker::start_with_fault(&folder, "pass", LONG, fault);
        let before: u64 = dies.hear("held").parse().unwrap();
        let mutex = locks.mutex(NAME).ttl(LONG);
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until(&locks, NAME, |view| view.waiters.len() == 1).await;
        dies.tell();
        assert_killed(&mut dies);
        let guard = within(fault, waiter).await.unwrap();
        assert!(guard.token().get() > before, "{fault}");
        guard.release().await.unwrap();
        assert_eq!(locks.look_all().await.unwrap(), [], "{fault}");
    }
}

#[tokio::test]
async fn a_process_stopped_inside_a_change_holds_up_its_shard_only_and_is_named() {
    for fault in ["half-written:stop:2", "written:stop:2"] {
        let folder = Folder::new();
        let (locks, other) = (folder.connect().await, folder.connect().await);
        for name in [NAME, "elsewhere"] {
            locks.mutex(name).lock().await.unwrap().release().await.unwrap();
        }
        let files = std::fs::read_dir(folder.locks()).unwrap().count();
        assert_eq!(files, 3, "two shards and the folder of sessions: the names do not share one");
        let mut stops = Worker::start_with_fault(&folder, "pass", LONG, fault);
        stops.hear("held");
        let mutex = other.mutex(NAME).ttl(LONG);
        let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until(&locks, NAME, |view| view.waiters.len() == 1).await;
        stops.tell();
        stops.wait_until_stopped();
        let error = within(fault, locks.mutex(NAME).fail_fast(true).lock()).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        if cfg!(target_os = "linux") {
            assert!(error.to_string().contains(&format!("process {} ", stops.child.id())), "{error}");
        }
        for _ in 0..100 {
            let guard = within("another shard", locks.mutex("elsewhere").lock()).await.unwrap();
            guard.release().await.unwrap();
        }
        assert!(!waiter.is_finished(), "the lock was not given back yet");
        stops.signal(Signal::CONT);
        stops.hear("done");
        within("the waiter holds", waiter).await.unwrap().release().await.unwrap();
        within("all goes on", locks.mutex(NAME).lock()).await.unwrap().release().await.unwrap();
    }
}

#[test]
fn a_storm_of_deaths_inside_changes_leaves_no_overlap_and_tokens_grow() {
    let folder = Folder::new();
    let mut state = 0x7469_6465_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let job = "rounds 1000000000";
    let start_doomed = |random: &mut dyn FnMut(u64) -> u64| {
        let point = ["half-written", "written", "unrung"][random(3) as usize];
        Worker::start_with_fault(&folder, job, LONG, &format!("{point}:kill:{}", 1 + random(40)))
    };
    // Two kill themselves within a change and two are killed; the dead ones are replaced.
    let mut doomed = [start_doomed(&mut random), start_doomed(&mut random)];
    let mut killed = [(); 2].map(|()| Worker::start(&folder, job, LONG));
    let (mut inside, mut outside) = (0, 0);
    let end = Instant::now() + storm_length();
    while Instant::now() < end {
        // As a fault injector: no condition could say when.
        std::thread::sleep(Duration::from_micros(2_000 + random(6_000)));
        for worker in &mut doomed {
            if worker.child.try_wait().unwrap().is_some() {
                assert_killed(worker);
                *worker = start_doomed(&mut random);
                inside += 1;
            }
        }
        if random(4) == 0 {
            let victim = &mut killed[random(2) as usize];
            victim.kill();
            *victim = Worker::start(&folder, job, LONG);
            outside += 1;
        }
    }
    drop((doomed, killed));
    let (holds, breaches) = check(&folder.0);
    println!("{inside} deaths inside changes, {outside} kills, {holds} holds, {} breaches", breaches.len());
    assert_eq!(breaches, Vec::<String>::new());
    assert!(inside > 0 && outside > 0 && holds > 0, "{inside} inside, {outside} outside, {holds} holds");
    // After the storm it works as before, and long before any ttl is over.
    let begun = Instant::now();
    Worker::start(&folder, "rounds 10", LONG).hear("done");
    assert!(begun.elapsed() < PATIENCE);
}
