//! Runtimes: the one that a client is connected on, which may be unfit or end, and one that is ours.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::{Mutex, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, RuntimeFlavor},
    sync::oneshot,
};

use crate::error::{Error, Result};

static OURS: OnceLock<Handle> = OnceLock::new();

/// Returns the runtime of a background thread, which never ends. The thread is started by the first call that can: a
/// process that may open no more files cannot have a runtime, and is asked again the next time.
pub(crate) fn background() -> io::Result<&'static Handle> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(ours) = OURS.get() {
        return Ok(ours);
    }
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ours) = OURS.get() {
        return Ok(ours);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("tidelock".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(OURS.get_or_init(|| handle))
}

/// Sleeps on the background thread, whatever the caller's runtime is, or does. Where there is none, a thread of its own
/// does it, which takes no file.
pub(super) async fn background_sleep(duration: Duration) {
    if let Ok(ours) = background() {
        let sleep = {
            let _ours = ours.enter();
            tokio::time::sleep(duration)
        };
        return sleep.await;
    }
    let (tell, hear) = oneshot::channel::<()>();
    let sleeping = move || {
        std::thread::sleep(duration);
        drop(tell);
    };
    match std::thread::Builder::new().spawn(sleeping) {
        // Nothing is sent: it ends with the thread.
        Ok(_) => drop(hear.await),
        Err(_) => tokio::task::yield_now().await,
    }
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
    let can_wait = |ours: &Handle| catch_unwind(AssertUnwindSafe(|| ours.block_on(async {}))).is_ok();
    !is_async_task() && background().map_or(true, can_wait)
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
