//! What it costs, against the same without any of it. Measured on request only.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use super::{
    LONG,
    worker::{Folder, Worker, check, read},
};

const PAIRS: u32 = 20_000;
const ROUNDS: usize = 7;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Locks a kept file, reads a counter or does not, writes it, unlocks.
fn bare(file: &File, reads: bool) -> Duration {
    let mut before = [0; 8];
    let begun = Instant::now();
    for count in 0..u64::from(PAIRS) {
        file.lock().unwrap();
        if reads {
            file.read_exact_at(&mut before, 0).unwrap();
        }
        file.write_all_at(&count.to_le_bytes(), 0).unwrap();
        file.unlock().unwrap();
    }
    begun.elapsed() / PAIRS
}

async fn pairs(mutex: &tidelock::Mutex) -> Duration {
    let begun = Instant::now();
    for _ in 0..PAIRS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    begun.elapsed() / PAIRS
}

#[tokio::test]
#[ignore = "measures: run it alone, with --release"]
async fn figures() {
    let folder = Folder::new();
    let locks = folder.connect().await;
    let file = File::options().read(true).write(true).create_new(true).open(folder.0.join("bare")).unwrap();
    let mutex = locks.mutex("one").ttl(Duration::from_secs(600));
    let (mut flocks, mut counts) = (Vec::new(), Vec::new());
    let (mut alone, mut among) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        flocks.push(bare(&file, false));
        counts.push(bare(&file, true));
        alone.push(pairs(&mutex).await);
    }
    let begun = Instant::now();
    let mut guards = Vec::with_capacity(100_000);
    for index in 0..100_000 {
        let other = locks.mutex(format!("orders/{index}")).ttl(Duration::from_secs(600));
        guards.push(other.lock().await.unwrap());
    }
    let made = begun.elapsed() / 100_000;
    for _ in 0..ROUNDS {
        among.push(pairs(&mutex).await);
    }
    let begun = Instant::now();
    let seen = locks.look_all().await.unwrap().len();
    let looked = begun.elapsed();
    let size: u64 =
        fs::read_dir(folder.locks()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let (flock, count, alone, among) = (median(flocks), median(counts), median(alone), median(among));
    println!("flock, write, unlock: {flock:?}; flock, read, write, unlock: {count:?}");
    println!(
        "lock + release: {alone:?}, {:.2} and {:.2} times that",
        alone.as_secs_f64() / flock.as_secs_f64(),
        alone.as_secs_f64() / count.as_secs_f64()
    );
    println!(
        "with 100,000 other names held: {among:?}, {:.2} times",
        among.as_secs_f64() / alone.as_secs_f64()
    );
    println!("each of them was locked in {made:?}; looking at all {seen} took {looked:?}; {size} bytes");
    let begun = Instant::now();
    for guard in guards {
        guard.release().await.unwrap();
    }
    println!("each of them was released in {:?}", begun.elapsed() / 100_000);
}

#[test]
#[ignore = "measures: run it alone, with --release"]
fn hand_overs() {
    let turns =
        std::env::var("TIDELOCK_HAND_OVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let (turns, rounds) = (format!("turns {}", turns / 4), "rounds 5000".to_owned());
    for (job, what) in [(turns, "with nothing to do"), (rounds, "each writing files")] {
        let folder = Folder::new();
        let begun = Instant::now();
        let mut workers: Vec<_> = (0..4).map(|_| Worker::start(&folder, &job, LONG)).collect();
        let mut ends = Vec::new();
        for worker in &mut workers {
            let longest = worker.hear("done");
            ends.push((begun.elapsed(), longest));
        }
        let each: u32 = job.split(' ').next_back().unwrap().parse().unwrap();
        println!(
            "4 processes, {each} turns each, {what}: {:?} a turn; ends and longest waits {ends:?}",
            ends[3].0 / (4 * each)
        );
        if job.starts_with("rounds") {
            assert_eq!(read(&folder.0).0, u64::from(4 * each));
            assert_eq!(check(&folder.0), (4 * each as usize, Vec::new()));
        }
    }
}

/// Jain's index of how often each got the lock: 1 is the same for all, a quarter is one for itself.
#[test]
#[ignore = "measures: run it alone, with --release"]
fn fairness() {
    let folder = Folder::new();
    let mut workers: Vec<_> = (0..4).map(|_| Worker::start(&folder, "grants 5", LONG)).collect();
    for worker in &mut workers {
        worker.hear("ready");
    }
    workers.iter_mut().for_each(Worker::tell);
    let grants: Vec<f64> = workers.iter_mut().map(|worker| worker.hear("done").parse().unwrap()).collect();
    let sum: f64 = grants.iter().sum();
    let index = sum * sum / (4.0 * grants.iter().map(|grants| grants * grants).sum::<f64>());
    println!("grants of 4 processes in 5 s: {grants:?}, J = {index:.4}");
    assert!(index >= 0.95, "J = {index}");
}
