//! How trials are listed and run.

use std::{
    any::Any,
    pin::Pin,
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Builder;

use super::{jobs, place};

/// Trials mostly wait for leases to end, so more of them run at once than there are processors.
const THREADS: usize = 4;

/// A trial's work: nothing, or why it was left out.
pub(crate) type Work = fn() -> Pin<Box<dyn Future<Output = Option<&'static str>> + Send>>;

/// The trials of a module, by their names.
pub(crate) type Trials = Vec<(String, Work)>;

/// The trials of a module, under the names of their functions. One that not all stores can pass says what it takes:
/// an ability of [`Store`](super::Store).
macro_rules! trials {
    ($($work:ident $(where $ability:ident)?,)*) => {
        pub(crate) fn trials() -> $crate::support::harness::Trials {
            use $crate::support::harness::{Outcome as _, name};
            let mut trials: $crate::support::harness::Trials = Vec::new();
            $(if true $(&& $crate::STORE.$ability)? {
                trials.push((name(module_path!(), stringify!($work)), || Box::pin(async {
                    #[allow(clippy::let_unit_value, reason = "most trials have nothing to say")]
                    let outcome = $work().await;
                    outcome.left_out()
                })));
            })*
            trials
        }
    };
}

/// The name of a trial, with that of its module.
pub(crate) fn name(module: &str, work: &str) -> String {
    format!("{}::{work}", module.rsplit("::").next().unwrap_or_default())
}

/// What a trial ends with: nothing, or why it was left out.
pub(crate) trait Outcome {
    fn left_out(self) -> Option<&'static str>;
}

impl Outcome for () {
    fn left_out(self) -> Option<&'static str> {
        None
    }
}

impl Outcome for Result<(), &'static str> {
    fn left_out(self) -> Option<&'static str> {
        self.err()
    }
}

/// Runs trials, and others when those have ended. In a worker process, does its job.
pub(crate) fn run(modules: impl IntoIterator<Item = Trials>, afterwards: Trials) -> ExitCode {
    if jobs::work() {
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    let mut has_failed = false;
    for trials in [modules.into_iter().flatten().collect(), afterwards] {
        if !trials.is_empty() {
            let trials = trials.into_iter().map(trial).collect();
            has_failed |= libtest_mimic::run(&arguments, trials).has_failed();
        }
    }
    place::stop_shared();
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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
    // A run that was asked to be long may be.
    let is_long =
        ["TIDELOCK_GRANTS", "TIDELOCK_INTEROP_GRANTS"].iter().any(|name| std::env::var_os(name).is_some());
    let watchdog = if is_long { 30 * crate::STORE.watchdog } else { crate::STORE.watchdog };
    match hear.recv_timeout(watchdog) {
        Ok(None) => Ok(Completion::Completed),
        Ok(Some(reason)) => Ok(Completion::ignored_with(reason)),
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
