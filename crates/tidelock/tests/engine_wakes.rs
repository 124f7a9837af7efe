//! What a store says while an answer of it is under way, in paused time.
#![cfg(feature = "testing")]
#![allow(clippy::disallowed_methods, reason = "tests spawn tasks of their own")]
#![allow(clippy::unwrap_used, reason = "what helps tests panics as they do")]

mod common;

use std::{sync::Arc, time::Duration};

use common::{INSTANT, client, store};
use tidelock::{
    Locks, Name,
    backend::{
        Abilities, Ask, Backend, Call, Claim, ClaimId, ClientId, Entered, Leave, Left, LockView, News, Scope,
        Standing, What,
    },
    testing::{Clock, defect::Defects},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// How long the answer to a renewal is under way.
const SLOW: Duration = Duration::from_millis(500);

/// A store that says only that something changed, and whose answers to renewals are old when they arrive.
#[derive(Debug)]
struct LateAnswers {
    inner: Arc<dyn Backend>,
    /// A renewal was answered, and its answer is under way.
    answered: Arc<Semaphore>,
}

impl Backend for LateAnswers {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn client_id(&self) -> ClientId {
        self.inner.client_id()
    }

    fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Call<Entered> {
        self.inner.enter(claim, ask)
    }

    fn wait(&self) -> Call<News> {
        let news = self.inner.wait();
        Call::later(async move {
            let mut news = news.await?;
            news.what = What::Ask;
            Ok(news)
        })
    }

    fn renew(&self, claims: &[Arc<Claim>]) -> Call<Vec<Standing>> {
        let (answer, answered) = (self.inner.renew(claims), Arc::clone(&self.answered));
        Call::later(async move {
            let answer = answer.await;
            answered.add_permits(1);
            tokio::time::sleep(SLOW).await;
            answer
        })
    }

    fn leave(&self, name: &Name, id: ClaimId, why: Leave) -> Call<Left> {
        self.inner.leave(name, id, why)
    }

    fn look(&self, scope: &Scope) -> Call<Vec<LockView>> {
        self.inner.look(scope)
    }
}

fn late(store: &Arc<tidelock::testing::faulty::FaultyStore>) -> (Locks, Arc<Semaphore>) {
    let answered = Arc::new(Semaphore::new(0));
    let inner = store.connect(ClientId::from_u64(2));
    let backend = LateAnswers { inner, answered: Arc::clone(&answered) };
    (Locks::on_clock(Arc::new(backend), Clock::driven(0), Defects::NONE), answered)
}

/// The lock becomes free after the store has answered that it is not, and before that answer arrives.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_woken_while_an_older_answer_is_under_way_asks_again_at_once() {
    let store = store(INSTANT);
    let first = client(&store, 1).locks.mutex("x").lock().await.unwrap();
    let (locks, answered) = late(&store);
    let second = tokio::spawn(async move { locks.mutex("x").lock().await.unwrap() });
    answered.acquire().await.unwrap().forget();
    first.release().await.unwrap();
    let freed = Instant::now();
    assert!(second.await.unwrap().is_held());
    // The rest of the old answer's way, and the way of the next one. The fallback would come after two seconds.
    assert!(freed.elapsed() <= 2 * SLOW, "{:?}", freed.elapsed());
}

/// The claim is evicted after the store has answered that it holds, and before that answer arrives.
#[tokio::test(start_paused = true)]
async fn a_holder_that_is_evicted_while_an_older_answer_is_under_way_learns_of_it_at_once() {
    let store = store(INSTANT);
    let other = client(&store, 1);
    let first = other.locks.mutex("x").lock().await.unwrap();
    let (locks, answered) = late(&store);
    let second = tokio::spawn(async move { locks.mutex("x").lock().await.unwrap() });
    answered.acquire().await.unwrap().forget();
    first.release().await.unwrap();
    // It was woken by the release; the answer to what it asks then says that it holds.
    answered.acquire().await.unwrap().forget();
    let claim = other.locks.look(["x"]).await.unwrap()[0].holders[0].id;
    assert!(other.locks.evict("x", claim, "maintenance").await.unwrap());
    let evicted = Instant::now();
    let guard = second.await.unwrap();
    timeout(3 * SLOW, guard.lost()).await.expect("it learns of it before its next renewal");
    assert!(evicted.elapsed() <= 3 * SLOW, "{:?}", evicted.elapsed());
}
