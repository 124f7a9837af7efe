//! Entering, and what becomes of votes until there is a majority.

use std::sync::Arc;

use super::{
    claims::Use,
    link::Link,
    quorum::{self, Entry, Vote},
    round::{Answer, Asked},
    split::{self, Turn},
    store::{GIVE_UP, RedlockStore},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, FailureKind, Grant, Leave, News, Place, Scope, What},
    model::name::Name,
};

/// How often a try looks whether split votes came together.
const ROUNDS_OF_A_TRY: u32 = 5;
/// How often an epoch is written back before it is given up: others may write a larger one at the same time.
const ROUNDS_OF_AGREEMENT: u32 = 3;

impl RedlockStore {
    pub(super) async fn enter(self: &Arc<Self>, claim: &Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        if claim.ttl > self.longest_ttl && !claim.is_record() {
            return Err(Failure::denied(format!(
                "a ttl of {:?} is longer than servers are kept from voting after a start, which is {:?}: ask for less, or set longest_ttl_ms in the URL of all clients",
                claim.ttl, self.longest_ttl
            )));
        }
        self.voters[0].check(claim)?;
        if !self.claims.sit(claim) {
            return Ok(self.over(claim, ask));
        }
        let (answers, votes, asked) = self.enter_all(claim, ask).await;
        if self.claims.is_over(claim.id) {
            return Ok(self.over(claim, ask));
        }
        match quorum::entry(&votes, ask).unwrap_or(Entry::Failed) {
            Entry::Holds(token) => {
                let Some(epoch) = self.agreed(claim, token, asked).await? else {
                    return Ok(self.over(claim, ask));
                };
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
                let seat = self.claims.take(claim.id);
                if let Some(seat) = seat.filter(|_| votes.iter().any(|vote| *vote != Vote::Busy)) {
                    self.leave_later(claim, seat.asked);
                }
                Ok(Entered::Busy)
            }
            Entry::Refused => {
                let refusal = answers.iter().find_map(|answer| match answer {
                    Answer::Here(Ok(Entered::Refused(refusal))) => Some(*refusal),
                    _ => None,
                });
                if let Some(seat) = self.claims.take(claim.id) {
                    self.leave_later(claim, seat.asked);
                }
                refusal.map(Entered::Refused).ok_or_else(|| Failure::unknown("a refusal without a reason"))
            }
            Entry::Failed => {
                let failure = self
                    .failed(&answers, |entered| matches!(entered, Entered::Held(_) | Entered::Waiting(_)));
                Err(self.could_not_enter(claim, failure))
            }
        }
    }

    /// Says how entering failed. The engine may ask again with the same id, and a leave that is late would end that claim,
    /// too. So the claim is not left here, unless it is of no use to ask again.
    fn could_not_enter(self: &Arc<Self>, claim: &Arc<Claim>, failure: Failure) -> Failure {
        match failure.kind {
            FailureKind::Denied => {
                if let Some(seat) = self.claims.take(claim.id) {
                    self.leave_later(claim, seat.asked);
                }
                failure
            }
            // An earlier question may have arrived.
            FailureKind::Unreachable if !self.claims.take_unasked(claim.id) => {
                Failure { kind: FailureKind::Unknown, ..failure }
            }
            FailureKind::Unreachable | FailureKind::Unknown => failure,
        }
    }

    /// What to say of a claim that was given up while it was asked for: the engine comes again with another one.
    fn over(self: &Arc<Self>, claim: &Arc<Claim>, ask: Ask) -> Entered {
        match ask {
            Ask::Try => {
                if let Some(seat) = self.claims.take(claim.id) {
                    self.leave_later(claim, seat.asked);
                }
                Entered::Busy
            }
            Ask::Queue => {
                let news = News { name: claim.name.clone(), id: claim.id, what: What::Ask };
                self.do_later(async move { Some(news) });
                Entered::Waiting(Place { ahead: 0, lapse_in: None })
            }
        }
    }

    /// Enters on all servers. Says what they answered, their votes, and what
    /// [`Claims::ask_begins`](super::claims::Claims::ask_begins) did.
    async fn enter_all(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        ask: Ask,
    ) -> (Vec<Answer<Entered>>, Vec<Vote>, Option<u16>) {
        let asked = self.claims.ask_begins(claim.id);
        let asked_before = self.claims.may_be_at(claim.id, self.everywhere());
        let floor = self.floor();
        let question = |_, voter: &Arc<Link>| -> Asked<Entered> {
            let (voter, claim) = (Arc::clone(voter), Arc::clone(claim));
            Box::pin(async move { voter.enter(&claim, ask, floor).await })
        };
        // Fewer answers decide nothing, so their clocks need not be compared yet.
        let few = self.needed().min(self.voters.len() - self.needed() + 1);
        let mut decided = None;
        let suffices = |answers: &[Answer<Entered>]| {
            let here = answers.iter().filter(|answer| matches!(answer, Answer::Here(_))).count();
            if here < few {
                return false;
            }
            let weights = self.weights(answers);
            let votes: Vec<_> = weights.votes(answers, entry_vote).collect();
            let is_decided = quorum::entry(&votes, ask).is_some();
            decided = is_decided.then_some((weights, votes));
            is_decided
        };
        let round = self.ask(Self::limit(claim.ttl), question, suffices).await;
        let (weights, votes) = decided.unwrap_or_else(|| {
            let weights = self.weights(&round.answers);
            let votes = weights.votes(&round.answers, entry_vote).collect();
            (weights, votes)
        });
        self.judge_clocks(&weights);
        // Where nothing was sent, or it is not in line, there is nothing to be left.
        let nowhere = |answer: &Answer<Entered>| match answer {
            Answer::Here(Err(failure)) => failure.kind != FailureKind::Unknown,
            Answer::Here(Ok(entered)) => matches!(entered, Entered::Busy | Entered::Refused(_)),
            Answer::Awaited | Answer::Late => false,
        };
        let unasked = round.answers.iter().enumerate().filter(|(_, answer)| nowhere(answer));
        let unasked = unasked.fold(0, |bits, (server, _)| bits | 1 << server);
        self.claims.is_not_at(claim.id, unasked & !asked_before);
        for (server, question) in round.unfinished {
            self.hear_later(server, claim, question);
        }
        (round.answers, votes, asked)
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
                        Entered::Waiting(_) if store.claims.claim(claim.id).is_none() => {
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
        match self.claims.holds_at(id, server) {
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

    /// The claim waits, and holds on some servers perhaps.
    pub(super) fn waits(self: &Arc<Self>, claim: &Claim, votes: &[Vote]) {
        let holds = votes.iter().enumerate().filter(|(_, vote)| matches!(vote, Vote::Holds(_)));
        let holds = holds.fold(0_u16, |bits, (server, _)| bits | 1 << server);
        if holds != 0 && (holds.count_ones() as usize) < self.needed() && self.gives_back(claim) {
            return;
        }
        match self.claims.waits(claim.id, holds) {
            Use::Ask => {
                let news = News { name: claim.name.clone(), id: claim.id, what: What::Ask };
                self.do_later(async move { Some(news) });
            }
            Use::Settle => self.settle_later(claim.id),
            Use::Nothing | Use::Stray => {}
        }
    }

    /// Gives back what a claim has of other programs on too few servers, if such programs have others: they may need it
    /// for a majority of their own. Says whether it did.
    fn gives_back(self: &Arc<Self>, claim: &Claim) -> bool {
        if !self.voters.iter().any(|voter| voter.is_blocked(claim.id)) {
            return false;
        }
        let mut made = Vec::new();
        let mark = || made.extend(self.voters.iter().map(|voter| voter.yields(claim.id)));
        let does = self.claims.yields(claim.id, mark);
        for (voter, made) in self.voters.iter().zip(made) {
            let Some(made) = made else { continue };
            let (voter, name, id) = (Arc::clone(voter), claim.name.clone(), claim.id);
            self.do_later(async move {
                // If it does not arrive, the next renewal says it.
                let _ = tokio::time::timeout(GIVE_UP, voter.give_back(&name, id, made)).await;
                None
            });
        }
        does
    }

    /// The epoch that a majority has: written to one if none has. Nothing if the claim was left while that was found out,
    /// or gave something back. `asked` is what [`Claims::ask_begins`](super::claims::Claims::ask_begins) said.
    pub(super) async fn agreed(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        token: quorum::Token,
        asked: Option<u16>,
    ) -> Result<Option<u64>, Failure> {
        if let Some(known) = self.claims.token(claim.id) {
            return Ok(Some(known));
        }
        let (mut epoch, mut agreed) = (token.epoch, token.agreed);
        for _ in 0..ROUNDS_OF_AGREEMENT {
            if agreed {
                return Ok(self.claims.holds(claim.id, epoch, asked));
            }
            let question = |_, voter: &Arc<Link>| -> Asked<Option<u64>> {
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
            return Ok(self.claims.holds(claim.id, epoch, asked));
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
            let (_, votes, asked) = self.enter_all(claim, Ask::Queue).await;
            if let Some(Entry::Holds(token)) = quorum::entry(&votes, Ask::Queue) {
                match self.agreed(claim, token, asked).await? {
                    Some(epoch) => return Ok(Entered::Held(grant(epoch, claim, [].iter()))),
                    None => break,
                }
            }
        }
        if let Some(asked) = self.claims.give_up(claim.id) {
            // What could not be told is owed.
            let _ = self.leave_all(&claim.name, claim.id, Leave::Done, claim.ttl, asked).await;
        }
        self.claims.take(claim.id);
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

    /// Sees to it that split votes come together: gives way to the claim that stays.
    async fn settle(self: &Arc<Self>, id: ClaimId) -> Option<News> {
        for round in 0.. {
            tokio::time::sleep(split::pause(id, round)).await;
            let claim = self.claims.claim(id)?;
            if !self.claims.goes_on_settling(id) {
                return None;
            }
            match self.turn(&claim).await {
                Turn::Stay => {}
                Turn::Wait => break,
                Turn::GiveWay => {
                    // While the servers were looked at they may have let it hold, and the engine may know.
                    let Some(asked) = self.claims.step_back(id) else { continue };
                    let _ = self.leave_all(&claim.name, id, Leave::Done, claim.ttl, asked).await;
                    // The engine comes again with another claim, once it hears that this one is gone.
                    tokio::time::sleep(split::pause(id, round)).await;
                    return Some(News { name: claim.name.clone(), id, what: What::Ask });
                }
            }
        }
        self.claims.settled(id);
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
    Grant::new(epoch, claim.ttl, grants.map(|grant| grant.waiting).max().unwrap_or(0))
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
