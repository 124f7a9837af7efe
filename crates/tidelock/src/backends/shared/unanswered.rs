//! Questions that nobody answered. Such an `enter` may still be on its way, in a queue or on a connection that was
//! given up, and arrive after its claim was left. So a leave shuts it out first.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use super::mutex::lock;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use super::{
    steps::{Step, Steps},
    together::{Answer, Joined},
};
use crate::{
    backend::{ClaimId, Failure, FailureKind},
    backends::shared::failures::in_doubt,
    clock::{Clock, Moment},
};

/// How long it is remembered here that a question may arrive. The stores remember for as long who was shut out: longer
/// than any network tries to deliver what a sender that has gone left behind.
const REMEMBERED: Duration = Duration::from_secs(3_600);

/// The claims of a client for which a question may still arrive.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    clock: Clock,
    claims: Mutex<HashMap<ClaimId, Moment>>,
}

impl Unanswered {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, Moment>> {
        lock(&self.claims)
    }

    /// A claim is about to be asked for.
    pub(crate) fn asking(&self, id: ClaimId) -> Asking<'_> {
        Asking { all: self, id, is_sent: false, is_lost: false }
    }

    /// Makes sure that no question for a claim takes anything any more: `shut_out` is sent if one may still arrive.
    pub(crate) async fn shut_out<T, F: Future<Output = Result<T, Failure>> + Send>(
        &self,
        id: ClaimId,
        shut_out: impl FnOnce() -> F + Send,
    ) -> Result<(), Failure> {
        if self.has(id) {
            shut_out().await.map_err(in_doubt)?;
            self.claims().remove(&id);
        }
        Ok(())
    }

    /// Whether a question for a claim may still arrive.
    fn has(&self, id: ClaimId) -> bool {
        self.claims().contains_key(&id)
    }

    fn note(&self, id: ClaimId) {
        let now = self.clock.now();
        let mut claims = self.claims();
        // Those that nobody could leave have lapsed long ago.
        claims.retain(|_, since| now.since(*since) < REMEMBERED);
        claims.insert(id, now);
    }
}

/// A question under way. Dropped before its answer came it may still arrive.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    all: &'a Unanswered,
    id: ClaimId,
    is_sent: bool,
    is_lost: bool,
}

impl Asking<'_> {
    /// Sends it, maybe not for the first time. `classify` says what may be concluded from an error.
    pub(crate) async fn send<T, E>(
        &mut self,
        question: impl Future<Output = Result<T, E>>,
        classify: impl Fn(&E) -> Failure,
    ) -> Result<T, E> {
        self.is_sent = true;
        let answer = question.await;
        self.is_sent = false;
        self.is_lost |= answer.as_ref().is_err_and(|error| classify(error).kind == FailureKind::Unknown);
        answer
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl Asking<'_> {
    /// Asks together with others, if a call is under way. What a claim among them may do late is noted for each.
    pub(crate) async fn join<A: Answer>(
        &mut self,
        steps: &Steps<A>,
        step: Step,
    ) -> Result<Joined<Step, A>, Failure> {
        let joined = steps.join(step, &mut self.is_sent).await;
        self.is_sent = false;
        self.is_lost |= joined.as_ref().is_err_and(|failure| failure.kind == FailureKind::Unknown);
        joined
    }

    /// A question that was asked may still arrive, although it was answered when it was asked again.
    #[cfg(feature = "mysql")]
    pub(crate) fn may_arrive(&mut self) {
        self.is_lost = true;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_sent || self.is_lost {
            self.all.note(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ClaimId {
        ClaimId::from_u128(7)
    }

    async fn ask(unanswered: &Unanswered, answer: Result<(), Failure>) {
        let _ = unanswered.asking(id()).send(async { answer }, Clone::clone).await;
    }

    #[tokio::test]
    async fn a_question_may_arrive_later_only_if_its_outcome_is_unknown() {
        let unanswered = Unanswered::default();
        for answer in [Ok(()), Err(Failure::unreachable("down")), Err(Failure::denied("no"))] {
            ask(&unanswered, answer).await;
            assert!(!unanswered.has(id()));
        }
        ask(&unanswered, Err(Failure::unknown("lost"))).await;
        assert!(unanswered.has(id()));
    }

    #[tokio::test]
    async fn a_question_that_is_given_up_may_arrive_later() {
        let unanswered = Unanswered::default();
        let mut asking = unanswered.asking(id());
        let never = std::future::pending::<Result<(), Failure>>();
        tokio::select! {
            biased;
            _ = asking.send(never, Clone::clone) => {}
            () = std::future::ready(()) => {}
        }
        drop(asking);
        assert!(unanswered.has(id()));
    }

    #[tokio::test]
    async fn a_claim_is_shut_out_once_and_only_if_that_is_needed() {
        let unanswered = Unanswered::default();
        let fails = || async { Err::<(), _>(Failure::unreachable("down")) };
        unanswered.shut_out(id(), fails).await.expect("nothing to shut out");
        ask(&unanswered, Err(Failure::unknown("lost"))).await;
        let failed = unanswered.shut_out(id(), fails).await.unwrap_err();
        assert_eq!((failed.kind, unanswered.has(id())), (FailureKind::Unknown, true));
        unanswered.shut_out(id(), || async { Ok(()) }).await.unwrap();
        assert!(!unanswered.has(id()));
    }
}
