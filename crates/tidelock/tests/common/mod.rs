//! What the engine's tests share: clients of a store that can be broken, and a count of calls.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tidelock::{
    Locks, Name,
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Follow, Leave, Left, LockView,
        News, Scope, Standing,
    },
    testing::{
        Clock,
        defect::Defects,
        faulty::{Faults, FaultyStore},
    },
};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// Answers take a millisecond or two each way.
pub(crate) const SLOW: Faults = Faults {
    instant: 0,
    delay_ms: 2,
    long: 0,
    long_ms: 0,
    lost_question: 0,
    lost_answer: 0,
    doubled: 0,
    lost_push: 0,
    doubled_push: 0,
};
/// Answers are there at once.
pub(crate) const INSTANT: Faults = Faults { instant: 1_000, ..SLOW };

/// A store without faults whose answers take a millisecond or none, in paused time.
pub(crate) fn store(faults: Faults) -> Arc<FaultyStore> {
    FaultyStore::new(1, faults, Clock::driven(0), Defects::NONE)
}

/// A client of a store, its id, its clock and its calls.
pub(crate) struct Client {
    pub(crate) locks: Locks,
    pub(crate) id: ClientId,
    pub(crate) clock: Clock,
    pub(crate) calls: Arc<Calls>,
}

pub(crate) fn client(store: &Arc<FaultyStore>, number: u64) -> Client {
    let (id, clock) = (ClientId::from_u64(number), Clock::driven(0));
    let calls = Arc::new(Calls::default());
    let backend = Counted { inner: store.connect(id), calls: Arc::clone(&calls) };
    let locks = Locks::on_clock(Arc::new(backend), clock.clone(), Defects::NONE);
    Client { locks, id, clock, calls }
}

/// Lets everything that is due happen, without time passing.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// How often each verb was called, and how many claims were renewed.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) enter: AtomicUsize,
    pub(crate) renew: AtomicUsize,
    pub(crate) renewed: AtomicUsize,
    pub(crate) leave: AtomicUsize,
    pub(crate) look: AtomicUsize,
}

impl Calls {
    pub(crate) fn of(&self, verb: &AtomicUsize) -> usize {
        verb.load(Ordering::SeqCst)
    }
}

/// Counts the calls of a backend.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Backend>,
    calls: Arc<Calls>,
}

impl Backend for Counted {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn client_id(&self) -> ClientId {
        self.inner.client_id()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        self.calls.enter.fetch_add(1, Ordering::SeqCst);
        self.inner.enter(claim, ask)
    }

    fn wait(&self) -> Call<News> {
        self.inner.wait()
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        self.calls.renew.fetch_add(1, Ordering::SeqCst);
        self.calls.renewed.fetch_add(claims.len(), Ordering::SeqCst);
        self.inner.renew(claims)
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        self.calls.leave.fetch_add(1, Ordering::SeqCst);
        self.inner.leave(name, id, why)
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        self.calls.look.fetch_add(1, Ordering::SeqCst);
        self.inner.look(scope)
    }

    fn follow(&self, name: &Name) -> Option<Follow> {
        self.inner.follow(name)
    }
}
