//! Renewals in two steps, for stores whose rules are in the server: claims that need no rule go together in one statement, and
//! what it leaves open is asked with the verb.
//!
//! Each step commits for itself. What the first one confirmed is confirmed, whatever becomes of the second.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::backend::{Claim, Failure, FailureKind, Standing};

/// The renewals of one client.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// Whether the server refuses the first step: an older list of rights does not have it. The verb does all of it then.
    is_refused: AtomicBool,
}

impl Renewals {
    /// Renews claims: `together` answers those that need no rule, `verb` those at these places of the list. If these are not all
    /// claims, the answers of the others wait for it: it should not be patient with lines that somebody keeps locked.
    pub(crate) async fn renew<T, V>(
        &self,
        claims: &[Arc<Claim>],
        together: impl FnOnce() -> T,
        verb: impl FnOnce(Vec<usize>) -> V,
    ) -> Result<Vec<Standing>, Failure>
    where
        T: Future<Output = Result<Vec<Option<Standing>>, Failure>>,
        V: Future<Output = Result<Vec<Standing>, Failure>>,
    {
        // One alone is a single call in any case.
        if claims.len() < 2 || self.is_refused.load(Ordering::Relaxed) {
            return verb((0..claims.len()).collect()).await;
        }
        let answered = match together().await {
            Err(failure) if failure.kind == FailureKind::Denied => {
                self.is_refused.store(true, Ordering::Relaxed);
                vec![None; claims.len()]
            }
            answered => answered?,
        };
        let open: Vec<usize> = (0..claims.len()).filter(|index| answered[*index].is_none()).collect();
        if open.len() == claims.len() {
            return verb(open).await;
        }
        // Nothing is known of those that the verb does not answer, and no more is lost: the others are confirmed.
        let mut standings: Vec<_> =
            answered.into_iter().map(|standing| standing.unwrap_or(Standing::Unknown)).collect();
        if !open.is_empty() {
            let rest = verb(open.clone()).await.unwrap_or_default();
            for (index, standing) in open.into_iter().zip(rest) {
                standings[index] = standing;
            }
        }
        Ok(standings)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use super::*;
    use crate::{
        backend::{ClaimId, Grant, Share},
        model::name::Name,
    };

    const TTL: Duration = Duration::from_secs(30);

    fn claims(count: u128) -> Vec<Arc<Claim>> {
        let claim = |id| Claim::new(ClaimId::from_u128(id), Name::new("a").unwrap(), Share::Exclusive, TTL);
        (0..count).map(|id| Arc::new(claim(id))).collect()
    }

    fn held(epoch: u64) -> Standing {
        Standing::Held(Grant::new(epoch, TTL, 0))
    }

    /// What is answered when the first step answers this, and the verb the places that it is asked for.
    async fn ask(
        renewals: &Renewals,
        first: Result<Vec<Option<Standing>>, Failure>,
        verb: Result<Standing, Failure>,
    ) -> (Result<Vec<Standing>, Failure>, Vec<usize>) {
        let asked = Mutex::new(Vec::new());
        let claims = claims(first.as_ref().map_or(2, Vec::len) as u128);
        let verb = async |open: Vec<usize>| {
            asked.lock().unwrap().extend(&open);
            Ok(vec![verb?; open.len()])
        };
        let answer = renewals.renew(&claims, || async { first }, verb).await;
        (answer, asked.into_inner().unwrap())
    }

    #[tokio::test]
    async fn only_what_the_first_step_left_open_is_asked_with_the_verb() {
        let renewals = Renewals::default();
        let (answer, asked) = ask(&renewals, Ok(vec![Some(held(1)), Some(held(2))]), Ok(held(9))).await;
        assert_eq!((answer.unwrap(), asked), (vec![held(1), held(2)], vec![]));
        let first = Ok(vec![None, Some(held(2)), None]);
        let (answer, asked) = ask(&renewals, first, Ok(Standing::Gone)).await;
        assert_eq!((answer.unwrap(), asked), (vec![Standing::Gone, held(2), Standing::Gone], vec![0, 2]));
    }

    #[tokio::test]
    async fn one_claim_alone_is_one_call_of_the_verb() {
        let (answer, asked) = ask(&Renewals::default(), Ok(vec![Some(held(1))]), Ok(held(9))).await;
        assert_eq!((answer.unwrap(), asked), (vec![held(9)], vec![0]));
    }

    #[tokio::test]
    async fn a_first_step_that_fails_is_no_answer_for_any() {
        let renewals = Renewals::default();
        let (answer, asked) = ask(&renewals, Err(Failure::unknown("cut")), Ok(held(9))).await;
        assert_eq!((answer.unwrap_err().kind, asked), (FailureKind::Unknown, vec![]));
        // It is asked again the next time.
        let (answer, _) = ask(&renewals, Ok(vec![Some(held(1)), Some(held(2))]), Ok(held(9))).await;
        assert_eq!(answer.unwrap(), [held(1), held(2)]);
    }

    #[tokio::test]
    async fn a_verb_that_fails_is_no_answer_for_those_that_it_was_asked_for() {
        let renewals = Renewals::default();
        let cut = || Err(Failure::unknown("cut"));
        let (answer, _) = ask(&renewals, Ok(vec![None, Some(held(2))]), cut()).await;
        assert_eq!(answer.unwrap(), [Standing::Unknown, held(2)]);
        let (answer, _) = ask(&renewals, Ok(vec![None, None]), cut()).await;
        assert_eq!(answer.unwrap_err().kind, FailureKind::Unknown);
    }

    #[tokio::test]
    async fn a_server_that_refuses_the_first_step_is_asked_with_the_verb_from_then_on() {
        let renewals = Renewals::default();
        let (answer, asked) = ask(&renewals, Err(Failure::denied("no right")), Ok(held(9))).await;
        assert_eq!((answer.unwrap(), asked), (vec![held(9), held(9)], vec![0, 1]));
        let (answer, asked) = ask(&renewals, Ok(vec![Some(held(1)), Some(held(2))]), Ok(held(9))).await;
        assert_eq!((answer.unwrap(), asked), (vec![held(9), held(9)], vec![0, 1]));
    }
}
