//! The store in ZooKeeper, with real servers, proxies, and processes of other programs.
//!
//! | module | what happens |
//! |---|---|
//! | `network` | connections are cut, and answers are lost after the request was applied |
//! | `sessions` | sessions and nodes that somebody ends or deletes |
//! | `processes` | holders are killed and stopped, and very many wait |
//! | `ensemble` | leaders are killed, and all servers started again |
//! | `login` | servers and nodes that refuse, with and without TLS |
//! | `interop` | Curator and kazoo want the same locks |
//!
//! `TIDELOCK_INTEROP_GRANTS=5000` makes other programs take a lock so often, instead of a few hundred times.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "zookeeper_store/support.rs"]
mod support;
#[path = "zookeeper_store/ensemble.rs"]
mod ensemble;
#[path = "zookeeper_store/interop.rs"]
mod interop;
#[path = "zookeeper_store/login.rs"]
mod login;
#[path = "zookeeper_store/network.rs"]
mod network;
#[path = "common/worker.rs"]
mod process;
#[path = "zookeeper_store/processes.rs"]
mod processes;
#[path = "zookeeper_store/sessions.rs"]
mod sessions;
#[path = "redis_store/witness.rs"]
#[allow(dead_code, reason = "other stores use more of it")]
mod witness;

use std::{
    any::Any,
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use support::Work;
use tokio::runtime::Builder;

/// A trial that takes longer hangs. Generous: the machine may be busy with other tests.
const WATCHDOG: Duration = Duration::from_secs(150);

/// Trials mostly wait for leases to end, so more of them run at once than there are processors.
const THREADS: usize = 4;

fn main() -> ExitCode {
    if processes::work() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    // Those that take longest come first, so that nothing waits for them at the end.
    let modules = [
        interop::trials(),
        ensemble::trials(),
        processes::trials(),
        network::trials(),
        sessions::trials(),
        login::trials(),
    ];
    let trials = modules.into_iter().flatten().map(|(name, work)| trial(name, work)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    support::stop_shared();
    conclusion.exit_code()
}

fn trial(name: String, work: Work) -> Trial {
    // Thousands of grants take their time.
    let limit = if interop::is_long() { WATCHDOG * 10 } else { WATCHDOG };
    Trial::ignorable_test(name.clone(), move || {
        let (tell, hear) = mpsc::channel();
        let run = move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            // Nobody listens only when the watchdog bit.
            let _ = tell.send(runtime.block_on(work()));
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        match hear.recv_timeout(limit) {
            Ok(None) => Ok(Completion::Completed),
            Ok(Some(missing)) => Ok(Completion::ignored_with(missing)),
            Err(RecvTimeoutError::Timeout) => Err(format!("it hangs: no end after {limit:?}").into()),
            Err(RecvTimeoutError::Disconnected) => {
                Err(thread.join().err().map_or(Failed::without_message(), |panic| said(&*panic).into()))
            }
        }
    })
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
