//! Once per period on four stores under faults: many processes start the same jobs, some runs fail, and runners are
//! killed. Each job is done once, no two run it at the same time, and nobody runs it after it was done.
//!
//! `TIDELOCK_ONCE_SLOTS=200` has so many jobs, each with a slot of its own, and twenty processes. Machines whose clocks
//! are off run as many slots.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod ticks;
mod worker;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use test_servers::{Etcd, Postgres, Redis, Server};
use tidelock::{
    Locks, Name, Outcome, Token,
    backend::Share,
    testing::history::{self, Hold},
};
use worker::{JOBS, LABEL, LOG, URL, job};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    if worker::run_if_asked() || ticks::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Each has many processes and a server.
    arguments.test_threads.get_or_insert(2);
    let slots = std::env::var("TIDELOCK_ONCE_SLOTS").ok().and_then(|text| text.parse().ok());
    let mut trials = Vec::new();
    for (store, open) in STORES {
        let name = format!("{store}::each_slot_is_done_once_though_runs_fail_and_runners_are_killed");
        trials.push(Trial::test(name, move || {
            on(open, async |url, folder| play(store, url, folder, slots).await)
        }));
        let name = format!("{store}::clocks_that_are_off_by_five_seconds_run_each_slot_once");
        trials.push(Trial::test(name, move || {
            let slots = slots.map_or(5, |slots| slots as u64);
            on(open, async |url, folder| ticks::play(store, url, folder, slots).await)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Does something with a store and a folder.
fn on(open: Open, work: impl AsyncFnOnce(&str, &Path) -> Result<(), Failed>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (server, folder) = (open(), tempfile::tempdir()?);
    let url = server.as_ref().map_or_else(
        || format!("file:{}", folder.path().join("locks").display()),
        |server| server.url().to_owned(),
    );
    runtime.block_on(work(&url, folder.path()))
}

type Open = fn() -> Option<Server>;

const STORES: [(&str, Open); 4] = [
    ("file", || None),
    ("redis", || Some(Redis::new().patient().start().expect("a server"))),
    ("postgres", || Some(Postgres::new().start().expect("a server"))),
    ("etcd", || Some(Etcd::new().start().expect("a server"))),
];

async fn play(store: &str, url: &str, folder: &Path, slots: Option<usize>) -> Result<(), Failed> {
    let (jobs, runners) = slots.map_or((24, 6), |slots| (slots, 20));
    let locks = Locks::connect_within(url, PATIENCE).await?;
    let mut cast = Cast { url: url.to_owned(), folder: folder.to_owned(), jobs, running: Vec::new() };
    (0..runners).for_each(|runner| cast.start(runner));
    // Runners are killed in between and started again.
    let kills = jobs / 8;
    for kill in 1..=kills {
        cast.until("runs go on", |runs| runs.len() >= jobs * kill / (2 * kills)).await?;
        cast.kill(kill % runners);
    }
    cast.until_ended().await?;
    let runs = cast.runs()?;
    for number in 0..jobs {
        let again = job(&locks, number).start().await?;
        assert!(matches!(again, Outcome::Done(ref done) if !done.failed), "{again:?}");
    }
    let holds: Vec<_> = runs.values().map(|run| run.hold.clone()).collect();
    history::check(&holds).map_err(|breach| breach.to_string())?;
    for done in runs.values().filter(|run| run.done.is_some()) {
        let later = |run: &&Run| run.hold.name == done.hold.name && Some(run.hold.used) > done.done;
        assert!(!runs.values().any(|run| later(&run)), "{:?} was run after it was done", done.hold);
        let same = |run: &&Run| run.hold.name == done.hold.name && run.done.is_some();
        assert_eq!(runs.values().filter(same).count(), 1, "{:?} was done once", done.hold.name);
    }
    let failed = runs.values().filter(|run| run.done.is_none()).count();
    println!("{store}: {jobs} slots, {runners} processes, {} runs, {failed} failed or killed", runs.len());
    Ok(())
}

/// One run of a job.
#[derive(Debug)]
struct Run {
    hold: Hold,
    /// When the runner knew that it was recorded, if it came that far.
    done: Option<u64>,
}

/// The runners.
struct Cast {
    url: String,
    folder: PathBuf,
    jobs: usize,
    running: Vec<Child>,
}

impl Cast {
    fn start(&mut self, runner: usize) {
        let child = self.spawn(runner);
        self.running.push(child);
    }

    fn spawn(&self, runner: usize) -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .env(URL, &self.url)
            .env(LABEL, format!("runner-{runner}"))
            .env(LOG, self.folder.join(format!("runner-{runner}")))
            .env(JOBS, self.jobs.to_string())
            .stdin(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    fn kill(&mut self, runner: usize) {
        let child = &mut self.running[runner];
        child.kill().and_then(|()| child.wait()).expect("it is killed");
        self.running[runner] = self.spawn(runner);
    }

    async fn until(&self, what: &str, is: impl Fn(&BTreeMap<u64, Run>) -> bool) -> Result<(), Failed> {
        let began = Instant::now();
        while !is(&self.runs()?) {
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn until_ended(&mut self) -> Result<(), Failed> {
        let began = Instant::now();
        for child in &mut self.running {
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                assert!(began.elapsed() < PATIENCE, "a runner does not end");
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert!(status.success(), "a runner failed: {status}");
        }
        Ok(())
    }

    /// All runs, by their tokens.
    fn runs(&self) -> Result<BTreeMap<u64, Run>, Failed> {
        let mut runs = BTreeMap::new();
        for runner in 0..self.running.len() {
            let text =
                std::fs::read_to_string(self.folder.join(format!("runner-{runner}"))).unwrap_or_default();
            // The last line may be half of one.
            for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                let &[what, number, token, at] = &line.split(' ').collect::<Vec<_>>()[..] else {
                    return Err(format!("what is {line:?}?").into());
                };
                let (token, at): (u64, u64) = (token.parse()?, at.parse()?);
                let name = Name::new(&format!("job-{number}"))?;
                // Tokens of different jobs may be equal.
                let key = token ^ number.parse::<u64>()?.rotate_right(10);
                let run = runs.entry(key).or_insert_with(|| Run {
                    hold: Hold {
                        name,
                        client: runner,
                        share: Share::Exclusive,
                        owner: None,
                        token: Token::from_u64(token),
                        asked: at,
                        got: at,
                        got_at: Duration::from_nanos(at),
                        used: at,
                        usable: true,
                    },
                    done: None,
                });
                match what {
                    "ran" => run.hold.used = at,
                    _ => run.done = Some(at),
                }
            }
        }
        Ok(runs)
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for child in &mut self.running {
            // One that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
