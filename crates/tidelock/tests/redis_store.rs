//! The store in Redis, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `restarts` | servers are killed, paused and started again, with their data or without |
//! | `network` | connections are cut, and answers are lost after the command was applied |
//! | `processes` | holders and waiters are killed, stopped, evicted, or very many |
//! | `sentinel`, `cluster` | masters are replaced, and slots move |
//! | `redlock` | some of several servers that vote fail in every way |
//! | `login`, `rights`, `tls`, `fitness` | servers that refuse, and servers that should be refused |
//! | `wrong_ways` | the usual mistakes of locks in Redis, which cannot be made here |
//! | `afterwards` | what all of this left behind on the server that most trials share |
//!
//! Trials print what they counted: `-- --nocapture` is not needed. There are no limits on time but those
//! after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "redis_store/support.rs"]
mod support;
#[path = "redis_store/afterwards.rs"]
mod afterwards;
#[path = "redis_store/cluster.rs"]
mod cluster;
#[path = "redis_store/fitness.rs"]
mod fitness;
#[path = "redis_store/login.rs"]
mod login;
#[path = "redis_store/network.rs"]
mod network;
#[path = "common/worker.rs"]
mod process;
#[path = "redis_store/processes.rs"]
mod processes;
#[path = "redis_store/redlock.rs"]
mod redlock;
#[path = "redis_store/restarts.rs"]
mod restarts;
#[path = "redis_store/rights.rs"]
mod rights;
#[path = "redis_store/sentinel.rs"]
mod sentinel;
#[path = "redis_store/tls.rs"]
mod tls;
#[path = "redis_store/witness.rs"]
mod witness;
#[path = "redis_store/worker.rs"]
mod worker;
#[path = "redis_store/wrong_ways.rs"]
mod wrong_ways;

use std::{
    any::Any,
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use support::Work;
use tokio::runtime::Builder;

/// A trial that takes longer hangs. Generous: the machine may be busy with other tests.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Trials mostly wait for leases to end, so more of them run at once than there are processors.
const THREADS: usize = 4;

fn main() -> ExitCode {
    if worker::work() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        sentinel::trials(),
        cluster::trials(),
        redlock::trials(),
        restarts::trials(),
        processes::trials(),
        network::trials(),
        fitness::trials(),
        login::trials(),
        rights::trials(),
        tls::trials(),
        wrong_ways::trials(),
    ];
    let first = libtest_mimic::run(&arguments, modules.into_iter().flatten().map(trial).collect());
    // The server that was shared is looked at when nobody uses it any more.
    let last = libtest_mimic::run(&arguments, afterwards::trials().into_iter().map(trial).collect());
    support::stop_shared();
    cluster::stop_shared();
    if first.has_failed() || last.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn trial((name, work): (String, Work)) -> Trial {
    Trial::test(name.clone(), move || watched(&name, work))
}

/// Runs a trial in a thread of its own: one that hangs fails with its name, and the others go on.
fn watched(name: &str, work: Work) -> Result<(), Failed> {
    let (tell, hear) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Clients go on in other threads while the trial itself waits for a server.
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(work());
        // Nobody listens only when the watchdog bit.
        let _ = tell.send(());
    })?;
    // A run that was asked to be long may be.
    let watchdog = if std::env::var_os("TIDELOCK_GRANTS").is_some() { 30 * WATCHDOG } else { WATCHDOG };
    match hear.recv_timeout(watchdog) {
        Ok(()) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err(format!("it hangs: no end after {watchdog:?}").into()),
        Err(RecvTimeoutError::Disconnected) => {
            Err(thread.join().err().map_or("no outcome".to_owned(), |panic| said(&*panic)).into())
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
