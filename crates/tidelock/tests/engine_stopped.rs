//! A process that is stopped between two steps of one call, while the store goes on.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod common;

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use common::{INSTANT, TTL, client, store};
use tidelock::{
    Locks, Name,
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Leave, Left, LockView, News, Scope,
        Standing,
    },
    testing::{Clock, defect::Defects},
};

/// A store that does something between the first question of its client and the moment at which the client goes on.
struct Between {
    inner: Arc<dyn Backend>,
    /// What it does, with the number of times at which the client has begun to listen.
    does: Mutex<Option<Does>>,
    listened: AtomicUsize,
}

type Does = Box<dyn FnOnce(&AtomicUsize) + Send>;

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Backend for Between {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn client_id(&self) -> ClientId {
        self.inner.client_id()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        let answer = self.inner.enter(claim, ask);
        if let Some(does) = self.does.lock().unwrap().take() {
            does(&self.listened);
        }
        answer
    }

    fn wait(&self) -> Call<News> {
        self.listened.fetch_add(1, Ordering::SeqCst);
        self.inner.wait()
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        self.inner.renew(claims)
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        self.inner.leave(name, id, why)
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        self.inner.look(scope)
    }
}

/// The grant is pushed, and heard by the listener, before the task that asked has a seat in the local queue. When that
/// task goes on, the lease of the grant has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_came_while_its_process_was_stopped_and_has_ended_since_is_not_handed_out() {
    let store = store(INSTANT);
    let guard = client(&store, 1).locks.mutex("x").ttl(TTL).lock().await.unwrap();
    let clock = Clock::driven(0);
    let stopped = {
        let clock = clock.clone();
        move |listened: &AtomicUsize| {
            drop(guard);
            // It listens again when it has heard what it was told.
            while listened.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            clock.jump(TTL);
        }
    };
    let backend = Between {
        inner: store.connect(ClientId::from_u64(2)),
        does: Mutex::new(Some(Box::new(stopped))),
        listened: AtomicUsize::new(0),
    };
    let locks = Locks::on_clock(Arc::new(backend), clock, Defects::NONE);
    let asking = tokio::spawn(async move { locks.mutex("x").ttl(TTL).lock().await.unwrap() });
    assert!(asking.await.unwrap().is_held());
}

/// The task is given the lock, and does not run before its lease has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_expired_before_its_task_went_on_is_not_returned() {
    let store = store(INSTANT);
    let guard = client(&store, 1).locks.mutex("x").ttl(TTL).lock().await.unwrap();
    let clock = Clock::driven(0);
    let backend = Arc::new(Between {
        inner: store.connect(ClientId::from_u64(2)),
        does: Mutex::new(None),
        listened: AtomicUsize::new(0),
    });
    let locks = Locks::on_clock(Arc::clone(&backend) as Arc<dyn Backend>, clock.clone(), Defects::NONE);
    let mutex = locks.mutex("x").ttl(TTL);
    let mut locking = std::pin::pin!(mutex.lock());
    assert!(std::future::poll_fn(|context| Poll::Ready(locking.as_mut().poll(context).is_pending())).await);
    let first = guard.token();
    guard.release().await.unwrap();
    // It listens again when the task has been given what it was told of.
    while backend.listened.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    clock.jump(TTL);
    let guard = locking.await.unwrap();
    assert!(guard.is_held());
    // The grant that nobody used had a token of its own.
    assert!(guard.token().get() >> 10 > (first.get() >> 10) + 1);
}
