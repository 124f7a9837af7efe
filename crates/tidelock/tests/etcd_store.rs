//! The store in etcd, with real servers, proxies and processes that break.
//!
//! | module | what happens |
//! |---|---|
//! | `members` | members of a cluster are killed, paused and started again |
//! | `network` | connections are cut, and answers are lost after the transaction was applied |
//! | `keys` | keys and leases that somebody else deletes, and history that is compacted |
//! | `processes` | holders and waiters are killed, stopped, evicted, or very many |
//! | `login` | servers that refuse, and servers that should be refused |
//! | `interop` | `etcdctl lock` and Go's concurrency package take turns with us |
//!
//! There are no limits on time but those after which something hangs.
#![allow(clippy::disallowed_methods, reason = "tests measure real time and run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[macro_use]
#[path = "etcd_store/support.rs"]
mod support;
#[path = "etcd_store/interop.rs"]
mod interop;
#[path = "etcd_store/keys.rs"]
mod keys;
#[path = "etcd_store/login.rs"]
mod login;
#[path = "etcd_store/members.rs"]
mod members;
#[path = "etcd_store/network.rs"]
mod network;
#[path = "common/worker.rs"]
mod process;
#[path = "etcd_store/processes.rs"]
mod processes;
#[allow(dead_code, reason = "the trials of Redis use more of it")]
#[path = "redis_store/witness.rs"]
mod witness;
#[path = "redis_store/worker.rs"]
mod worker;

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
        members::trials(),
        interop::trials(),
        processes::trials(),
        network::trials(),
        keys::trials(),
        login::trials(),
    ];
    let conclusion = libtest_mimic::run(&arguments, modules.into_iter().flatten().map(trial).collect());
    support::stop_shared();
    conclusion.exit_code()
}

fn trial((name, work): (String, Work)) -> Trial {
    Trial::ignorable_test(name.clone(), move || watched(&name, work))
}

/// Runs a trial in a thread of its own: one that hangs fails with its name, and the others go on.
fn watched(name: &str, work: Work) -> Result<Completion, Failed> {
    let (tell, hear) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Clients go on in other threads while the trial itself waits for a server.
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        // Nobody listens only when the watchdog bit.
        let _ = tell.send(runtime.block_on(work()));
    })?;
    match hear.recv_timeout(WATCHDOG.max(interop::LONGEST)) {
        Ok(None) => Ok(Completion::Completed),
        Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
        Err(RecvTimeoutError::Timeout) => Err(format!("it hangs: no end after {WATCHDOG:?}").into()),
        Err(RecvTimeoutError::Disconnected) => {
            Err(thread.join().err().map_or("no outcome".to_owned(), |panic| said(&*panic)).into())
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
