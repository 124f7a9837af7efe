//! The verbs, on all servers at once.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    super::redis::{Ear, Voter},
    RedlockConfig,
    quorum::{self, Vote, majority},
    round::{self, Answer, Asked, Later, Round},
    seats::Seats,
    view,
};
use crate::{
    backend::{Claim, ClaimId, ClientId, Failure, FailureKind, Leave, LockView, News, Scope, What},
    clock::{Clock, Moment},
    name::Name,
};

/// How long servers may take to be connected before those that took longer are not waited for.
const CONNECT: Duration = Duration::from_millis(500);
/// How long an answer that nobody waits for may take before its question is given up.
pub(super) const GIVE_UP: Duration = Duration::from_secs(5);

/// The locks that several servers vote on, as one client sees them.
#[derive(Debug)]
pub(super) struct RedlockStore {
    pub(super) voters: Vec<Arc<Voter>>,
    /// For each server, what it could not be told: who left, and until when that matters.
    owed: Vec<Mutex<VecDeque<(Name, ClaimId, Moment)>>>,
    pub(super) seats: Seats,
    pub(super) longest_ttl: Duration,
    pub(super) clock: Clock,
    later: UnboundedSender<Later>,
}

/// Where a client hears of its claims, and does what need not be waited for.
pub(super) struct Ears {
    ears: Vec<Ear>,
    later: UnboundedReceiver<Later>,
    under_way: FuturesUnordered<Later>,
    /// What is to be told next.
    news: VecDeque<News>,
}

impl std::fmt::Debug for Ears {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ears").field(&self.ears.len()).finish()
    }
}

impl RedlockStore {
    pub(super) async fn connect(
        config: RedlockConfig,
        client: ClientId,
    ) -> Result<(Arc<Self>, Ears), Failure> {
        let mut voters = Vec::new();
        let mut ears = Vec::new();
        for server in config.servers {
            let (voter, ear) = Voter::new(server, client, config.longest_ttl)?;
            voters.push(Arc::new(voter));
            ears.push(ear);
        }
        let (later, work) = unbounded_channel();
        let store = Arc::new(Self {
            owed: voters.iter().map(|_| Mutex::default()).collect(),
            seats: Seats::new(majority(voters.len())),
            voters,
            longest_ttl: config.longest_ttl,
            clock: Clock::machine(),
            later,
        });
        store.connect_all().await?;
        Ok((store, Ears { ears, later: work, under_way: FuturesUnordered::new(), news: VecDeque::new() }))
    }

    /// Connects as many servers as are there. A mistake in the URL is said now, not when the first lock is wanted.
    async fn connect_all(self: &Arc<Self>) -> Result<(), Failure> {
        let voters = self.voters.clone();
        let mut connecting =
            Box::pin(async move { join_all(voters.iter().map(|voter| voter.connect())).await });
        let enough = || self.voters.iter().filter(|voter| voter.is_connected()).count() >= self.needed();
        let connected = match tokio::time::timeout(CONNECT, connecting.as_mut()).await {
            Ok(connected) => connected,
            Err(_) if enough() => {
                self.do_later(async move {
                    connecting.await;
                    None
                });
                Vec::new()
            }
            Err(_) => connecting.await,
        };
        let failures = connected.iter().map(|connected| connected.as_ref().err());
        if let Some(denied) = failures.clone().flatten().find(|failure| failure.kind == FailureKind::Denied) {
            return Err(denied.clone());
        }
        if !enough() {
            return Err(Failure::unreachable(self.too_few(failures)));
        }
        (0..self.voters.len()).try_for_each(|index| self.is_no_twin(index))
    }

    /// Takes the vote from a server that has one under another name.
    fn is_no_twin(&self, index: usize) -> Result<(), Failure> {
        let (voter, run) = (&self.voters[index], self.voters[index].run());
        let mut others = self.voters.iter().enumerate().filter(|(other, _)| *other != index);
        let twin = others.find(|(_, other)| run.is_some() && other.is_trusted() && other.run() == run);
        let Some((_, twin)) = twin else {
            voter.distrust(None);
            return Ok(());
        };
        let failure = Failure::denied(format!(
            "{} and {} are the same server, which would vote twice: name each server once",
            twin.address(),
            voter.address()
        ));
        voter.distrust(Some(failure.clone()));
        Err(failure)
    }

    pub(super) fn needed(&self) -> usize {
        majority(self.voters.len())
    }

    /// Why there is no majority, from what is wrong with each server, in their order. Servers that say the same
    /// are named together.
    fn too_few<'a>(&self, failures: impl Iterator<Item = Option<&'a Failure>>) -> String {
        let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
        for (failure, voter) in failures.zip(&self.voters) {
            let Some(failure) = failure else { continue };
            let reason =
                failure.reason.strip_prefix(voter.address()).and_then(|rest| rest.strip_prefix(": "));
            let reason = reason.unwrap_or(&failure.reason);
            match said.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, servers)) => servers.push(voter.address()),
                None => said.push((reason, vec![voter.address()])),
            }
        }
        let (all, without) = (self.voters.len(), said.iter().map(|(_, servers)| servers.len()).sum());
        let said: Vec<_> =
            said.iter().map(|(reason, servers)| format!("{}: {reason}", servers.join(", "))).collect();
        format!(
            "{} of {all} servers can vote, and {} have to: {}",
            all.saturating_sub(without),
            self.needed(),
            said.join("; ")
        )
    }

    pub(super) fn concerns(&self) -> Vec<String> {
        let mut concerns: Vec<_> = self.voters.iter().flat_map(|voter| voter.concerns()).collect();
        let all = self.voters.len();
        if all.is_multiple_of(2) {
            concerns.push(format!(
                "{all} servers survive the loss of no more of them than {} do: leave one out or add one",
                all - 1
            ));
        }
        concerns
    }

    pub(super) fn do_later(&self, work: impl Future<Output = Option<News>> + Send + 'static) {
        // Nobody does it any more only when the client is gone.
        let _ = self.later.send(Box::pin(work));
    }

    /// The least epoch of what is granted now: what half of the servers' clocks are past, so that one that runs
    /// ahead does not take all epochs along. The same for all servers, so that they give the same one.
    pub(super) fn floor(&self) -> Option<u64> {
        let now = self.clock.now();
        let mut times: Vec<_> = self.voters.iter().filter_map(|voter| voter.server_micros(now)).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// How long servers are waited for whose answers matter: less than the engine waits for us.
    pub(super) fn limit(ttl: Duration) -> Duration {
        (ttl / 6).min(Duration::from_secs(1))
    }

    pub(super) async fn ask<T: Send>(
        self: &Arc<Self>,
        limit: Duration,
        question: impl Fn(&Arc<Voter>) -> Asked<T> + Send,
        suffices: impl FnMut(&[Answer<T>]) -> bool + Send,
    ) -> Round<T> {
        let round = round::ask(&self.voters, question, limit, suffices).await;
        if round.answers.iter().any(|answer| matches!(answer, Answer::Here(Err(_)))) {
            self.mend();
        }
        round
    }

    /// Sees to it that servers are connected again.
    fn mend(self: &Arc<Self>) {
        for index in 0..self.voters.len() {
            if self.voters[index].wants_connection() {
                let store = Arc::clone(self);
                self.do_later(async move {
                    if store.voters[index].connect().await.is_ok() && store.is_no_twin(index).is_ok() {
                        store.pay(index).await;
                    }
                    None
                });
            }
        }
    }

    /// Tells a server what it could not be told.
    async fn pay(&self, server: usize) {
        let owed = std::mem::take(&mut *self.owed[server].lock().unwrap_or_else(PoisonError::into_inner));
        let (now, floor) = (self.clock.now(), self.floor());
        let leave = |(name, id, until): (Name, ClaimId, Moment)| async move {
            if until > now && self.voters[server].leave(&name, id, &Leave::Done, floor).await.is_err() {
                self.owe(server, &name, id, until);
            }
        };
        let mut owed = owed.into_iter();
        // Some at a time: there may be very many.
        while owed.len() > 0 {
            join_all(owed.by_ref().take(128).map(leave)).await;
        }
    }

    pub(super) fn owe(&self, server: usize, name: &Name, id: ClaimId, until: Moment) {
        let mut owed = self.owed[server].lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        while owed.front().is_some_and(|(_, _, until)| *until <= now) {
            owed.pop_front();
        }
        owed.push_back((name.clone(), id, until));
    }

    /// Lets questions end whose answers matter to nobody.
    pub(super) fn forget<T: Send + 'static>(self: &Arc<Self>, unfinished: Vec<(usize, Asked<T>)>) {
        for (server, question) in unfinished {
            let voter = Arc::clone(&self.voters[server]);
            self.do_later(async move {
                if let Ok(Ok(_)) = tokio::time::timeout(GIVE_UP, question).await {
                    voter.note_answer();
                }
                None
            });
        }
    }

    pub(super) async fn leave(self: &Arc<Self>, name: &Name, id: ClaimId, why: Leave) -> Result<(), Failure> {
        // One that is put out and is one of ours is told so by the servers.
        let seat = if why == Leave::Done { self.seats.take(id) } else { None };
        let (ttl, asked) = seat.map_or((self.longest_ttl, !0), |seat| (seat.claim.ttl, seat.asked));
        let until = self.clock.now() + ttl;
        let (why, floor) = (Arc::new(why), self.floor());
        let question = |voter: &Arc<Voter>| -> Asked<()> {
            let (voter, name, why) = (Arc::clone(voter), name.clone(), Arc::clone(&why));
            Box::pin(async move { voter.leave(&name, id, &why, floor).await })
        };
        let vote = |answer: &Answer<()>| match answer {
            Answer::Here(Ok(())) => Vote::Gone,
            Answer::Here(Err(_)) => Vote::Nothing,
            Answer::Late => Vote::Late,
            Answer::Awaited => Vote::Awaited,
        };
        let done = |answers: &[Answer<()>]| quorum::done(&answers.iter().map(vote).collect::<Vec<_>>());
        let round = self.ask(Self::limit(ttl), question, |answers| done(answers).is_some()).await;
        for (server, question) in round.unfinished {
            let (store, name) = (Arc::clone(self), name.clone());
            self.do_later(async move {
                match tokio::time::timeout(GIVE_UP, question).await {
                    Ok(Ok(())) => store.voters[server].note_answer(),
                    Ok(Err(_)) | Err(_) => store.owe(server, &name, id, until),
                }
                None
            });
        }
        for (server, answer) in round.answers.iter().enumerate() {
            if asked & 1 << server != 0 && matches!(answer, Answer::Here(Err(_))) {
                self.owe(server, name, id, until);
            }
        }
        if done(&round.answers) == Some(true) { Ok(()) } else { Err(self.failed(&round.answers, |()| true)) }
    }

    pub(super) fn leave_later(self: &Arc<Self>, claim: &Arc<Claim>) {
        let (store, claim) = (Arc::clone(self), Arc::clone(claim));
        self.do_later(async move {
            // What could not be told is owed.
            let _ = store.leave(&claim.name, claim.id, Leave::Done).await;
            None
        });
    }

    pub(super) async fn look(self: &Arc<Self>, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let views = self.look_at_all(scope, Duration::from_secs(2)).await;
        if views.iter().flatten().count() < self.needed() {
            let failures = views.iter().map(|view| view.as_ref().err());
            return Err(Failure::unreachable(self.too_few(failures)));
        }
        let seen: Vec<_> = views.into_iter().flatten().collect();
        Ok(view::merged(&seen, self.voters.len()))
    }

    pub(super) async fn look_at_all(
        self: &Arc<Self>,
        scope: &Scope,
        limit: Duration,
    ) -> Vec<Result<Vec<LockView>, Failure>> {
        let question = |voter: &Arc<Voter>| -> Asked<Vec<LockView>> {
            let (voter, scope) = (Arc::clone(voter), scope.clone());
            Box::pin(async move { voter.look(&scope).await })
        };
        let over = |answers: &[Answer<Vec<LockView>>]| {
            let seen = answers.iter().filter(|answer| matches!(answer, Answer::Here(Ok(_)))).count();
            let is_awaited = |answer: &Answer<_>| match answer {
                Answer::Here(_) => false,
                Answer::Awaited => true,
                Answer::Late => seen < self.needed(),
            };
            !answers.iter().any(is_awaited)
        };
        let round = self.ask(limit, question, over).await;
        self.forget(round.unfinished);
        let answered = round.answers.into_iter().zip(&self.voters);
        answered
            .map(|(answer, voter)| match answer {
                Answer::Here(answer) => answer,
                Answer::Late | Answer::Awaited => Err(no_answer(voter)),
            })
            .collect()
    }

    /// Why there is no majority. Where the claim may be in line, nothing is known.
    pub(super) fn failed<T>(&self, answers: &[Answer<T>], is_in_line: impl Fn(&T) -> bool) -> Failure {
        let mut is_unknown = false;
        let mut failures = Vec::new();
        for (answer, voter) in answers.iter().zip(&self.voters) {
            failures.push(match answer {
                Answer::Here(Ok(said)) => {
                    is_unknown |= is_in_line(said);
                    None
                }
                Answer::Here(Err(failure)) => {
                    is_unknown |= failure.kind == FailureKind::Unknown;
                    Some(failure.clone())
                }
                // The others were enough to know.
                Answer::Awaited => {
                    is_unknown = true;
                    None
                }
                Answer::Late => {
                    is_unknown = true;
                    Some(no_answer(voter))
                }
            });
        }
        let denied = failures.iter().flatten().filter(|failure| failure.kind == FailureKind::Denied).count();
        let kind = match () {
            // Whatever the others say, and however often they are asked.
            () if denied > self.voters.len() - self.needed() => FailureKind::Denied,
            () if is_unknown => FailureKind::Unknown,
            () => FailureKind::Unreachable,
        };
        Failure { kind, reason: self.too_few(failures.iter().map(Option::as_ref)).into() }
    }

    /// The next thing that is heard unasked, or found out by what was left to be done.
    pub(super) async fn wait(self: &Arc<Self>, ears: &mut Ears) -> Result<News, Failure> {
        poll_fn(|context| {
            loop {
                if let Some(news) = ears.news.pop_front() {
                    return Poll::Ready(Ok(news));
                }
                let mut is_idle = true;
                while let Poll::Ready(Some(work)) = ears.later.poll_recv(context) {
                    ears.under_way.push(work);
                }
                if let Poll::Ready(Some(done)) = ears.under_way.poll_next_unpin(context) {
                    if let Some(news) = done {
                        return Poll::Ready(Ok(news));
                    }
                    is_idle = false;
                }
                for (server, ear) in ears.ears.iter_mut().enumerate() {
                    let Poll::Ready(heard) = ear.poll(context) else { continue };
                    is_idle = false;
                    match heard {
                        Ok(news) => {
                            if let Some(news) = self.heard(server, news) {
                                return Poll::Ready(Ok(news));
                            }
                        }
                        // What it said unasked may have been missed. That of the others was not, and
                        // whoever listens has to go on listening: not a failure.
                        Err(_) => {
                            self.mend();
                            ears.news.extend(self.seats.all().map(|(name, id)| News {
                                name,
                                id,
                                what: What::Ask,
                            }));
                        }
                    }
                }
                if is_idle {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn heard(self: &Arc<Self>, server: usize, news: News) -> Option<News> {
        match &news.what {
            What::Granted(_) => self.holds_at(server, &news.name, news.id),
            What::Evicted(_) => {
                let seat = self.seats.evicted_at(news.id, server)?;
                // Where nobody put it out it would keep others waiting.
                self.leave_later(&seat.claim);
                Some(news)
            }
            What::Ask => Some(news),
        }
    }
}

fn no_answer(voter: &Voter) -> Failure {
    Failure::unknown(format!("{}: no answer in time", voter.address()))
}
