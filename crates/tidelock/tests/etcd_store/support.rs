//! What the trials share: a server, places on servers, and waiting for something to be so.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use test_servers::{Etcd, Proxy, Server};
use tidelock::{Error, Guard, Locks, backend::LockView};
use tokio::task::JoinHandle;

/// What takes longer hangs. Generous: the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);
/// A lease that does not end during a trial.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A lease that ends during a trial, and is long enough to be renewed on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_secs(3);
/// The lock of a trial that needs only one.
pub(crate) const NAME: &str = "the lock";

/// A trial's work: nothing, or why it was left out.
pub(crate) type Work = fn() -> Pin<Box<dyn Future<Output = Option<&'static str>> + Send>>;

/// The trials of a module, under the names of their functions.
macro_rules! trials {
    ($($name:ident,)*) => {
        pub(crate) fn trials() -> Vec<(String, $crate::support::Work)> {
            let module = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$((format!("{module}::{}", stringify!($name)), || Box::pin(async {
                #[allow(clippy::let_unit_value, reason = "most trials have nothing to say")]
                let said = $name().await;
                $crate::support::Said::reason(said)
            }))),*]
        }
    };
}

/// What a trial says at its end.
pub(crate) trait Said {
    fn reason(self) -> Option<&'static str>;
}

impl Said for () {
    fn reason(self) -> Option<&'static str> {
        None
    }
}

impl Said for Option<&'static str> {
    fn reason(self) -> Option<&'static str> {
        self
    }
}

static SHARED: Mutex<Option<Arc<Server>>> = Mutex::new(None);

/// The server of all trials that do not break it. Started by the first.
pub(crate) fn shared() -> Arc<Server> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(shared.get_or_insert_with(|| Arc::new(Etcd::new().start().unwrap())))
}

/// Stops it: statics are not dropped.
pub(crate) fn stop_shared() {
    drop(SHARED.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// A place for the locks of one trial: servers, and a prefix that no other trial uses.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    servers: String,
    pub(crate) prefix: String,
    options: String,
}

impl Place {
    /// On the server that most trials share.
    pub(crate) fn shared() -> Self {
        Self::on(shared().url())
    }

    /// On the servers of a URL without options.
    pub(crate) fn on(url: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { servers: url.to_owned(), prefix: format!("trial-{number}/"), options: String::new() }
    }

    /// The same locks, reached with other options.
    pub(crate) fn with(&self, options: &str) -> Self {
        Self { options: format!("{}&{options}", self.options), ..self.clone() }
    }

    /// The same locks, reached through another address or as somebody else.
    pub(crate) fn through(&self, url: &str) -> Self {
        Self { servers: url.to_owned(), ..self.clone() }
    }

    /// The same locks behind a network that can be broken.
    pub(crate) fn behind(&self, proxy: &Proxy) -> Self {
        self.through(&format!("etcd://{}", proxy.addr()))
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?prefix={}{}", self.servers, self.prefix, self.options)
    }

    pub(crate) async fn connect(&self) -> Locks {
        within("a client connects", self.try_connect()).await.unwrap()
    }

    pub(crate) async fn try_connect(&self) -> Result<Locks, Error> {
        Locks::connect(&self.url()).await
    }

    /// What other clients call a lock of this place.
    pub(crate) fn foreign(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

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

/// A lock that one client holds and another waits for.
pub(crate) async fn held_and_waited_for(locks: &Locks, other: &Locks, name: &str) -> (Guard, Waiter) {
    let guard = locks.mutex(name).ttl(LONG).lock().await.unwrap();
    let waiting = waiter(other, name, LONG);
    until_waiting(locks, name, 1).await;
    (guard, waiting)
}
