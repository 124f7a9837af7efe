//! The verbs, on all servers at once.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{
    claims::Claims,
    clocks::{APART, Agreement},
    leaves::Leaves,
    link::Link,
    quorum::majority,
    round::{self, Answer, Asked, Later, Round},
    settings::RedlockSettings,
    view,
    wake::Wake,
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, ClientId, Entered, Failure, FailureKind, Follows, Leave, Left, LockView, News,
        Scope, Standing,
    },
    backends::{
        redis::{RedisSettings, Tracking},
        shared::served::Verbs,
    },
    clock::{Clock, Moment},
    model::name::Name,
};

/// How long servers may take to be connected before those that took longer are not waited for.
const CONNECT: Duration = Duration::from_millis(500);
/// How often a server that does not answer is tried again while claims depend on it.
const RECONNECT: Duration = Duration::from_millis(250);
/// How long an answer that nobody waits for may take before its question is given up.
pub(super) const GIVE_UP: Duration = Duration::from_secs(5);

/// The locks that several servers vote on, as one client sees them.
#[derive(Debug)]
pub(crate) struct RedlockStore {
    pub(super) voters: Vec<Arc<Link>>,
    /// For each server, what it could not be told: who left, and until when that matters.
    pub(super) owed: Vec<Mutex<VecDeque<(Name, ClaimId, Moment)>>>,
    pub(super) claims: Claims,
    pub(super) leaves: Leaves,
    pub(super) longest_ttl: Duration,
    /// Whether other programs take the same locks.
    pub(super) shares: bool,
    pub(super) clock: Clock,
    /// Whether somebody finds out which servers are known for long enough.
    pub(super) vouching: AtomicBool,
    /// For each server, whether somebody tries to connect it.
    connecting: Vec<AtomicBool>,
    /// For each server, when it last told a time that was found wrong, in nanoseconds.
    pub(super) judged: Vec<AtomicU64>,
    later: UnboundedSender<Later>,
    pub(super) tracking: Tracking,
}

impl Verbs for RedlockStore {
    type Wake = Wake;

    fn concerns(&self) -> Vec<String> {
        Self::concerns(self)
    }

    async fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        Self::enter(&self, &claim, ask).await
    }

    async fn wait(self: Arc<Self>, wake: &mut Wake) -> Result<News, Failure> {
        Self::wait(&self, wake).await
    }

    async fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> Result<Vec<Standing>, Failure> {
        Self::renew(&self, &claims.into()).await
    }

    async fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> Result<Left, Failure> {
        Self::leave(&self, &name, id, why).await
    }

    async fn look(self: Arc<Self>, scope: Scope) -> Result<Vec<LockView>, Failure> {
        Self::look(&self, &scope).await
    }

    fn follows(&self) -> Option<&Follows> {
        Some(&self.tracking.follows)
    }
}

impl RedlockStore {
    pub(super) async fn connect(
        config: RedlockSettings,
        client: ClientId,
    ) -> Result<(Arc<Self>, Wake), Failure> {
        let shares = config.servers.iter().any(RedisSettings::has_mode);
        let mut voters = Vec::new();
        let mut wakes = Vec::new();
        for server in config.servers {
            let (voter, wake) = Link::new(server, client, config.longest_ttl)?;
            voters.push(Arc::new(voter));
            wakes.push(wake);
        }
        let (later, work) = unbounded_channel();
        let (tracking, following) = Tracking::new();
        let connecting = voters.iter().map(|_| AtomicBool::new(false)).collect();
        let judged = voters.iter().map(|_| AtomicU64::new(0)).collect();
        let store = Arc::new(Self {
            owed: voters.iter().map(|_| Mutex::default()).collect(),
            claims: Claims::new(majority(voters.len())),
            leaves: Leaves::default(),
            voters,
            longest_ttl: config.longest_ttl,
            shares,
            clock: Clock::machine(),
            vouching: AtomicBool::new(false),
            connecting,
            judged,
            later,
            tracking,
        });
        store.connect_all().await?;
        Ok((store, Wake::new(wakes, work, following)))
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
            let cause = failures.clone().flatten().find_map(|failure| failure.cause.clone());
            return Err(Failure { cause, ..Failure::unreachable(self.too_few(failures)) });
        }
        (0..self.voters.len()).try_for_each(|index| self.is_no_twin(index))?;
        self.vouch().await;
        Ok(())
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

    /// All servers, one bit each.
    pub(super) fn everywhere(&self) -> u16 {
        (1 << self.voters.len()) - 1
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
        question: impl Fn(usize, &Arc<Link>) -> Asked<T> + Send,
        suffices: impl FnMut(&[Answer<T>]) -> bool + Send,
    ) -> Round<T> {
        let round = round::ask(&self.voters, question, limit, suffices).await;
        if round.answers.iter().any(|answer| matches!(answer, Answer::Here(Err(_)))) {
            self.reconnect_lost();
            self.vouch_later();
        }
        round
    }

    /// Sees to it that servers are connected again.
    pub(super) fn reconnect_lost(self: &Arc<Self>) {
        for server in 0..self.voters.len() {
            if !self.voters[server].is_connected() && !self.connecting[server].swap(true, Ordering::Relaxed) {
                let store = Arc::clone(self);
                self.do_later(async move {
                    store.reconnect(server).await;
                    store.connecting[server].store(false, Ordering::Relaxed);
                    None
                });
            }
        }
    }

    /// Tries to connect a server, for as long as a claim depends on it: the next renewal may be far away.
    async fn reconnect(self: &Arc<Self>, server: usize) {
        let mut pause = RECONNECT;
        loop {
            if self.voters[server].wants_connection() && self.voters[server].connect().await.is_ok() {
                if self.is_no_twin(server).is_ok() {
                    self.vouch().await;
                    self.put_back(server).await;
                    self.pay(server).await;
                }
                return;
            }
            if self.claims.is_empty() || self.voters[server].is_connected() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(4 * RECONNECT);
        }
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

    pub(super) async fn look(self: &Arc<Self>, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let views = self.look_at_all(scope, Duration::from_secs(2)).await;
        if views.iter().flatten().count() < self.needed() {
            let failures = views.iter().map(|view| view.as_ref().err());
            let cause = failures.clone().flatten().find_map(|failure| failure.cause.clone());
            return Err(Failure { cause, ..Failure::unreachable(self.too_few(failures)) });
        }
        let seen: Vec<_> = views.into_iter().flatten().collect();
        Ok(view::merged(&seen, self.voters.len()))
    }

    pub(super) async fn look_at_all(
        self: &Arc<Self>,
        scope: &Scope,
        limit: Duration,
    ) -> Vec<Result<Vec<LockView>, Failure>> {
        let question = |_, voter: &Arc<Link>| -> Asked<Vec<LockView>> {
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
        let agreement = self.agreement(answers);
        // Where too few answered, there was nothing to compare a clock with.
        let compared =
            answers.iter().filter(|answer| matches!(answer, Answer::Here(Ok(_)))).count() >= self.needed();
        for ((answer, voter), agreement) in answers.iter().zip(&self.voters).zip(agreement) {
            failures.push(match answer {
                Answer::Here(Ok(said)) => {
                    is_unknown |= is_in_line(said);
                    (compared && agreement != Agreement::Agrees).then(|| wrong_clock(voter))
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
        let cause = failures.iter().flatten().find_map(|failure| failure.cause.clone());
        Failure { cause, ..Failure::new(kind, self.too_few(failures.iter().map(Option::as_ref))) }
    }
}

fn wrong_clock(voter: &Link) -> Failure {
    Failure::unreachable(format!(
        "{}: its clock differs by more than {APART:?} from those of the others that answered; let chronyd or ntpd keep the time of all servers",
        voter.address()
    ))
}

fn no_answer(voter: &Link) -> Failure {
    Failure::unknown(format!("{}: no answer in time", voter.address()))
}
