//! Runtimes: the one that a client is connected on, which may be unfit or end, and one that is ours.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::OnceLock,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, RuntimeFlavor},
    time::Sleep,
};

use crate::error::{Error, Result};

static OURS: OnceLock<Handle> = OnceLock::new();

/// Returns the runtime of a background thread, which never ends. The thread is started by the first call.
pub(crate) fn background() -> &'static Handle {
    OURS.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("tidelock".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .expect("the system gives a thread");
        handle
    })
}

/// Returns a timer of the background thread: it fires whatever the caller's runtime is, or does.
pub(super) fn background_sleep(duration: Duration) -> Sleep {
    let _ours = background().enter();
    tokio::time::sleep(duration)
}

/// Returns whether this is the runtime of the background thread.
pub(super) fn is_background(runtime: &Handle) -> bool {
    OURS.get().is_some_and(|ours| ours.id() == runtime.id())
}

/// Returns whether tasks of this runtime go on while the current thread stands still.
pub(super) fn runs_by_itself(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread || is_background(runtime)
}

/// Returns whether the current thread may stand still for a moment: it runs no task, and no runtime needs it to go
/// on. The thread in `block_on` of a multi-thread runtime is such a thread, as the workers are others.
pub(super) fn may_block() -> bool {
    match Handle::try_current() {
        Ok(current) => {
            current.runtime_flavor() == RuntimeFlavor::MultiThread && tokio::task::try_id().is_none()
        }
        Err(none) => none.is_missing_context(),
    }
}

/// Returns whether the current thread may wait for the background thread: it is not in an async task.
pub(crate) fn may_block_on() -> bool {
    if Handle::try_current().is_err() {
        return true;
    }
    // A task that is exempt from yielding looks like a thread that may block, except that tokio panics.
    !is_async_task() && catch_unwind(|| background().block_on(async {})).is_ok()
}

/// Returns whether this is an async task, as opposed to `spawn_blocking` or a separate thread: tokio gives
/// async tasks a budget of work before they must yield, and the others none.
pub(super) fn is_async_task() -> bool {
    let more_than_any_budget = 512;
    Handle::try_current().is_ok()
        && (0..more_than_any_budget).any(|_| {
            let unit = pin!(tokio::task::coop::consume_budget());
            unit.poll(&mut Context::from_waker(Waker::noop())).is_pending()
        })
}

/// Returns an error if there is no tokio runtime here, or one without timers.
///
/// Tokio has no way to ask what a runtime has, and panics when something is used that it does not have.
pub(crate) fn check() -> Result<()> {
    if Handle::try_current().is_err() {
        return Err(Error::no_runtime(
            "no tokio runtime was entered: connect within one, or use tidelock::blocking",
        ));
    }
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(unfit)
}

/// Connects a client. A runtime that is missing, or has no timers or no I/O, is an error.
pub(crate) async fn connecting<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    check()?;
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(unfit(panic))))
    })
    .await
}

/// What tokio panics with on a runtime without what we need; other panics go on.
fn unfit(panic: Box<dyn Any + Send>) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    if text.contains("timers are disabled") || text.contains("IO is disabled") {
        let why = "this tokio runtime was built without timers or I/O: call enable_all() on its builder";
        return Error::no_runtime(why);
    }
    resume_unwind(panic)
}
