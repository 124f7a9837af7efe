//! Renewing, and what is known of claims by it.

use std::{sync::Arc, time::Duration};

use super::{
    enter::{grant, middle},
    link::Link,
    quorum::{self, Outcome, Vote},
    round::{Answer, Asked},
    store::RedlockStore,
};
use crate::backend::{Ask, Claim, Failure, Place, Standing};

/// When a claim looks again whose votes were given back while they were counted.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

impl RedlockStore {
    pub(super) async fn renew(
        self: &Arc<Self>,
        claims: &Arc<[Arc<Claim>]>,
    ) -> Result<Vec<Standing>, Failure> {
        let Some(ttl) = claims.iter().map(|claim| claim.ttl).min() else { return Ok(Vec::new()) };
        let held: Vec<_> = claims.iter().map(|claim| self.claims.token(claim.id).is_some()).collect();
        let asked: Vec<_> = claims.iter().map(|claim| self.claims.ask_begins(claim.id)).collect();
        let floor = self.floor();
        let question = |_, voter: &Arc<Link>| -> Asked<Vec<Standing>> {
            let (voter, claims) = (Arc::clone(voter), Arc::clone(claims));
            Box::pin(async move { voter.renew(&claims, floor).await })
        };
        // There may be very many claims: what is the same for all of them is worked out once.
        let mut votes = Vec::with_capacity(self.voters.len());
        let suffices = |answers: &[Answer<Vec<Standing>>]| {
            let weights = self.weights(answers);
            (0..claims.len()).all(|index| {
                votes.clear();
                votes.extend(weights.votes(answers, |answer| standing_vote(answer, index)));
                quorum::outcome(&votes, held[index]).is_some()
            })
        };
        let round = self.ask(Self::limit(ttl), question, suffices).await;
        let weights = self.weights(&round.answers);
        self.judge_clocks(&weights);
        self.forget(round.unfinished);
        let mut standings = Vec::with_capacity(claims.len());
        for (index, claim) in claims.iter().enumerate() {
            votes.clear();
            votes.extend(weights.votes(&round.answers, |answer| standing_vote(answer, index)));
            let stand = quorum::outcome(&votes, held[index]).unwrap_or(Outcome::Unknown);
            let stand = self.stands(claim, index, stand, &votes, &round.answers, asked[index]);
            standings.push(stand.await);
        }
        // Only now that nothing keeps the answers from being heard: until then nobody knows that it is over.
        for (claim, standing) in claims.iter().zip(&standings) {
            if *standing == Standing::Gone {
                self.claims.take(claim.id);
            }
        }
        if standings.iter().all(|standing| *standing == Standing::Unknown) {
            return Err(self.failed(&round.answers, |_| true));
        }
        Ok(standings)
    }

    async fn stands(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        index: usize,
        stand: Outcome,
        votes: &[Vote],
        answers: &[Answer<Vec<Standing>>],
        asked: Option<u16>,
    ) -> Standing {
        if self.claims.is_over(claim.id) {
            return Standing::Gone;
        }
        let said = answers.iter().filter_map(|answer| match answer {
            Answer::Here(Ok(standings)) => standings.get(index),
            _ => None,
        });
        match stand {
            Outcome::Holds(token) => {
                let epoch = match self.agreed(claim, token, asked).await {
                    Ok(Some(epoch)) => epoch,
                    // It gave something back while this was asked.
                    Ok(None) if self.claims.claim(claim.id).is_some() => {
                        return Standing::Waiting(Place { ahead: 1, lapse_in: Some(LOOK_AGAIN) });
                    }
                    Ok(None) => return Standing::Gone,
                    Err(_) => return Standing::Unknown,
                };
                self.rejoin(claim, votes, Ask::Try);
                let grants = said.filter_map(|standing| match standing {
                    Standing::Held(grant) => Some(grant),
                    _ => None,
                });
                Standing::Held(grant(epoch, claim, grants))
            }
            Outcome::Waits => {
                self.waits(claim, votes);
                self.rejoin(claim, votes, Ask::Queue);
                let places = said.filter_map(|standing| match standing {
                    Standing::Waiting(place) => Some(place),
                    _ => None,
                });
                Standing::Waiting(middle(places))
            }
            Outcome::Gone => {
                // Where it is still in line it would keep others waiting.
                if let Some(asked) = self.claims.give_up(claim.id)
                    && votes.iter().any(|vote| *vote != Vote::Gone)
                {
                    self.leave_later(claim, asked);
                }
                Standing::Gone
            }
            Outcome::Unknown => Standing::Unknown,
        }
    }

    /// Enters where a server forgot the claim, or never knew it: one server after the other may be restarted while
    /// it holds.
    fn rejoin(self: &Arc<Self>, claim: &Arc<Claim>, votes: &[Vote], ask: Ask) {
        // Of those that others left behind nobody knows whether they are to stay.
        if self.claims.claim(claim.id).is_none() {
            return;
        }
        let floor = self.floor();
        for (server, vote) in votes.iter().enumerate() {
            if *vote == Vote::Gone && self.voters[server].has_vote().is_ok() {
                let (store, asked) = (Arc::clone(self), Arc::clone(claim));
                let question = Box::pin(async move {
                    // It may have been left before this comes to be asked.
                    if !store.claims.put_at(asked.id, server) {
                        return Err(Failure::unreachable("nobody stands for it any more"));
                    }
                    store.voters[server].enter(&asked, ask, floor).await
                });
                self.hear_later(server, claim, question);
            }
        }
    }
}

fn standing_vote(answer: &Answer<Vec<Standing>>, index: usize) -> Vote {
    match answer {
        Answer::Here(Ok(standings)) => match standings.get(index) {
            Some(Standing::Held(grant)) => Vote::Holds(grant.epoch),
            Some(Standing::Waiting(_)) => Vote::Waits,
            Some(Standing::Gone) => Vote::Gone,
            Some(Standing::Unknown) | None => Vote::Nothing,
        },
        Answer::Here(Err(_)) => Vote::Nothing,
        Answer::Late => Vote::Late,
        Answer::Awaited => Vote::Awaited,
    }
}
