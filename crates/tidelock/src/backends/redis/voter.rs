//! One server of several that vote: asked only while it is connected and may grant, so that one which is not
//! costs nobody any time.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    codec,
    config::RedisConfig,
    errors::{classify, is_unknown},
    link::{Common, Heard, Link},
    servers::{Form, Servers},
    store::{Floor, RedisStore},
};
use crate::{
    backend::{Ask, Claim, ClaimId, ClientId, Entered, Failure, Leave, LockView, News, Scope, Standing},
    clock::{Moment, nanos},
    name::Name,
};

/// How soon a server that could not be connected is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// One server of several.
#[derive(Debug)]
pub(in crate::backends) struct Voter {
    store: RedisStore,
    link: Arc<Link>,
    /// Why it could not be connected when it was last tried.
    trouble: Mutex<Option<Failure>>,
    /// Why it has no vote though it is connected, if so.
    distrusted: Mutex<Option<Failure>>,
    /// When it may be tried again, in nanoseconds.
    try_after: AtomicU64,
    /// It did not answer in time, and has not answered since.
    is_late: AtomicBool,
}

/// What a server says unasked.
#[derive(Debug)]
pub(in crate::backends) struct Ear(UnboundedReceiver<Heard>);

impl Ear {
    /// The next news, or why some may have been missed.
    pub(in crate::backends) fn poll(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<News, Failure>> {
        self.0.poll_recv(context).map(|heard| match heard {
            Some(Heard::News(news)) => Ok(news),
            Some(Heard::Cut(why)) => Err(Failure::unreachable(why)),
            None => Err(Failure::unreachable("nobody can tell anything any more")),
        })
    }
}

impl Voter {
    /// A server that has no vote before it is up for `longest_ttl`, and where its pushes are heard.
    pub(in crate::backends) fn new(
        config: RedisConfig,
        client: ClientId,
        longest_ttl: Duration,
    ) -> Result<(Self, Ear), Failure> {
        let (tell, heard) = unbounded_channel();
        let config = Arc::new(config);
        let longest_ttl = AtomicU64::new(nanos(longest_ttl));
        let common = Arc::new(Common { longest_ttl, wary: true, ..Common::new(&config, client, tell) });
        let servers = Servers::new(&config, &common)?;
        let Servers::One(link) = &servers else {
            return Err(Failure::denied("servers that vote are single servers"));
        };
        let link = Arc::clone(link);
        let voter = Self {
            store: RedisStore { config, common, servers },
            link,
            trouble: Mutex::default(),
            distrusted: Mutex::default(),
            try_after: AtomicU64::new(0),
            is_late: AtomicBool::new(false),
        };
        Ok((voter, Ear(heard)))
    }

    /// For people.
    pub(in crate::backends) fn address(&self) -> &str {
        self.link.address()
    }

    /// Connects, so that it can be asked.
    pub(in crate::backends) async fn connect(&self) -> Result<(), Failure> {
        let connected = self.link.connection().await;
        let again = self.store.common.clock.now() + AGAIN;
        self.try_after.store(again.as_nanos(), Ordering::Relaxed);
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = connected.as_ref().err().cloned();
        connected?;
        self.is_late.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it can be asked, if it has a vote.
    pub(in crate::backends) fn is_connected(&self) -> bool {
        self.link.live().is_some()
    }

    /// Whether it is time to try to connect it. Whoever is told so does it.
    pub(in crate::backends) fn wants_connection(&self) -> bool {
        if self.link.live().is_some() {
            return false;
        }
        let now = self.store.common.clock.now().as_nanos();
        let after = self.try_after.load(Ordering::Relaxed);
        // Nobody else while that goes on.
        now >= after
            && self.try_after.compare_exchange(after, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes its vote away for a reason, or gives it back.
    pub(in crate::backends) fn distrust(&self, why: Option<Failure>) {
        *self.distrusted() = why;
    }

    /// Whether it is connected, and its vote was not taken away.
    pub(in crate::backends) fn is_trusted(&self) -> bool {
        self.is_connected() && self.distrusted().is_none()
    }

    fn distrusted(&self) -> MutexGuard<'_, Option<Failure>> {
        self.distrusted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether others need not wait for its answers.
    pub(in crate::backends) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// It did not answer in time.
    pub(in crate::backends) fn note_late(&self) {
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// It answered, however late.
    pub(in crate::backends) fn note_answer(&self) {
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// Why it has no vote now, if it has none.
    pub(in crate::backends) fn has_vote(&self) -> Result<(), Failure> {
        if let Some(why) = self.distrusted().clone() {
            return Err(why);
        }
        if self.link.live().is_none() {
            let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Err(trouble.unwrap_or_else(|| {
                Failure::unreachable(format!("{}: the connection was lost", self.address()))
            }));
        }
        self.link.may_grant()
    }

    /// What its clock says at a moment of ours, about, in microseconds.
    pub(in crate::backends) fn server_micros(&self, at: Moment) -> Option<u64> {
        self.link.server_micros(at)
    }

    /// The server's identity: the same one has it under every name.
    pub(in crate::backends) fn run(&self) -> Option<String> {
        self.link.fitness().map(|fitness| fitness.run).filter(|run| !run.is_empty())
    }

    pub(in crate::backends) fn concerns(&self) -> Vec<String> {
        match self.has_vote() {
            Err(failure) => vec![failure.reason.to_string()],
            Ok(()) => {
                let concerns = self.store.servers.concerns();
                concerns.into_iter().map(|concern| format!("{}: {concern}", self.address())).collect()
            }
        }
    }

    pub(in crate::backends) async fn enter(
        &self,
        claim: &Arc<Claim>,
        ask: Ask,
        floor: Floor,
    ) -> Result<Entered, Failure> {
        let at_hand = self.store.at_hand().filter(|_| self.distrusted().is_none());
        let Some((link, live)) = at_hand else {
            return Err(self.has_vote().err().unwrap_or_else(|| {
                Failure::unreachable(format!("{}: it is being connected", self.address()))
            }));
        };
        let command = self.store.enter_command(claim, ask, floor, Form::plain(&link));
        match link.ask_live(live, &command).await {
            Ok(answer) => codec::entered(claim, &answer),
            Err(error) if is_unknown(&error) => self.store.enter(claim, ask, floor).await,
            Err(error) => Err(self.named(classify(&error))),
        }
    }

    pub(in crate::backends) async fn renew(
        &self,
        claims: &[Arc<Claim>],
        floor: Floor,
    ) -> Result<Vec<Standing>, Failure> {
        self.has_vote()?;
        let standings = self.store.renew(claims, floor).await.map_err(|failure| self.named(failure))?;
        // The connection may have been made for this very question, to a server that was restarted.
        self.link.may_grant()?;
        Ok(standings)
    }

    /// Whatever the server forgot, it is told.
    pub(in crate::backends) async fn leave(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
    ) -> Result<(), Failure> {
        let Some(live) = self.link.live() else {
            return Err(Failure::unreachable(format!("{}: it is not connected", self.address())));
        };
        let command = self.store.leave_command(name, id, why, floor, Form::plain(&self.link));
        match self.link.ask_live(live, &command).await {
            Ok(_) => Ok(()),
            Err(error) if is_unknown(&error) => self.store.leave(name, id, why, floor).await,
            Err(error) => Err(self.named(classify(&error))),
        }
    }

    pub(in crate::backends) async fn raise(
        &self,
        name: &Name,
        id: ClaimId,
        epoch: u64,
    ) -> Result<Option<u64>, Failure> {
        self.has_vote()?;
        self.store.raise(name, id, epoch).await.map_err(|failure| self.named(failure))
    }

    pub(in crate::backends) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        self.has_vote()?;
        self.store.look(scope).await.map_err(|failure| self.named(failure))
    }

    fn named(&self, failure: Failure) -> Failure {
        let address = self.address();
        if failure.reason.starts_with(address) {
            return failure;
        }
        Failure { reason: format!("{address}: {}", failure.reason).into(), ..failure }
    }
}
