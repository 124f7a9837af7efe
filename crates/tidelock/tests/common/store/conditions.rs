//! Waiting for something to be so.

use std::{net::SocketAddr, time::Duration};

use tidelock::{Error, Guard, Locks, backend::LockView};
use tokio::task::JoinHandle;

use super::{LONG, NAME};

/// What takes longer hangs. Generous: the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// The address of nobody: it was free a moment ago.
pub(crate) fn nobody() -> SocketAddr {
    test_servers::ports::free().unwrap().addr()
}

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T> + Send) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Asks again and again until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool + Send) {
    let asking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, asking).await;
}

/// Looks again and again until the line is as it should be.
pub(crate) async fn until(locks: &Locks, name: &str, is: impl Fn(&LockView) -> bool + Send + Sync) {
    let looking = async {
        loop {
            if let Ok(views) = locks.look(&[name]).await
                && views.first().is_some_and(&is)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the line is as it should be", looking).await;
}

/// Waits until so many wait.
pub(crate) async fn until_waiting(locks: &Locks, name: &str, waiters: usize) {
    until(locks, name, |view| view.waiters.len() == waiters).await;
}

/// Waits until nobody is in line.
pub(crate) async fn until_idle(locks: &Locks, name: &str) {
    let looking = async {
        while !locks.look(&[name]).await.is_ok_and(|views| views.is_empty()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("nobody is in line", looking).await;
}

/// A task that waits for a lock.
pub(crate) type Waiter = JoinHandle<tidelock::Result<Guard>>;

/// A task that waits for a lock.
pub(crate) fn waiter(locks: &Locks, name: &str, ttl: Duration) -> Waiter {
    let mutex = locks.mutex(name).ttl(ttl);
    tokio::spawn(async move { mutex.lock().await })
}

/// What came of a task that waits.
pub(crate) async fn got(waiter: Waiter) -> Guard {
    within("the waiter holds", waiter).await.unwrap().unwrap()
}

/// An error is one sentence for people.
#[track_caller]
pub(crate) fn is_one_sentence(error: &Error) {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 600, "{text}");
}

/// A step of a trial that is worth knowing, on a line of its own.
pub(crate) fn report(text: &str) {
    println!("\n  {text}");
}

/// Gives a lock back, and each of those who wait gets it in turn, with a larger token.
pub(crate) async fn pass_on(held: Guard, waiters: Vec<Waiter>) {
    let mut token = held.token();
    held.release().await.unwrap();
    for waiter in waiters {
        let next = got(waiter).await;
        assert!(next.token() > token);
        token = next.token();
        next.release().await.unwrap();
    }
}

/// A lock that one client holds and another waits for.
pub(crate) async fn held_and_waited_for(locks: &Locks, other: &Locks, name: &str) -> (Guard, Waiter) {
    let guard = locks.mutex(name).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(other, name, LONG);
    until_waiting(locks, name, 1).await;
    (guard, waiting)
}

/// Two clients take a lock in turns.
pub(crate) async fn hand_over(locks: &Locks, other: &Locks) {
    let (guard, waiting) = held_and_waited_for(locks, other, NAME).await;
    pass_on(guard, vec![waiting]).await;
}
