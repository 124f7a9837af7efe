//! A runner in a process of its own: starts each job until it is done, and writes down when it knew that it ran it.

use std::{collections::VecDeque, fs::File, io::Write, time::Duration};

use tidelock::{Locks, Once, Outcome, Period, testing::Clock};

/// How long a runner that is killed keeps a job, where the store does not notice its death.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// Variables that make this program a runner.
pub(crate) const URL: &str = "TIDELOCK_RUNNER_URL";
pub(crate) const LABEL: &str = "TIDELOCK_RUNNER_LABEL";
pub(crate) const LOG: &str = "TIDELOCK_RUNNER_LOG";
pub(crate) const JOBS: &str = "TIDELOCK_RUNNER_JOBS";

/// A job in a slot that lasts longer than any test.
pub(crate) fn job(locks: &Locks, number: usize) -> Once {
    let year = Period::every(Duration::from_secs(366 * 86_400));
    locks.once(format!("job-{number}"), year).ttl(TTL).retry_failed(true)
}

/// Runs jobs if this process was started for it.
pub(crate) fn run_if_asked() -> bool {
    let variable = |name| std::env::var(name).ok();
    let (Some(url), Some(label), Some(log), Some(jobs)) =
        (variable(URL), variable(LABEL), variable(LOG), variable(JOBS))
    else {
        return false;
    };
    let file = File::options().append(true).create(true).open(log).expect("a file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(&url, &label, file, jobs.parse().expect("a number")));
    true
}

async fn run(url: &str, label: &str, mut file: File, jobs: usize) {
    let locks = Locks::connect_within(url, Duration::from_secs(60)).await.expect("the store answers");
    let mut left: VecDeque<_> = (0..jobs).collect();
    while let Some(number) = left.pop_front() {
        match job(&locks, number).label(label).start().await.expect("the store answers") {
            Outcome::Done(_) => {}
            Outcome::Ran(turn) => {
                if !serve(turn, number, &mut file).await {
                    left.push_back(number);
                }
            }
            // Somebody runs it, or died with it: it is looked after later.
            _ => {
                left.push_back(number);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Runs a job, and says whether it is done. Some runs fail, and one that is lost is stopped.
async fn serve(turn: tidelock::Turn, number: usize, file: &mut File) -> bool {
    let (clock, holding) = (Clock::machine(), turn.holding());
    let token = holding.token();
    for _ in 0..4 {
        // The time before the question: if it holds at the question, it held then.
        let now = clock.now().as_nanos();
        if !holding.is_held() {
            return false;
        }
        write(file, &format!("ran {number} {} {now}\n", token.get()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if token.epoch() % 4 == 0 {
        turn.failed().await.is_err_and(|error| panic!("it is given back: {error}"))
    } else if turn.done().await.is_ok() {
        // The time after the answer: from here on nobody may run it.
        write(file, &format!("done {number} {} {}\n", token.get(), clock.now().as_nanos()));
        true
    } else {
        false
    }
}

/// In one write, so that a process that is killed leaves whole lines.
fn write(file: &mut File, line: &str) {
    file.write_all(line.as_bytes()).expect("it is written");
}
