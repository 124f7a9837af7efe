//! Entering, and what becomes of votes until there is a majority.

use std::sync::Arc;

use super::{
    super::redis::Voter,
    quorum::{self, Entry, Vote},
    round::{Answer, Asked},
    seats::Use,
    split::{self, Turn},
    store::{GIVE_UP, RedlockStore},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, FailureKind, Grant, Leave, News, Place, Scope, What},
    name::Name,
};

/// How often a try looks whether split votes came together.
const ROUNDS_OF_A_TRY: u32 = 5;
/// How often an epoch is written back before it is given up: others may write a larger one at the same time.
const ROUNDS_OF_AGREEMENT: u32 = 3;

impl RedlockStore {
    pub(super) async fn enter(self: &Arc<Self>, claim: &Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        if claim.ttl > self.longest_ttl {
            return Err(Failure::denied(format!(
                "a ttl of {:?} is longer than servers are kept from voting after a start, which is {:?}: ask for less, or set longest_ttl_ms in the URL of all clients",
                claim.ttl, self.longest_ttl
            )));
        }
        self.seats.sit(claim);
        let answers = self.enter_all(claim, ask).await;
        let votes: Vec<_> = answers.iter().map(entry_vote).collect();
        match quorum::entry(&votes, ask).unwrap_or(Entry::Failed) {
            Entry::Holds(token) => {
                let epoch = self.agreed(claim, token).await?;
                let grants = answers.iter().filter_map(|answer| match answer {
                    Answer::Here(Ok(Entered::Held(grant))) => Some(grant),
                    _ => None,
                });
                Ok(Entered::Held(grant(epoch, claim, grants)))
            }
            Entry::Waits => {
                let places = answers.iter().filter_map(|answer| match answer {
                    Answer::Here(Ok(Entered::Waiting(place))) => Some(place),
                    _ => None,
                });
                let place = middle(places);
                self.waits(claim, &votes);
                Ok(Entered::Waiting(place))
            }
            Entry::Split => self.contest(claim).await,
            Entry::Busy => {
                self.seats.take(claim.id);
                if votes.iter().any(|vote| *vote != Vote::Busy) {
                    self.leave_later(claim);
                }
                Ok(Entered::Busy)
            }
            Entry::Refused => {
                let refusal = answers.iter().find_map(|answer| match answer {
                    Answer::Here(Ok(Entered::Refused(refusal))) => Some(*refusal),
                    _ => None,
                });
                self.seats.take(claim.id);
                self.leave_later(claim);
                refusal.map(Entered::Refused).ok_or_else(|| Failure::unknown("a refusal without a reason"))
            }
            Entry::Failed => {
                let failure = self
                    .failed(&answers, |entered| matches!(entered, Entered::Held(_) | Entered::Waiting(_)));
                if failure.kind != FailureKind::Unknown {
                    self.seats.take(claim.id);
                    self.leave_later(claim);
                }
                Err(failure)
            }
        }
    }

    /// Enters on all servers.
    async fn enter_all(self: &Arc<Self>, claim: &Arc<Claim>, ask: Ask) -> Vec<Answer<Entered>> {
        self.seats.ask_begins(claim.id);
        let asked_before = self.seats.may_be_at(claim.id, !0);
        let floor = self.floor();
        let question = |voter: &Arc<Voter>| -> Asked<Entered> {
            let (voter, claim) = (Arc::clone(voter), Arc::clone(claim));
            Box::pin(async move { voter.enter(&claim, ask, floor).await })
        };
        let suffices = |answers: &[Answer<Entered>]| {
            let votes: Vec<_> = answers.iter().map(entry_vote).collect();
            quorum::entry(&votes, ask).is_some()
        };
        let round = self.ask(Self::limit(claim.ttl), question, suffices).await;
        // Where nothing was sent there is nothing to be left.
        let nowhere = |answer: &Answer<Entered>| match answer {
            Answer::Here(Err(failure)) => failure.kind != FailureKind::Unknown,
            _ => false,
        };
        let unasked = round.answers.iter().enumerate().filter(|(_, answer)| nowhere(answer));
        let unasked = unasked.fold(0, |bits, (server, _)| bits | 1 << server);
        self.seats.is_not_at(claim.id, unasked & !asked_before);
        for (server, question) in round.unfinished {
            self.hear_later(server, claim, question);
        }
        round.answers
    }

    /// Somebody has to hear the answer: it may be that the claim holds there.
    pub(super) fn hear_later(self: &Arc<Self>, server: usize, claim: &Arc<Claim>, question: Asked<Entered>) {
        let (store, claim) = (Arc::clone(self), Arc::clone(claim));
        self.do_later(async move {
            match tokio::time::timeout(GIVE_UP, question).await {
                Ok(Ok(entered)) => {
                    store.voters[server].note_answer();
                    match entered {
                        Entered::Held(_) => store.holds_at(server, &claim.name, claim.id),
                        Entered::Waiting(_) if store.seats.claim(claim.id).is_none() => {
                            store.leave_stray(server, &claim.name, claim.id);
                            None
                        }
                        _ => None,
                    }
                }
                Ok(Err(_)) | Err(_) => None,
            }
        });
    }

    /// A server let a claim hold. Says what is worth telling.
    pub(super) fn holds_at(self: &Arc<Self>, server: usize, name: &Name, id: ClaimId) -> Option<News> {
        match self.seats.holds_at(id, server) {
            Use::Nothing => None,
            Use::Ask => Some(News { name: name.clone(), id, what: What::Ask }),
            Use::Settle => {
                self.settle_later(id);
                None
            }
            Use::Stray => {
                self.leave_stray(server, name, id);
                None
            }
        }
    }

    /// A claim is in line at a server that nobody stands for any more.
    fn leave_stray(self: &Arc<Self>, server: usize, name: &Name, id: ClaimId) {
        let (store, name) = (Arc::clone(self), name.clone());
        self.do_later(async move {
            let left = store.voters[server].leave(&name, id, &Leave::Done, store.floor()).await;
            if left.is_err() {
                store.owe(server, &name, id, store.clock.now() + store.longest_ttl);
            }
            None
        });
    }

    /// The claim waits, and holds on some servers perhaps.
    pub(super) fn waits(self: &Arc<Self>, claim: &Claim, votes: &[Vote]) {
        let bits = votes.iter().enumerate().filter(|(_, vote)| matches!(vote, Vote::Holds(_)));
        match self.seats.waits(claim.id, bits.fold(0, |bits, (server, _)| bits | 1 << server)) {
            Use::Ask => {
                let news = News { name: claim.name.clone(), id: claim.id, what: What::Ask };
                self.do_later(async move { Some(news) });
            }
            Use::Settle => self.settle_later(claim.id),
            Use::Nothing | Use::Stray => {}
        }
    }

    /// The epoch that a majority has: written to one if none has.
    pub(super) async fn agreed(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        token: quorum::Token,
    ) -> Result<u64, Failure> {
        if let Some(known) = self.seats.token(claim.id) {
            return Ok(known);
        }
        let (mut epoch, mut agreed) = (token.epoch, token.agreed);
        for _ in 0..ROUNDS_OF_AGREEMENT {
            if agreed {
                return Ok(self.seats.holds(claim.id, epoch));
            }
            let question = |voter: &Arc<Voter>| -> Asked<Option<u64>> {
                let (voter, claim) = (Arc::clone(voter), Arc::clone(claim));
                Box::pin(async move { voter.raise(&claim.name, claim.id, epoch).await })
            };
            let has = |answer: &Answer<Option<u64>>| match answer {
                Answer::Here(Ok(Some(now))) => Some(*now),
                _ => None,
            };
            let enough = |answers: &[Answer<Option<u64>>]| {
                answers.iter().filter(|answer| has(answer) == Some(epoch)).count() >= self.needed()
            };
            let over = |answers: &[Answer<Option<u64>>]| {
                enough(answers) || answers.iter().all(|answer| matches!(answer, Answer::Here(_)))
            };
            let round = self.ask(Self::limit(claim.ttl), question, over).await;
            agreed = enough(&round.answers);
            if !agreed {
                epoch = round.answers.iter().filter_map(has).max().unwrap_or(epoch).max(epoch);
            }
            self.forget(round.unfinished);
        }
        if agreed {
            return Ok(self.seats.holds(claim.id, epoch));
        }
        Err(Failure::unknown("too few servers could be told how large the token is"))
    }

    /// A try that holds on some servers only: if nobody has a majority, one of those who try gets it all the same.
    async fn contest(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Entered, Failure> {
        for round in 0..ROUNDS_OF_A_TRY {
            if self.turn(claim).await != Turn::Stay {
                break;
            }
            if round > 0 {
                tokio::time::sleep(split::pause(claim.id, round)).await;
            }
            let answers = self.enter_all(claim, Ask::Queue).await;
            let votes: Vec<_> = answers.iter().map(entry_vote).collect();
            if let Some(Entry::Holds(token)) = quorum::entry(&votes, Ask::Queue) {
                let epoch = self.agreed(claim, token).await?;
                return Ok(Entered::Held(grant(epoch, claim, [].iter())));
            }
        }
        self.leave(&claim.name, claim.id, Leave::Done).await?;
        Ok(Entered::Busy)
    }

    /// What a claim without a majority does.
    async fn turn(self: &Arc<Self>, claim: &Claim) -> Turn {
        let scope = Scope::Names(vec![claim.name.clone()]);
        let views = self.look_at_all(&scope, Self::limit(claim.ttl)).await;
        let views: Vec<_> = views.into_iter().map(|view| view.ok().and_then(|mut all| all.pop())).collect();
        split::turn(claim.id, &views, self.needed())
    }

    fn settle_later(self: &Arc<Self>, id: ClaimId) {
        let store = Arc::clone(self);
        self.do_later(async move { store.settle(id).await });
    }

    /// Sees to it that split votes come together: gives way to whoever stays.
    async fn settle(self: &Arc<Self>, id: ClaimId) -> Option<News> {
        for round in 0.. {
            tokio::time::sleep(split::pause(id, round)).await;
            let claim = self.seats.claim(id)?;
            if !self.seats.is_split(id) {
                break;
            }
            match self.turn(&claim).await {
                Turn::Stay => {}
                Turn::Wait => break,
                Turn::GiveWay => {
                    // The engine comes again with another claim, once it hears that this one is gone.
                    let _ = self.leave(&claim.name, id, Leave::Done).await;
                    tokio::time::sleep(split::pause(id, round)).await;
                    return Some(News { name: claim.name.clone(), id, what: What::Ask });
                }
            }
        }
        self.seats.settled(id);
        None
    }
}

fn entry_vote(answer: &Answer<Entered>) -> Vote {
    match answer {
        Answer::Here(Ok(Entered::Held(grant))) => Vote::Holds(grant.epoch),
        Answer::Here(Ok(Entered::Waiting(_))) => Vote::Waits,
        Answer::Here(Ok(Entered::Busy)) => Vote::Busy,
        Answer::Here(Ok(Entered::Refused(_))) => Vote::Refused,
        Answer::Here(Err(_)) => Vote::Nothing,
        Answer::Late => Vote::Late,
        Answer::Awaited => Vote::Awaited,
    }
}

/// What a majority grants, with the longest queue behind it.
pub(super) fn grant<'a>(epoch: u64, claim: &Claim, grants: impl Iterator<Item = &'a Grant>) -> Grant {
    Grant { epoch, ttl: claim.ttl, waiting: grants.map(|grant| grant.waiting).max().unwrap_or(0) }
}

/// The place that half of the servers show, and the first moment at which a lease ahead of it may end.
pub(super) fn middle<'a>(places: impl Iterator<Item = &'a Place>) -> Place {
    let (mut ahead, mut lapse_in) = (Vec::new(), None);
    for place in places {
        ahead.push(place.ahead);
        lapse_in = [lapse_in, place.lapse_in].into_iter().flatten().min();
    }
    ahead.sort_unstable();
    Place { ahead: ahead.get(ahead.len() / 2).copied().unwrap_or(0), lapse_in }
}
