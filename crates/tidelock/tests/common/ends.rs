//! Programs that end in every way there is, and what that means for the next who wants their lock.
//!
//! Part of the tests of each store that other processes can use. Beside it is a module `worker`.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use tidelock::{Guard, Locks, blocking};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use super::worker::{Worker, say};

const NAME: &str = "the lock";

/// What is not free before a lease of this length ends is not free at once.
const FOREVER: Duration = Duration::from_secs(90);
/// What takes longer hangs. Generous: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(45);

/// Ends with a lock, as a worker process does that is told so.
pub(crate) fn end(url: &str, ttl: Duration, how: &str) {
    match how {
        "return" => many_threads().block_on(async {
            let locks = Locks::connect_within(url, PATIENCE / 2).await.unwrap();
            let _guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
            until_told();
        }),
        "return the guard last" => many_threads().block_on(async {
            let _guard = lock(url, ttl).await;
            until_told();
        }),
        "return outside of the runtime" => {
            let runtime = many_threads();
            let _guard = runtime.block_on(lock(url, ttl));
            until_told();
        }
        "return with several" => many_threads().block_on(async {
            let locks = Locks::connect_within(url, PATIENCE / 2).await.unwrap();
            let others = (0..20).map(|n| locks.mutex(format!("{NAME} {n}")).ttl(ttl));
            let mut guards = Vec::new();
            for other in others {
                guards.push(other.lock().await.unwrap());
            }
            guards.push(locks.mutex(NAME).ttl(ttl).lock().await.unwrap());
            until_told();
        }),
        "panic" => many_threads().block_on(async {
            let locks = Locks::connect_within(url, PATIENCE / 2).await.unwrap();
            let _guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
            until_told();
            end_with_a_panic();
        }),
        "blocking" => {
            let locks = blocking::Locks::connect(url).unwrap();
            let _guard = locks.mutex(NAME).ttl(ttl).lock().unwrap();
            until_told();
        }
        "blocking, but a client stays" => {
            let locks = blocking::Locks::connect(url).unwrap();
            let _guard = locks.mutex(NAME).ttl(ttl).lock().unwrap();
            std::mem::forget(locks);
            until_told();
        }
        "blocking panic" => {
            let _guard = blocking::Locks::connect(url).unwrap().mutex(NAME).ttl(ttl).lock().unwrap();
            until_told();
            end_with_a_panic();
        }
        "give up" => {
            let locks = blocking::Locks::connect(url).unwrap();
            let mutex = locks.mutex(NAME).ttl(ttl);
            assert!(mutex.try_lock_for(Duration::from_millis(50)).unwrap().is_none());
            say("gave up");
        }
        "release on one thread" => one_thread().block_on(async {
            let guard = lock(url, ttl).await;
            until_told();
            guard.release().await.unwrap();
        }),
        "shut down on one thread" => one_thread().block_on(async {
            let locks = Locks::connect_within(url, PATIENCE / 2).await.unwrap();
            drop(locks.mutex(NAME).ttl(ttl).lock().await.unwrap());
            let _guard = locks.mutex(NAME).ttl(ttl).lock().await.unwrap();
            until_told();
            assert_eq!(locks.shutdown(Duration::ZERO).await, 1);
        }),
        "return on one thread" => one_thread().block_on(async {
            let _guard = lock(url, ttl).await;
            until_told();
        }),
        "the runtime first" => {
            let runtime = many_threads();
            let guard = runtime.block_on(lock(url, ttl));
            until_told();
            drop(runtime);
            drop(guard);
        }
        "exit" => many_threads().block_on(async {
            let _guard = lock(url, ttl).await;
            until_told();
            std::process::exit(0);
        }),
        other => panic!("no such end: {other:?}"),
    }
}

async fn lock(url: &str, ttl: Duration) -> Guard {
    Locks::connect_within(url, PATIENCE / 2).await.unwrap().mutex(NAME).ttl(ttl).lock().await.unwrap()
}

fn many_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Stands still until the test closes the other end.
fn until_told() {
    say("held");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Panics without a word, so that who looks for a panic in the output finds only those that nobody wanted.
fn end_with_a_panic() -> ! {
    std::panic::set_hook(Box::new(|_| ()));
    panic!("as it should")
}

/// Everything that is tried on a scene, and with clients that outlive their runtimes.
macro_rules! endings {
    ($forward:ident) => {
        $forward! {
            scene a_guard_dropped_at_the_end_of_main_frees_the_lock_at_once;
            scene a_panic_in_main_frees_the_lock_at_once;
            scene a_blocking_guard_dropped_at_the_end_of_main_frees_the_lock_at_once;
            scene a_lock_released_or_shut_down_on_one_thread_is_free_at_once;
            scene a_wait_given_up_at_the_end_of_main_leaves_no_place_behind;
            scene what_a_program_does_not_release_is_free_when_its_lease_ends;
            outlived a_client_that_outlives_its_runtime_says_so_in_every_call;
            outlived a_lock_whose_runtime_has_ended_is_lost_when_its_lease_ends;
            outlived a_lock_whose_runtime_stands_still_is_lost_when_its_lease_ends;
            outlived those_who_wait_when_their_runtime_ends_hear_it;
        }
    };
}

pub(crate) use endings;

/// Where the locks are, and how workers are started there.
pub(crate) struct Scene<F> {
    pub(crate) locks: Locks,
    pub(crate) start: F,
    /// A lease that ends during a test.
    pub(crate) short: Duration,
}

impl<F: Fn(&str, Duration) -> Worker + Send + Sync> Scene<F> {
    pub(crate) async fn a_guard_dropped_at_the_end_of_main_frees_the_lock_at_once(&self) {
        for how in ["return", "return the guard last", "return outside of the runtime", "return with several"]
        {
            self.frees(how, FOREVER).await;
        }
    }

    pub(crate) async fn a_panic_in_main_frees_the_lock_at_once(&self) {
        self.frees("panic", FOREVER).await;
    }

    pub(crate) async fn a_blocking_guard_dropped_at_the_end_of_main_frees_the_lock_at_once(&self) {
        for how in ["blocking", "blocking, but a client stays", "blocking panic"] {
            self.frees(how, FOREVER).await;
        }
    }

    pub(crate) async fn a_lock_released_or_shut_down_on_one_thread_is_free_at_once(&self) {
        for how in ["release on one thread", "shut down on one thread"] {
            self.frees(how, FOREVER).await;
        }
    }

    pub(crate) async fn what_a_program_does_not_release_is_free_when_its_lease_ends(&self) {
        for how in ["return on one thread", "the runtime first", "exit"] {
            self.frees(how, self.short).await;
        }
    }

    pub(crate) async fn a_wait_given_up_at_the_end_of_main_leaves_no_place_behind(&self) {
        let guard = self.locks.mutex(NAME).ttl(FOREVER).lock().await.unwrap();
        let mut worker = (self.start)("end give up", FOREVER);
        worker.hear("gave up");
        worker.end();
        self.until(|waiters| waiters == 0).await;
        guard.release().await.unwrap();
    }

    /// A process that holds ends in this way, and the next one gets the lock before a long lease would have ended.
    async fn frees(&self, how: &str, ttl: Duration) {
        let mut worker = (self.start)(&format!("end {how}"), ttl);
        worker.hear("held");
        let next = self.next();
        // A lease that nobody renews may end before.
        self.until(|waiters| waiters == 1 || next.is_finished()).await;
        worker.tell();
        let told = Instant::now();
        worker.end();
        let ended = told.elapsed();
        let next = tokio::time::timeout(PATIENCE, next).await;
        let next = next.unwrap_or_else(|_| panic!("{how}: not free after {PATIENCE:?}"));
        println!("\n  {how}: ended after {ended:?}, free after {:?}", told.elapsed());
        next.unwrap().release().await.unwrap();
    }

    fn next(&self) -> JoinHandle<Guard> {
        let mutex = self.locks.mutex(NAME).ttl(FOREVER);
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    }

    /// Looks again and again until so many wait.
    async fn until(&self, is: impl Fn(usize) -> bool + Send + Sync) {
        let looking = async {
            while !is(self.locks.look(&[NAME]).await.unwrap().first().map_or(0, |view| view.waiters.len())) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.expect("the line is as it should be");
    }
}
