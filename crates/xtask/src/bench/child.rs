//! Many held locks, in a fresh process: what each takes in memory, and all together in time.

use std::{fs, process::Command, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tidelock::{Guard, Locks};

use super::{
    Effort, Threads,
    duel::Spread,
    report::{Row, Unit},
};
use crate::progress::Progress;

/// How many locks are held.
const LOCKS: u32 = 100_000;

/// Their lease: each is renewed at a third of it.
const TTL: Duration = Duration::from_secs(30);

/// Left out at the beginning, so that the time that follows has the renewals of one period.
const SETTLE: Duration = Duration::from_secs(5);

/// One period of renewals.
const WATCH: Duration = Duration::from_secs(10);

/// The part of a benchmark that needs a process of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store.
    url: String,
}

/// What the process found out.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    bytes_per_lock: f64,
    core: f64,
}

/// The process itself.
pub(crate) fn run(args: &Args) -> Result<bool, String> {
    let held = Threads::One.runtime()?.block_on(hold(&args.url))?;
    let json = serde_json::to_string(&held).map_err(|error| error.to_string())?;
    println!("{json}");
    Ok(true)
}

async fn hold(url: &str) -> Result<Held, String> {
    let locks = Locks::connect(url).await.map_err(|error| error.to_string())?;
    // The first lock brings up what all share.
    take(&locks, "first").await?.release().await.map_err(|error| error.to_string())?;
    let before = resident_bytes()?;
    let mut guards = Vec::new();
    for n in 0..LOCKS {
        guards.push(take(&locks, &format!("orders/{n}")).await?);
    }
    let bytes = resident_bytes()?.saturating_sub(before);
    tokio::time::sleep(SETTLE).await;
    let start = processor_time();
    tokio::time::sleep(WATCH).await;
    let worked = processor_time().saturating_sub(start);
    if !guards.iter().all(|guard| guard.is_held()) {
        return Err("a lock was lost while it was measured".to_owned());
    }
    Ok(Held {
        bytes_per_lock: bytes as f64 / f64::from(LOCKS),
        core: worked.as_secs_f64() / WATCH.as_secs_f64(),
    })
}

async fn take(locks: &Locks, name: &str) -> Result<Guard, String> {
    locks.mutex(name).ttl(TTL).lock().await.map_err(|error| error.to_string())
}

/// The memory that this process has, as the kernel counts it.
fn resident_bytes() -> Result<u64, String> {
    let status = fs::read_to_string("/proc/self/status")
        .map_err(|error| format!("memory is read from /proc/self/status, which needs Linux: {error}"))?;
    resident(&status).ok_or_else(|| "/proc/self/status has no VmRSS".to_owned())
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1_024)
}

/// The time that processors worked for this process, all threads together.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The rows of one store.
pub(super) fn rows(store: &str, url: &str, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
    let mut held = Vec::new();
    for child in 1..=effort.children {
        progress.show(&format!("{store}: 100,000 held locks: process {child} of {}", effort.children));
        held.push(spawn(url)?);
    }
    let bytes = Spread::of(held.iter().map(|held| held.bytes_per_lock).collect());
    let core = Spread::of(held.iter().map(|held| held.core).collect());
    Ok(vec![
        Row::alone(
            format!("{store}: 100,000 held, memory of each"),
            Unit::Bytes,
            bytes,
            "< 1 KiB",
            |bytes| bytes < 1_024.0,
        ),
        Row::alone(
            format!("{store}: 100,000 held, renewed with ttl 30 s"),
            Unit::Core,
            core,
            "< 5 % of a core",
            |core| core < 0.05,
        ),
    ])
}

fn spawn(url: &str) -> Result<Held, String> {
    let program = std::env::current_exe().map_err(|error| format!("xtask does not find itself: {error}"))?;
    let output = Command::new(program)
        .args(["bench-child", url])
        .output()
        .map_err(|error| format!("xtask cannot run itself: {error}"))?;
    if !output.status.success() {
        return Err(format!("bench-child failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("bench-child said nonsense: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(resident("Name:\txtask\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2_097_152));
        assert_eq!(resident("Name:\txtask\n"), None);
    }

    #[test]
    fn work_takes_processor_time() {
        let start = processor_time();
        while processor_time() == start {
            std::hint::black_box(0);
        }
    }
}
