//! Runtimes that end before their clients, and runtimes on which no client can be connected.
#![allow(clippy::disallowed_methods, reason = "tests run tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

#[path = "common/outlived.rs"]
mod outlived;

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tidelock::{Error, Locks};
use tokio::runtime::Builder;

const SHORT: Duration = Duration::from_secs(3);

macro_rules! forward {
    ($($outlived:ident;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $outlived() {
            outlived::$outlived(concat!("memory:", stringify!($outlived)), SHORT).await;
        })*
    };
}

forward! {
    a_client_that_outlives_its_runtime_says_so_in_every_call;
    a_lock_whose_runtime_has_ended_is_lost_when_its_lease_ends;
    a_lock_whose_runtime_stands_still_is_lost_when_its_lease_ends;
    those_who_wait_when_their_runtime_ends_hear_it;
}

#[track_caller]
fn one_sentence(error: &Error, about: &str) {
    let text = error.to_string();
    assert!(error.is_no_runtime() && text.contains(about) && !text.contains('\n'), "{text}");
}

/// Polls once, outside of any runtime.
fn poll<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn connecting_outside_of_tokio_is_an_error_with_a_sentence() {
    let urls: &[&str] = &[
        "memory:",
        #[cfg(feature = "file")]
        "file:",
        #[cfg(feature = "redis")]
        "redis://127.0.0.1",
    ];
    for url in urls {
        one_sentence(&poll(Locks::connect(url)).unwrap_err(), "no tokio runtime");
        one_sentence(&poll(Locks::connect_within(url, SHORT)).unwrap_err(), "no tokio runtime");
        #[cfg(feature = "stock")]
        one_sentence(&poll(tidelock::stock::Stocks::connect(url)).unwrap_err(), "no tokio runtime");
    }
}

#[test]
fn connecting_on_a_runtime_without_timers_or_io_is_an_error_with_a_sentence() {
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let bare = builder.build().unwrap();
        one_sentence(&bare.block_on(Locks::connect("memory:")).unwrap_err(), "enable_all()");
        one_sentence(&bare.block_on(Locks::connect_within("memory:", SHORT)).unwrap_err(), "enable_all()");
        // The others need I/O too.
        let timed = builder.enable_time().build().unwrap();
        timed.block_on(async {
            Locks::connect("memory:").await.unwrap().mutex("x").lock().await.unwrap().release().await.unwrap()
        });
        #[cfg(feature = "redis")]
        one_sentence(&timed.block_on(Locks::connect("redis://127.0.0.1:1")).unwrap_err(), "enable_all()");
    }
}

#[test]
fn dropping_the_last_of_a_client_never_stops_the_only_thread_of_its_runtime() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = Locks::connect("memory:").await.unwrap();
        let guard = locks.mutex("x").lock().await.unwrap();
        (locks, guard)
    });
    drop((guard, locks));
}
