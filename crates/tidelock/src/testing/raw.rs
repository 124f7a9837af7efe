//! A client of a store under test without an engine: it asks, listens, and remembers its claims.
#![allow(clippy::disallowed_methods, reason = "cases play many clients at once, outside of any engine")]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, mpsc},
    task::AbortHandle,
};

use super::suite::{LONG_TTL, PATIENCE, checked};
use crate::{
    Owner,
    backend::{
        Ask, Backend, Claim, ClaimId, ClientId, Entered, Failure, FailureKind, Follow, Grant, Leave, Left,
        News, Place, Share, Standing, What,
    },
};

/// A client as the engine has it: the five verbs, with answers that a case can compare.
#[derive(Debug)]
pub struct Raw {
    pub(super) backend: Arc<dyn Backend>,
    client: ClientId,
    serial: AtomicU64,
    claims: std::sync::Mutex<HashMap<ClaimId, Arc<Claim>>>,
    news: Mutex<mpsc::UnboundedReceiver<News>>,
    listener: AbortHandle,
}

impl Raw {
    pub(super) fn listen(backend: Arc<dyn Backend>, client: ClientId) -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        let ears = Arc::clone(&backend);
        // As the engine does: one task, again and again, and no call of it is dropped before the end.
        let listener = tokio::spawn(async move {
            loop {
                match ears.wait().await {
                    Ok(news) => {
                        if tell.send(news).is_err() {
                            return;
                        }
                    }
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        let listener = listener.abort_handle();
        let (serial, claims, news) = (AtomicU64::new(1), std::sync::Mutex::default(), Mutex::new(news));
        Self { backend, client, serial, claims, news, listener }
    }

    /// A new claim of this client, with a [long lease](LONG_TTL).
    pub fn claim(&self, name: &str, share: Share) -> Arc<Claim> {
        self.claim_for(name, share, None, LONG_TTL)
    }

    /// A new claim of this client.
    pub fn claim_for(&self, name: &str, share: Share, owner: Option<&str>, ttl: Duration) -> Arc<Claim> {
        let claim = Arc::new(Claim {
            id: ClaimId::new(self.client, self.serial.fetch_add(1, Ordering::Relaxed)),
            name: checked(name),
            share,
            owner: owner.map(|owner| Owner::new(owner).expect("cases name proper owners")),
            ttl,
            label: "suite".into(),
            detached: false,
            auto_renew: true,
            writes: false,
        });
        self.claims.lock().expect("no case panics here").insert(claim.id, Arc::clone(&claim));
        claim
    }

    /// Enters to stay.
    pub async fn queue(&self, claim: &Arc<Claim>) -> Entered {
        self.enter(claim, Ask::Queue).await
    }

    /// Enters, or takes it only if it is free.
    pub async fn enter(&self, claim: &Arc<Claim>, ask: Ask) -> Entered {
        answered(|| self.backend.enter(claim, ask)).await
    }

    /// Enters a claim that must hold at once.
    pub async fn hold(&self, claim: &Arc<Claim>) -> Grant {
        match self.queue(claim).await {
            Entered::Held(grant) => grant,
            other => panic!("the claim should hold at once, and it is {other:?}"),
        }
    }

    /// Enters a claim that must wait.
    pub async fn stand(&self, claim: &Arc<Claim>) -> Place {
        match self.queue(claim).await {
            Entered::Waiting(place) => place,
            other => panic!("the claim should wait, and it is {other:?}"),
        }
    }

    /// Renews a batch.
    pub async fn renew(&self, claims: &[Arc<Claim>]) -> Vec<Standing> {
        answered(|| self.backend.renew(claims)).await
    }

    /// Renews one claim and says how it stands.
    pub async fn stands(&self, claim: &Arc<Claim>) -> Standing {
        let standings = self.renew(std::slice::from_ref(claim)).await;
        assert_eq!(standings.len(), 1, "one answer to one claim");
        standings[0]
    }

    /// Renews a claim that must hold.
    pub async fn holds(&self, claim: &Arc<Claim>) -> Grant {
        match self.stands(claim).await {
            Standing::Held(grant) => grant,
            other => panic!("the claim should hold, and it is {other:?}"),
        }
    }

    /// Gives a claim back.
    pub async fn leave(&self, claim: &Claim) {
        self.leave_as(claim, Leave::Done).await;
    }

    /// Gives a claim back, or puts it out, and says whether it was there.
    pub async fn leave_as(&self, claim: &Claim, why: Leave) -> Left {
        self.backend.leave(&claim.name, claim.id, why).await.expect("the store answers")
    }

    /// Follows a name.
    pub fn follow(&self, name: &str) -> Follow {
        self.backend.follow(&checked(name)).expect("the store follows names")
    }

    /// The next news, if any come within this time. Asks when it is told to, as the engine does.
    pub async fn news(&self, within: Duration) -> Option<News> {
        loop {
            let next = async { self.news.lock().await.recv().await };
            let news = tokio::time::timeout(within, next).await.ok().flatten()?;
            if news.what != What::Ask {
                return Some(news);
            }
            let claim = self.claims.lock().expect("no case panics here").get(&news.id).cloned();
            if let Some(claim) = claim
                && let Standing::Held(grant) = self.stands(&claim).await
            {
                return Some(News { what: What::Granted(grant), ..news });
            }
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// What the store answers. As the engine does, asks once more where a busy server did not answer in time:
/// the same claim may be entered and renewed any number of times.
async fn answered<T, F>(ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, Failure>>,
{
    let begin = tokio::time::Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(failure) if failure.kind == FailureKind::Unknown && begin.elapsed() < PATIENCE => {}
            Err(failure) => panic!("the store does not answer: {failure:?}"),
        }
    }
}
