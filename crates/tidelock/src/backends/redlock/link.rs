//! One server of several that vote: asked only while it is connected and may grant, so that one which is not
//! costs nobody any time.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::super::redis::{Floor, Reading, RedisSettings, RedisStore, Server, Wake};
use crate::{
    backend::{Ask, Claim, ClaimId, ClientId, Entered, Failure, Leave, Left, LockView, Scope, Standing},
    backends::shared::{failures, following::Arms, mutex::lock, served::Verbs},
    clock::{Clock, Moment},
    model::name::Name,
};

/// How soon a server that could not be connected is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// One server of several.
#[derive(Debug)]
pub(super) struct Link {
    store: RedisStore,
    server: Arc<Server>,
    clock: Clock,
    /// Why it could not be connected when it was last tried.
    trouble: Mutex<Option<Failure>>,
    /// Why it has no vote though it is connected, if so.
    distrusted: Mutex<Option<Failure>>,
    /// When it may be tried again, in nanoseconds.
    try_after: AtomicU64,
    /// It did not answer in time, and has not answered since.
    is_late: AtomicBool,
}

impl Link {
    /// A server that has no vote before it is up for `longest_ttl`, and where its pushes are heard.
    pub(super) fn new(
        config: RedisSettings,
        client: ClientId,
        longest_ttl: Duration,
    ) -> Result<(Self, Wake), Failure> {
        let (store, server, wake) = RedisStore::that_votes(config, client, longest_ttl)?;
        let link = Self {
            store,
            server,
            clock: Clock::machine(),
            trouble: Mutex::default(),
            distrusted: Mutex::default(),
            try_after: AtomicU64::new(0),
            is_late: AtomicBool::new(false),
        };
        Ok((link, wake))
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Where the line of a name is kept.
    pub(super) fn key_of(&self, name: &Name) -> String {
        self.store.key_of(name)
    }

    /// For people.
    pub(super) fn address(&self) -> &str {
        self.server.address()
    }

    /// Connects, so that it can be asked.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        let connected = self.server.connection().await;
        let again = self.clock.now() + AGAIN;
        self.try_after.store(again.as_nanos(), Ordering::Relaxed);
        *lock(&self.trouble) = connected.as_ref().err().cloned();
        connected?;
        self.is_late.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it can be asked, if it has a vote.
    pub(super) fn is_connected(&self) -> bool {
        self.server.is_live()
    }

    /// Whether it is time to try to connect it. A caller that is told so has to do it.
    pub(super) fn wants_connection(&self) -> bool {
        if self.server.is_live() {
            return false;
        }
        let now = self.clock.now().as_nanos();
        let after = self.try_after.load(Ordering::Relaxed);
        // Nobody else while that goes on.
        now >= after
            && self.try_after.compare_exchange(after, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes its vote away for a reason, or gives it back.
    pub(super) fn distrust(&self, why: Option<Failure>) {
        *self.distrusted() = why;
    }

    /// Whether it is connected, and its vote was not taken away.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_connected() && self.distrusted().is_none()
    }

    fn distrusted(&self) -> MutexGuard<'_, Option<Failure>> {
        lock(&self.distrusted)
    }

    /// Whether others need not wait for its answers.
    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// It did not answer in time.
    pub(super) fn note_late(&self) {
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// It answered, however late.
    pub(super) fn note_answer(&self) {
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// Why it has no vote now, if it has none.
    pub(super) fn has_vote(&self) -> Result<(), Failure> {
        if let Some(why) = self.distrusted().clone() {
            return Err(why);
        }
        if !self.server.is_live() {
            let trouble = lock(&self.trouble).clone();
            return Err(trouble.unwrap_or_else(|| {
                Failure::unreachable(format!("{}: the connection was lost", self.address()))
            }));
        }
        self.server.may_grant()
    }

    /// What its clock says at a moment of ours, about, in microseconds.
    pub(super) fn server_micros(&self, at: Moment) -> Option<u64> {
        self.server.server_micros(at)
    }

    /// What its clock last said against ours.
    pub(super) fn reading(&self) -> Option<Reading> {
        self.server.reading()
    }

    /// Asks what its clock says.
    pub(super) async fn tell_time(&self) {
        self.server.tell_time().await;
    }

    /// Whether it is connected, and nobody vouched for it yet.
    pub(super) fn wants_vouching(&self) -> bool {
        self.is_trusted() && !self.server.is_vouched_for()
    }

    /// Finds out on the server since when it can be relied on. `now` is the time by the clocks of a majority, in
    /// microseconds; `longest` is for how long a server without a record has no vote.
    pub(super) async fn vouch(&self, now: u64, longest: Duration) -> Result<(), Failure> {
        self.server.be_vouched_for(now, longest).await.map_err(|failure| self.named(failure))
    }

    /// Its clock differs from those of a majority: it has no vote for so long after this was last seen.
    pub(super) fn has_wrong_clock(&self, longest: Duration) {
        self.server.has_wrong_clock(longest);
    }

    /// Writes down, for those who come later, that its clock was wrong until now.
    pub(super) async fn record_wrong_clock(&self, now: u64) {
        self.server.record_wrong_clock(now).await;
    }

    /// The server's identity: the same one has it under every name.
    pub(super) fn run(&self) -> Option<String> {
        self.server.run()
    }

    pub(super) fn concerns(&self) -> Vec<String> {
        match self.has_vote() {
            Err(failure) => vec![failure.reason.to_string()],
            Ok(()) => {
                let concerns = self.store.concerns();
                concerns.into_iter().map(|concern| format!("{}: {concern}", self.address())).collect()
            }
        }
    }

    pub(super) async fn enter(&self, claim: &Arc<Claim>, ask: Ask, floor: Floor) -> Result<Entered, Failure> {
        if self.distrusted().is_none()
            && let Some(entered) = self.store.enter_with_time(claim, ask, floor).await
        {
            return entered.map_err(|failure| self.named(failure));
        }
        Err(self.has_vote().err().unwrap_or_else(|| self.is_connecting()))
    }

    /// Puts a claim on the server, whether or not it has a vote: when it gets one, it knows who holds.
    pub(super) async fn place(&self, claim: &Arc<Claim>, ask: Ask, floor: Floor) -> Result<Entered, Failure> {
        let live = self.server.live().filter(|_| self.distrusted().is_none());
        let live = live.ok_or_else(|| self.is_not_connected())?;
        let entered = self.store.enter_anyway((&self.server, live), claim, ask, floor).await;
        entered.map_err(|failure| self.named(failure))
    }

    pub(super) async fn renew(&self, claims: &[Arc<Claim>], floor: Floor) -> Result<Vec<Standing>, Failure> {
        // One that has no vote is told all the same, so that it still knows the claims when it gets one.
        let may_vote = self.has_vote();
        if !self.is_trusted() {
            may_vote?;
            return Err(self.is_connecting());
        }
        let standings =
            self.store.ask_to_renew(claims, floor).await.map_err(|failure| self.named(failure))?;
        may_vote?;
        // The connection may have been made for this very question, to a server that was restarted.
        self.server.may_grant()?;
        Ok(standings)
    }

    /// Whatever the server forgot, it is told.
    pub(super) async fn leave(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
    ) -> Result<Left, Failure> {
        if !self.server.is_live() {
            return Err(self.is_not_connected());
        }
        let left = match self.store.free_stranger(name, id).await {
            Some(left) => left,
            None => {
                let left = self.store.leave_anyway(&self.server, name, id, why, floor).await;
                left.ok_or_else(|| self.is_not_connected())?
            }
        };
        left.map_err(|failure| self.named(failure))
    }

    /// Refuses what other programs cannot be kept out of.
    pub(super) fn check(&self, claim: &Claim) -> Result<(), Failure> {
        self.store.check(claim)
    }

    /// Whether other programs keep a claim from holding here, as far as is known.
    pub(super) fn is_blocked(&self, id: ClaimId) -> bool {
        self.store.is_blocked(id)
    }

    /// What a claim has here of other programs counts no more. Says when it was taken, so that it can be given back.
    pub(super) fn yields(&self, id: ClaimId) -> Option<u64> {
        self.store.yields(id)
    }

    /// Gives back what a claim took of other programs at this time.
    pub(super) async fn give_back(&self, name: &Name, id: ClaimId, made: u64) -> Result<Left, Failure> {
        self.store.give_back(name, id, made).await
    }

    pub(super) async fn raise(&self, name: &Name, id: ClaimId, epoch: u64) -> Result<Option<u64>, Failure> {
        self.has_vote()?;
        self.store.raise(name, id, epoch).await.map_err(|failure| self.named(failure))
    }

    pub(super) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        self.has_vote()?;
        self.store.view(scope).await.map_err(|failure| self.named(failure))
    }

    fn is_connecting(&self) -> Failure {
        Failure::unreachable(format!("{}: it is being connected", self.address()))
    }

    fn is_not_connected(&self) -> Failure {
        Failure::unreachable(format!("{}: it is not connected", self.address()))
    }

    fn named(&self, failure: Failure) -> Failure {
        let address = self.address();
        if failure.reason.starts_with(address) {
            return failure;
        }
        failures::at(address, failure)
    }
}
