//! Machines whose clocks are off by up to five seconds, and a job that each of them starts in every second of its own
//! clock: each second's run is done once, on one of them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use libtest_mimic::Failed;
use tidelock::{Locks, Outcome, Period};

use crate::{PATIENCE, worker::TTL};

/// Variables that make this program a machine.
const URL: &str = "TIDELOCK_MACHINE_URL";
const SKEW: &str = "TIDELOCK_MACHINE_SKEW";
const UNTIL: &str = "TIDELOCK_MACHINE_UNTIL";
const LOG: &str = "TIDELOCK_MACHINE_LOG";

/// By how many seconds clocks are off.
const SKEWS: [i64; 6] = [-5, -3, 0, 1, 4, 5];

/// How far the clocks are apart.
const APART: u64 = 10;

/// Is a machine if this process was started as one.
pub(crate) fn run_if_asked() -> bool {
    let variable = |name| std::env::var(name).ok();
    let (Some(url), Some(skew), Some(until), Some(log)) =
        (variable(URL), variable(SKEW), variable(UNTIL), variable(LOG))
    else {
        return false;
    };
    let (skew, until) = (skew.parse().expect("a number"), until.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tick(&url, skew, until, Path::new(&log)));
    true
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later").as_secs()
}

/// Starts the job again and again until its clock says `until`, and writes down what it did.
async fn tick(url: &str, skew: i64, until: u64, log: &Path) {
    let locks = Locks::connect_within(url, Duration::from_secs(60)).await.expect("the store answers");
    let job = locks.once("tick", Period::every(Duration::from_secs(1))).ttl(TTL).skewed(skew);
    let mut file = File::options().append(true).create(true).open(log).expect("a file");
    while seconds().saturating_add_signed(skew) < until {
        if let Outcome::Ran(turn) = job.start().await.expect("the store answers") {
            // Before it counts as done: if two run it, both write.
            writeln!(file, "{}", turn.slot()).expect("it is written");
            turn.done().await.expect("it is recorded");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Lets machines with different clocks run so many slots.
pub(crate) async fn play(store: &str, url: &str, folder: &Path, slots: u64) -> Result<(), Failed> {
    let until = seconds() + APART + slots;
    let log = |index: usize| folder.join(format!("machine-{index}"));
    let mut machines = Machines(Vec::new());
    for (index, skew) in SKEWS.iter().enumerate() {
        machines.0.push(
            Command::new(std::env::current_exe()?)
                .env(URL, url)
                .env(SKEW, skew.to_string())
                .env(UNTIL, until.to_string())
                .env(LOG, log(index))
                .stdin(Stdio::null())
                .spawn()?,
        );
    }
    machines.until_ended(slots).await;
    let mut runs = BTreeMap::<String, Vec<i64>>::new();
    for (index, skew) in SKEWS.into_iter().enumerate() {
        for slot in std::fs::read_to_string(log(index)).unwrap_or_default().lines() {
            runs.entry(slot.to_owned()).or_default().push(skew);
        }
    }
    let twice: Vec<_> = runs.iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(twice.is_empty(), "slots were run twice, by clocks that are off by: {twice:?}");
    assert!(runs.len() as u64 >= slots, "{} of {slots} slots were run", runs.len());
    let machines = runs.values().flatten().collect::<std::collections::BTreeSet<_>>().len();
    println!("{store}: {} slots of a second, each once, by {machines} machines", runs.len());
    Ok(())
}

struct Machines(Vec<Child>);

impl Machines {
    async fn until_ended(&mut self, slots: u64) {
        let (began, limit) = (Instant::now(), PATIENCE + Duration::from_secs(slots));
        for machine in &mut self.0 {
            let status = loop {
                if let Some(status) = machine.try_wait().expect("it is ours") {
                    break status;
                }
                assert!(began.elapsed() < limit, "a machine does not end");
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert!(status.success(), "a machine failed: {status}");
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in &mut self.0 {
            // One that has ended cannot be killed.
            let _ = machine.kill();
            let _ = machine.wait();
        }
    }
}
