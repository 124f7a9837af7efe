//! What the machine knows about processes, and what it is.

use std::{fs, process::Command, thread, time::Duration};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::stores::Store;

/// What was measured, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) server: String,
    pub(super) machine: String,
}

/// What a store ran on.
pub(super) fn about(store: &Store) -> About {
    let server = match store.package {
        Some(package) => format!("{package} {}", version_of(package)),
        None => "no server".to_owned(),
    };
    About { server, machine: machine() }
}

fn version_of(package: &str) -> String {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    version.ok().filter(|version| !version.is_empty()).unwrap_or_else(|| "of an unknown version".to_owned())
}

fn machine() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unknown processor", |(_, name)| name.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {processor}, Linux {}", kernel.trim())
}

/// A warning when the machine does something before anything is measured.
pub(super) fn busy() -> Option<String> {
    let before = times()?;
    thread::sleep(Duration::from_millis(300));
    let (work, all) = times().map(|(work, all)| (work - before.0, all - before.1))?;
    let share = work / all.max(1.0);
    (share > 0.2).then(|| {
        format!(
            "note: {:.0} % of the machine are in use by others: take no number from this run",
            share * 100.0
        )
    })
}

/// How much processors have worked so far, and for how long they could have.
fn times() -> Option<(f64, f64)> {
    let statistics = fs::read_to_string("/proc/stat").ok()?;
    let times = statistics.lines().next()?.split_whitespace().skip(1);
    let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
    let (all, idle) = (times.iter().sum::<f64>(), times.get(3)? + times.get(4)?);
    Some((all - idle, all))
}

fn tasks_of(pid: u32) -> impl Iterator<Item = i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Where a process may run from now on, with all its threads.
fn allow(pid: u32, processors: &CpuSet) {
    for task in tasks_of(pid) {
        // A thread that is gone needs no place.
        let _ = sched_setaffinity(Pid::from_raw(task), processors);
    }
}

/// Keeps a process on one core of those that we have.
pub(crate) fn pin(pid: u32, core: usize) {
    let Ok(ours) = sched_getaffinity(None) else { return };
    let Some(core) = (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core)).nth(core) else { return };
    let mut one = CpuSet::new();
    one.set(core);
    allow(pid, &one);
}

/// Lets a process run where we may.
pub(super) fn unpin(pid: u32) {
    if let Ok(ours) = sched_getaffinity(None) {
        allow(pid, &ours);
    }
}

/// A process and those that it started.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, field(pid, 1)?))
        })
        .collect();
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        all.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    all
}

/// A field of `/proc/PID/stat`, counted after the name.
fn field<T: std::str::FromStr>(pid: u32, index: usize) -> Option<T> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(index)?.parse().ok()
}

/// Seconds that processors worked for processes, to the nanosecond.
pub(crate) fn worked(pids: &[u32]) -> f64 {
    let of_task = |pid: u32, task: i32| {
        let statistics = fs::read_to_string(format!("/proc/{pid}/task/{task}/schedstat")).ok()?;
        statistics.split_whitespace().next()?.parse::<u64>().ok()
    };
    let nanos = pids.iter().flat_map(|pid| tasks_of(*pid).filter_map(move |task| of_task(*pid, task)));
    nanos.sum::<u64>() as f64 / 1e9
}

/// Bytes of memory that a process has.
pub(crate) fn memory(pid: u32) -> f64 {
    bytes(pid, "VmRSS:")
}

/// The most bytes of memory that this process ever had.
pub(crate) fn peak() -> f64 {
    bytes(std::process::id(), "VmHWM:")
}

fn bytes(pid: u32, of: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(of));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1_024.0
}

/// How often the threads of a process waited for something, so far.
pub(crate) fn wakes(pid: u32) -> f64 {
    let of_task = |task: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks_of(pid).filter_map(of_task).sum::<u64>() as f64
}

/// Packets that went over the loopback interface so far.
pub(super) fn packets() -> f64 {
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let line = interfaces.lines().find_map(|line| line.trim().strip_prefix("lo:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_a_parent() {
        let own = std::process::id();
        assert!(memory(own) > 100_000.0);
        let parent = field::<u32>(own, 1).unwrap();
        assert!(family(parent).contains(&own));
    }

    #[test]
    fn work_is_counted() {
        let own = [std::process::id()];
        let start = worked(&own);
        while worked(&own) == start {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn a_pinned_process_may_run_elsewhere_again() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        pin(child.id(), 0);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert_eq!(sched_getaffinity(pid).unwrap().count(), 1);
        unpin(child.id());
        assert_eq!(sched_getaffinity(pid).unwrap().count(), sched_getaffinity(None).unwrap().count());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
