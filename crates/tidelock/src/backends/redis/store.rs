//! The verbs. Most calls are one question to one server that is connected: those go the short way
//! ([`ask_at_hand`](RedisStore::ask_at_hand)), all others the long one.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Cmd, Value};

use super::{
    codec::{self, Text},
    commands::{add_floor_and_shard, call, name_of, with_text},
    errors::{classify, is_missing},
    fleet::{self, Fleet},
    follow::{Listening, Tracking},
    link::{Common, Form, Link, Live, Server},
    scripts::{RAISE, Verb},
    settings::{RedisSettings, Scripting},
    together::{Joined, Together},
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, Entered, Failure, FollowAll, Follows, Grant, Leave, Left, LockView, News, Scope,
        Standing, What,
    },
    backends::shared::{failures::in_doubt, served::Verbs, steps::Step},
    clock::nanos,
    model::name::Name,
};

/// The shortest lease that is worth its messages.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(50);

/// The least epoch that a grant gets; the server's time if nobody says. Servers that vote together get the same
/// one, so that their epochs do not differ by the time it takes to ask them.
pub(crate) type Floor = Option<u64>;

/// The locks of an installation, as one client sees them.
#[derive(Debug)]
pub(crate) struct RedisStore {
    pub(super) config: Arc<RedisSettings>,
    pub(super) common: Arc<Common>,
    pub(super) link: Link,
    pub(super) verbs: &'static fleet::Verbs,
    /// Other programs that take the locks as well, if there are any.
    pub(super) fleet: Option<Fleet>,
    /// How names are followed, if they are.
    pub(super) tracking: Option<Tracking>,
    /// Enters and leaves that go together, where they may.
    pub(super) together: Option<Together>,
}

impl Verbs for RedisStore {
    type Wake = Listening;

    fn concerns(&self) -> Vec<String> {
        self.link.concerns()
    }

    async fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        // A server that forgets has to be given so much time.
        if !claim.is_record() {
            self.common.longest_ttl.fetch_max(nanos(claim.ttl), Ordering::Relaxed);
        }
        if let Some(fleet) = &self.fleet {
            fleet.check(&claim, &self.common.space.key(&claim.name))?;
        }
        let _alone = match self.join(&claim.name, || Step::Enter(Arc::clone(&claim)), None).await? {
            Joined::Answered(epoch) => return Ok(Entered::Held(Grant::new(epoch, claim.ttl, 0))),
            Joined::Alone(under_way) => under_way,
        };
        match self.ask_at_hand(|form| self.enter_command(&claim, ask, None, form)).await {
            Some(answer) => self.read_entered(&claim, &answer?).await,
            None => Box::pin(self.ask_to_enter(&claim, ask, None)).await,
        }
    }

    async fn wait(self: Arc<Self>, wake: &mut Listening) -> Result<News, Failure> {
        self.link.listen().await?;
        let news = wake.next(&self).await?;
        if let Some(fleet) = &self.fleet
            && matches!(news.what, What::Evicted(_))
        {
            // A client that knows nothing of other programs took the claim out of line, and left its entry. If this
            // fails the entry expires.
            let _ = self.ask_to_leave(&news.name, news.id, &Leave::Done, None).await;
            fleet.forget(news.id);
        }
        // A client that relies on replicas asks, and has them confirm it. One that shares its locks with other programs
        // has only its place in line so far.
        let is_to_be_confirmed =
            (self.config.replicas > 0 || self.fleet.is_some()) && matches!(news.what, What::Granted(_));
        Ok(if is_to_be_confirmed { News { what: What::Ask, ..news } } else { news })
    }

    async fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> Result<Vec<Standing>, Failure> {
        self.ask_to_renew(&claims, None).await
    }

    async fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> Result<Left, Failure> {
        if let Some(fleet) = &self.fleet
            && fleet::is_stranger(id)
        {
            return Box::pin(self.free(fleet, &name, id)).await;
        }
        let _alone = if why == Leave::Done {
            match self.join(&name, || Step::Leave(name.clone(), id), None).await? {
                Joined::Answered(_) => return Ok(Left::Removed),
                Joined::Alone(under_way) => under_way,
            }
        } else {
            // Evictions tell somebody.
            None
        };
        match self.ask_at_hand(|form| self.leave_command(&name, id, &why, None, form)).await {
            Some(answer) => self.read_left(id, &answer?),
            None => Box::pin(self.ask_to_leave(&name, id, &why, None)).await,
        }
    }

    async fn look(self: Arc<Self>, scope: Scope) -> Result<Vec<LockView>, Failure> {
        self.view(&scope).await
    }

    fn follows(&self) -> Option<&Follows> {
        self.tracking.as_ref().map(|tracking| &tracking.follows)
    }

    fn follow_all(self: Arc<Self>) -> Option<FollowAll> {
        self.tracking.as_ref()?;
        Some(FollowAll::new(|told| self.hear_all(told)))
    }
}

impl RedisStore {
    pub(crate) fn new(config: RedisSettings, common: Common) -> Result<Self, Failure> {
        let (config, common) = (Arc::new(config), Arc::new(common));
        let link = Link::new(&config, &common)?;
        let fleet = Fleet::new(&config, &common);
        let verbs = if fleet.is_some() { &fleet::TOGETHER } else { &fleet::ALONE };
        let together = Together::new(&config);
        Ok(Self { config, common, link, verbs, fleet, tracking: None, together })
    }

    /// What the answer to an enter says.
    pub(super) async fn read_entered(&self, claim: &Claim, answer: &Value) -> Result<Entered, Failure> {
        let Some(fleet) = &self.fleet else { return codec::entered(claim, answer) };
        let (entered, is_blocked) = fleet.entered(claim, answer)?;
        if is_blocked {
            self.listen_for(fleet, claim, false).await;
        }
        Ok(entered)
    }

    /// What the answer to a leave says.
    pub(super) fn read_left(&self, id: ClaimId, answer: &Value) -> Result<Left, Failure> {
        let left = codec::left(answer)?;
        if let Some(fleet) = &self.fleet {
            fleet.forget(id);
        }
        Ok(left)
    }

    /// The one server of an installation and its connection, if nothing is in the way of asking at once.
    pub(crate) fn at_hand(&self) -> Option<(Arc<Server>, Live)> {
        let simple = self.config.replicas == 0 && !self.scripts_are_off();
        let server = self.link.at_hand().filter(|_| simple)?;
        let live = server.at_hand()?;
        Some((server, live))
    }

    /// The short way: calls a script with nothing to prepare and nothing to check afterwards, so the command is sent
    /// by the first poll. Nothing: nothing was done, and the long way has to be taken.
    pub(super) async fn ask_at_hand(
        &self,
        make: impl FnOnce(Form<'_>) -> Cmd,
    ) -> Option<Result<Value, Failure>> {
        let (server, live) = self.at_hand()?;
        server.call(live, make).await
    }

    /// Takes a place in line the long way: finds the server, and makes sure that what it grants can be relied on.
    pub(crate) async fn ask_to_enter(
        &self,
        claim: &Arc<Claim>,
        ask: Ask,
        floor: Floor,
    ) -> Result<Entered, Failure> {
        let key = self.common.space.key(&claim.name);
        self.link.server(&key).await?.may_grant()?;
        let before = self.connection_to(&key).await;
        let (entered, confirmed) = if self.scripts_are_off() {
            self.enter_by_transaction(claim, ask).await?
        } else {
            let make = |form: Form<'_>| self.enter_command(claim, ask, floor, form);
            let answer = self.ask(self.verbs.enter, &key, &make).await?;
            let entered = self.read_entered(claim, &answer).await?;
            let holds = matches!(entered, Entered::Held(_));
            (entered, if holds { self.confirmed_by_replicas(&key, before).await } else { Ok(()) })
        };
        if !matches!(entered, Entered::Held(_) | Entered::Waiting(_)) {
            return Ok(entered);
        }
        // The connection may have been made for this very question, to a server that was restarted.
        let fit = self.link.server(&key).await.and_then(|server| server.may_grant());
        match fit.and(confirmed) {
            Ok(()) => Ok(entered),
            Err(failure) => Err(self.take_back(claim, failure).await),
        }
    }

    /// Nobody is to rely on what was granted: gives it back, and says why.
    async fn take_back(&self, claim: &Claim, why: Failure) -> Failure {
        match self.ask_to_leave(&claim.name, claim.id, &Leave::Done, None).await {
            Ok(_) => Failure { reason: format!("{}; it was given back", why.reason).into(), ..why },
            // It may still be in line, whatever the reason.
            Err(failure) => in_doubt(Failure {
                reason: format!("{}; then: {}", why.reason, failure.reason).into(),
                ..why
            }),
        }
    }

    pub(crate) async fn ask_to_renew(
        &self,
        claims: &[Arc<Claim>],
        floor: Floor,
    ) -> Result<Vec<Standing>, Failure> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        if self.scripts_are_off() {
            return self.renew_by_transactions(claims).await;
        }
        let keys: Vec<_> = claims.iter().map(|claim| self.common.space.key(&claim.name)).collect();
        if !matches!(self.link, Link::Cluster(_)) {
            let all: Vec<_> = claims.iter().zip(&keys).collect();
            return self.renew_together(&all, floor).await;
        }
        // One command for each lock, all under way at once: those of one slot may be at two members while it moves.
        let by_key = grouped(keys.len(), |index| &keys[index]);
        let mut standings = vec![Standing::Gone; claims.len()];
        let asked = by_key.iter().map(|group| {
            let some: Vec<_> = group.iter().map(|index| (&claims[*index], &keys[*index])).collect();
            async move { self.renew_together(&some, floor).await }
        });
        for (group, answer) in by_key.iter().zip(futures_util::future::join_all(asked).await) {
            for (index, standing) in group.iter().zip(answer?) {
                standings[*index] = standing;
            }
        }
        Ok(standings)
    }

    /// Renews claims whose keys are on one server; in a cluster, claims of one lock.
    async fn renew_together(
        &self,
        claims: &[(&Arc<Claim>, &String)],
        floor: Floor,
    ) -> Result<Vec<Standing>, Failure> {
        let first = claims[0].1;
        let make = |form: Form<'_>| {
            let mut command = match &self.fleet {
                None => {
                    let mut command = name_of(self.verbs.renew, form);
                    command.arg(claims.len());
                    for (_, key) in claims {
                        command.arg(key);
                    }
                    command
                }
                Some(fleet) => {
                    let claims = claims.iter().map(|(claim, key)| (&***claim, key.as_str()));
                    fleet.renew(self.verbs.renew, form, claims)
                }
            };
            command.arg(claims.len());
            for (claim, _) in claims {
                command.arg(Text(claim.id));
            }
            add_floor_and_shard(&mut command, floor, form);
            command
        };
        let before = self.connection_to(first).await;
        let asked = self.common.clock.now();
        let answer = self.ask(self.verbs.renew, first, &make).await?;
        let (standings, time) = match &self.fleet {
            None => codec::standings(&answer, claims.len())?,
            Some(fleet) => self.read_standings(fleet, claims, &answer).await?,
        };
        if standings.iter().any(|standing| matches!(standing, Standing::Held(_))) {
            self.confirmed_by_replicas(first, before).await?;
        }
        self.link.server(first).await?.note_time(time, asked)?;
        Ok(standings)
    }

    /// What the answer to a renewal says of locks that other programs take as well.
    async fn read_standings(
        &self,
        fleet: &Fleet,
        claims: &[(&Arc<Claim>, &String)],
        answer: &Value,
    ) -> Result<(Vec<Standing>, u64), Failure> {
        let (standings, time) = fleet.standings(claims.iter().map(|(claim, _)| &***claim), answer)?;
        for ((claim, _), (standing, is_blocked)) in claims.iter().zip(&standings) {
            let holds = matches!(standing, Standing::Held(_));
            if *is_blocked || holds {
                self.listen_for(fleet, claim, holds).await;
            }
        }
        Ok((standings.into_iter().map(|(standing, _)| standing).collect(), time))
    }

    /// Raises the epoch of a claim that holds to at least this one. Says which it is then, if it holds.
    pub(crate) async fn raise(&self, name: &Name, id: ClaimId, epoch: u64) -> Result<Option<u64>, Failure> {
        let key = self.common.space.key(name);
        let make = |form: Form<'_>| {
            let mut command = call(&RAISE, form, &key);
            command.arg(Text(id)).arg(Text(format_args!("{epoch:016}")));
            command
        };
        codec::raised(&self.ask(&RAISE, &key, &make).await?)
    }

    pub(crate) async fn ask_to_leave(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
    ) -> Result<Left, Failure> {
        if self.scripts_are_off() {
            return self.leave_by_transaction(name, id, why).await;
        }
        let key = self.common.space.key(name);
        // Asked again only where nothing was done, so that what it answers is true of the first time.
        let make = |form: Form<'_>| self.leave_command(name, id, why, floor, form);
        self.read_left(id, &self.ask(self.verbs.leave, &key, &make).await?)
    }

    /// Calls a verb on the server that has a key.
    pub(super) async fn ask(
        &self,
        verb: &'static Verb,
        key: &str,
        make: &(dyn Fn(Form<'_>) -> Cmd + Send + Sync),
    ) -> Result<Value, Failure> {
        let mut answer = self.link.ask(key, make).await?;
        let may_send = self.config.scripting != Scripting::Functions;
        if may_send && answer.as_ref().is_err_and(is_missing) {
            // Restarted, flushed, or never seen: the text makes it known again.
            self.link.server(key).await?.lost_functions();
            answer = self.link.ask(key, &|form: Form<'_>| with_text(verb, &make(form))).await?;
        }
        answer.map_err(|error| classify(&error))
    }

    pub(super) fn scripts_are_off(&self) -> bool {
        self.config.scripting == Scripting::Off
    }
}

/// Numbers from 0, those with the same key together.
pub(super) fn grouped<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> Vec<Vec<usize>> {
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by_key(|number| key(*number));
    numbers.chunk_by(|a, b| key(*a) == key(*b)).map(<[usize]>::to_vec).collect()
}
