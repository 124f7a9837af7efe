//! A pool of workers: start it four times, and every job is done once. In the shell: `worker_pool.sh`.
//!
//!     cargo run --example worker_pool --features redis -- redis://localhost results.log

use std::{collections::HashMap, fs, io::Write, time::Duration};

use tidelock::{Locks, fence::Highest};

type Failed = Box<dyn std::error::Error + Send + Sync>;

const JOBS: u32 = 20;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("file:".into());
    let log = args.next().unwrap_or("results.log".into());
    let locks = Locks::builder(url).ttl(Duration::from_secs(10)).connect().await?;
    let ended = tokio::select! {
        biased; // so that Ctrl-C is heard before the first job begins
        _ = tokio::signal::ctrl_c() => Err("stopped by Ctrl-C".into()),
        done = work(&locks, &log) => done,
    };
    // Before the runtime ends: what is still held is released.
    locks.shutdown(Duration::from_secs(5)).await;
    ended
}

async fn work(locks: &Locks, log: &str) -> Result<(), Failed> {
    while results(log)?.len() < JOBS as usize {
        for job in 0..JOBS {
            let Some(guard) = locks.mutex(format!("job/{job}")).try_lock().await? else { continue };
            // If the lock is lost, the job stops at its next await.
            let done = guard.try_run(async |held| {
                if !results(log)?.contains_key(&job) {
                    tokio::time::sleep(Duration::from_millis(100)).await; // the job itself
                    let line = format!("{job} {} {}\n", held.token(), std::process::id());
                    // In one write, so that results do not mix.
                    fs::File::options().create(true).append(true).open(log)?.write_all(line.as_bytes())?;
                }
                Ok::<_, Failed>(())
            });
            done.await.unwrap_or_else(|why| eprintln!("job {job}: {why}"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await; // others are at the rest, and may die
    }
    Ok(())
}

/// Reads the results. Fencing: a token that is older than one before it is of a holder that lost its lock.
fn results(log: &str) -> Result<HashMap<u32, String>, Failed> {
    let (mut fences, mut results) = (HashMap::<u32, Highest>::new(), HashMap::new());
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        let [job, token, worker] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        if fences.entry(job.parse()?).or_default().admit(token.parse()?) {
            results.insert(job.parse()?, worker.to_owned());
        }
    }
    Ok(results)
}
