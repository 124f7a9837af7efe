//! A candidate in a process of its own: leads in short terms, and writes down when it knew that it led.

use std::{io::Write, path::Path, time::Duration};

use tidelock::{Locks, Term, testing::Clock};

/// The election.
pub(crate) const NAME: &str = "boss";

/// The lease of a leader. Long enough that a busy machine does not end it, short enough to be waited for.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// Variables that make this program a candidate.
pub(crate) const URL: &str = "TIDELOCK_CANDIDATE_URL";
pub(crate) const LABEL: &str = "TIDELOCK_CANDIDATE_LABEL";
pub(crate) const LOG: &str = "TIDELOCK_CANDIDATE_LOG";

/// Is a candidate if this process was started as one.
pub(crate) fn run_if_asked() -> bool {
    let variable = |name| std::env::var(name).ok();
    let (Some(url), Some(label), Some(log)) = (variable(URL), variable(LABEL), variable(LOG)) else {
        return false;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(lead(&url, &label, Path::new(&log)));
    true
}

async fn lead(url: &str, label: &str, log: &Path) {
    let locks = Locks::connect_within(url, Duration::from_secs(60)).await.expect("the store answers");
    let election = locks.election(NAME).label(label).advertise(format!("http://{label}")).ttl(TTL);
    let work = |term: Term| serve(term, log.to_owned());
    // Ends with an error, or is killed.
    let error = election.lead(work).await.expect_err("it has no end");
    panic!("{label}: {error}");
}

/// One term: each line says that the process led at a moment of the machine's clock.
async fn serve(term: Term, log: std::path::PathBuf) {
    let clock = Clock::machine();
    let mut file = std::fs::File::options().append(true).create(true).open(log).expect("a file");
    // Between 10 and 60 ms, so that many terms fit into a test.
    for _ in 0..(2 + term.token().epoch() % 11) {
        // The time before the question: if it leads at the question, it led then.
        let now = clock.now().as_nanos();
        if !term.is_leading() {
            return;
        }
        // In one write, so that a process that is killed leaves whole lines.
        file.write_all(format!("{} {now}\n", term.token().get()).as_bytes()).expect("it is written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
