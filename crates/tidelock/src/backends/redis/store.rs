//! The verbs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Cmd, Value, aio::MultiplexedConnection};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    cluster,
    codec::{self, Tail, Text, micros},
    config::{RedisConfig, Scripting},
    errors::{classify, is_unknown},
    link::{Common, Heard, Link},
    scripts::{ENTER, LEAVE, LOOK, RAISE, REMEMBER, RENEW, Verb},
    servers::{Form, Servers},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, Leave, LockView, News, Scope, Standing, What},
    clock::nanos,
    name::Name,
};

/// What the four other keys of a lock end with.
const OTHERS: [&str; 4] = [":c", ":w", ":x", ":h"];

/// The least epoch that a grant gets; the server's time if nobody says. Servers that vote together get the same
/// one, so that their epochs do not differ by the time it takes to ask them.
pub(super) type Floor = Option<u64>;

/// The locks of an installation, as one client sees them.
#[derive(Debug)]
pub(super) struct RedisStore {
    pub(super) config: Arc<RedisConfig>,
    pub(super) common: Arc<Common>,
    pub(super) servers: Servers,
}

impl RedisStore {
    /// A lease of this length is asked for: a server that forgets has to be given so much time.
    pub(super) fn note_ttl(&self, ttl: Duration) {
        self.common.longest_ttl.fetch_max(nanos(ttl), Ordering::Relaxed);
    }

    /// The link of an installation with one server, and its connection, if there is nothing in the
    /// way of asking at once.
    pub(super) fn at_hand(&self) -> Option<(Arc<Link>, (MultiplexedConnection, u64))> {
        let Servers::One(link) = &self.servers else { return None };
        let simple = self.config.replicas == 0 && !self.scripts_are_off();
        let live = link.live().filter(|_| simple)?;
        // After the connection was taken: one that is made later may be to a server that was restarted.
        link.may_grant().ok().map(|()| (Arc::clone(link), live))
    }

    pub(super) fn enter_command(&self, claim: &Claim, ask: Ask, floor: Floor, form: Form<'_>) -> Cmd {
        let mut command = call(&ENTER, form, &self.common.space.key(&claim.name));
        command.arg(Text(claim.id)).arg(if ask == Ask::Try { "t" } else { "q" });
        command.arg(Text(format_args!("{:016}", micros(claim.ttl)))).arg(keep_millis(claim.ttl));
        command.arg(Text(Tail(claim)));
        add_floor_and_shard(&mut command, floor, form);
        command
    }

    pub(super) fn leave_command(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
        form: Form<'_>,
    ) -> Cmd {
        let mut command = call(&LEAVE, form, &self.common.space.key(name));
        command.arg(Text(id));
        match why {
            Leave::Evicted(reason) => {
                command.arg(Text(format_args!("e{reason}")));
            }
            Leave::Done if form.shard.is_some() || floor.is_some() => {
                command.arg("");
            }
            Leave::Done => {}
        }
        add_floor_and_shard(&mut command, floor, form);
        command
    }

    pub(super) async fn enter(&self, claim: &Arc<Claim>, ask: Ask, floor: Floor) -> Result<Entered, Failure> {
        let key = self.common.space.key(&claim.name);
        self.servers.link(&key).await?.may_grant()?;
        let before = self.connection_to(&key).await;
        let (entered, confirmed) = if self.scripts_are_off() {
            self.enter_by_transaction(claim, ask).await?
        } else {
            let answer = self.ask(&ENTER, &key, &|form| self.enter_command(claim, ask, floor, form)).await?;
            let entered = codec::entered(claim, &answer)?;
            let holds = matches!(entered, Entered::Held(_));
            (entered, if holds { self.confirmed_by_replicas(&key, before).await } else { Ok(()) })
        };
        if !matches!(entered, Entered::Held(_) | Entered::Waiting(_)) {
            return Ok(entered);
        }
        // The connection may have been made for this very question, to a server that was restarted.
        let fit = self.servers.link(&key).await.and_then(|link| link.may_grant());
        match fit.and(confirmed) {
            Ok(()) => Ok(entered),
            Err(failure) => Err(self.take_back(claim, failure).await),
        }
    }

    /// Nobody is to rely on what was granted: gives it back, and says why.
    async fn take_back(&self, claim: &Claim, why: Failure) -> Failure {
        match self.leave(&claim.name, claim.id, &Leave::Done, None).await {
            Ok(()) => Failure { reason: format!("{}; it was given back", why.reason).into(), ..why },
            // It may still be in line, whatever the reason.
            Err(failure) => Failure::unknown(format!("{}; then: {}", why.reason, failure.reason)),
        }
    }

    pub(super) async fn renew(&self, claims: &[Arc<Claim>], floor: Floor) -> Result<Vec<Standing>, Failure> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        if self.scripts_are_off() {
            return self.renew_by_transactions(claims).await;
        }
        let keys: Vec<_> = claims.iter().map(|claim| self.common.space.key(&claim.name)).collect();
        if !matches!(self.servers, Servers::Cluster(_)) {
            let all: Vec<_> = claims.iter().zip(&keys).collect();
            return self.renew_together(&all, floor).await;
        }
        // One command for each slot, all under way at once.
        let by_slot = grouped(keys.len(), |index| cluster::slot(&keys[index]));
        let mut standings = vec![Standing::Gone; claims.len()];
        let asked = by_slot.iter().map(|group| {
            let some: Vec<_> = group.iter().map(|index| (&claims[*index], &keys[*index])).collect();
            async move { self.renew_together(&some, floor).await }
        });
        for (group, answer) in by_slot.iter().zip(futures_util::future::join_all(asked).await) {
            for (index, standing) in group.iter().zip(answer?) {
                standings[*index] = standing;
            }
        }
        Ok(standings)
    }

    /// Renews claims whose keys are on one server, in one slot where there are slots.
    async fn renew_together(
        &self,
        claims: &[(&Arc<Claim>, &String)],
        floor: Floor,
    ) -> Result<Vec<Standing>, Failure> {
        let first = claims[0].1;
        let make = |form: Form<'_>| {
            let mut command = name_of(&RENEW, form);
            command.arg(claims.len() * if form.all_keys { 5 } else { 1 });
            for (_, key) in claims {
                add_keys(&mut command, key, form);
            }
            command.arg(claims.len());
            for (claim, _) in claims {
                command.arg(Text(claim.id));
            }
            add_floor_and_shard(&mut command, floor, form);
            command
        };
        let before = self.connection_to(first).await;
        let asked = self.common.clock.now();
        let answer = self.ask(&RENEW, first, &make).await?;
        let (standings, time) = codec::standings(&answer, claims.len())?;
        if standings.iter().any(|standing| matches!(standing, Standing::Held(_))) {
            self.confirmed_by_replicas(first, before).await?;
        }
        self.servers.link(first).await?.note_time(time, asked)?;
        Ok(standings)
    }

    /// Raises the epoch of a claim that holds to at least this one. Says which it is then, if it holds.
    pub(super) async fn raise(&self, name: &Name, id: ClaimId, epoch: u64) -> Result<Option<u64>, Failure> {
        let key = self.common.space.key(name);
        let make = |form: Form<'_>| {
            let mut command = call(&RAISE, form, &key);
            command.arg(Text(id)).arg(Text(format_args!("{epoch:016}")));
            command
        };
        codec::raised(&self.ask(&RAISE, &key, &make).await?)
    }

    pub(super) async fn leave(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
    ) -> Result<(), Failure> {
        if self.scripts_are_off() {
            return self.leave_by_transaction(name, id, why).await;
        }
        let key = self.common.space.key(name);
        self.ask(&LEAVE, &key, &|form| self.leave_command(name, id, why, floor, form)).await.map(drop)
    }

    pub(super) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let names = match scope {
            Scope::Names(names) => names.clone(),
            Scope::All => self.names().await?,
        };
        let views = futures_util::future::join_all(names.iter().map(|name| async move {
            if self.scripts_are_off() {
                return self.look_without_scripts(name).await;
            }
            let key = self.common.space.key(name);
            let answer = self.ask(&LOOK, &key, &|form| call(&LOOK, form, &key)).await?;
            match codec::view(name, &answer) {
                // Nobody asked for this one: something else is kept there.
                Err(_) if *scope == Scope::All => Ok(None),
                view => view,
            }
        }));
        views.await.into_iter().filter_map(Result::transpose).collect()
    }

    /// The names of all locks in use, and of some that were.
    async fn names(&self) -> Result<Vec<Name>, Failure> {
        let mut names = Vec::new();
        for link in self.servers.all().await? {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(self.common.space.pattern());
                scan.arg("COUNT").arg(1_000).arg("TYPE").arg("string");
                let answer = link.ask(&scan).await?.map_err(|error| classify(&error))?;
                let (next, keys): (String, Vec<String>) =
                    redis::from_redis_value(answer).map_err(|error| {
                        Failure::unknown(format!("the answer to SCAN cannot be read: {error}"))
                    })?;
                names.extend(keys.iter().filter_map(|key| self.common.space.name(key)));
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// The next thing that is heard unasked.
    pub(super) async fn wait(&self, heard: &mut UnboundedReceiver<Heard>) -> Result<News, Failure> {
        self.servers.listen().await?;
        match heard.recv().await {
            // Who is to rely on replicas asks, and has them confirm it.
            Some(Heard::News(news)) if self.config.replicas > 0 && matches!(news.what, What::Granted(_)) => {
                Ok(News { what: What::Ask, ..news })
            }
            Some(Heard::News(news)) => Ok(news),
            Some(Heard::Cut(why)) => Err(Failure::unreachable(why)),
            None => Err(Failure::unreachable("nobody can tell anything any more")),
        }
    }

    /// Calls a verb on the server that has a key.
    pub(super) async fn ask(
        &self,
        verb: &'static Verb,
        key: &str,
        make: &(dyn Fn(Form<'_>) -> Cmd + Send + Sync),
    ) -> Result<Value, Failure> {
        let mut answer = self.servers.ask(key, make).await?;
        let may_send = self.config.scripting != Scripting::Functions;
        if may_send && answer.as_ref().is_err_and(is_unknown) {
            // Restarted, flushed, or never seen: the text makes it known again.
            self.servers.link(key).await?.lost_functions();
            answer = self.servers.ask(key, &|form: Form<'_>| with_text(verb, &make(form))).await?;
        }
        answer.map_err(|error| classify(&error))
    }

    /// Where replicas have to confirm what is written: the connection on which it will be.
    pub(super) async fn connection_to(&self, key: &str) -> Option<(Arc<Link>, u64)> {
        if self.config.replicas == 0 {
            return None;
        }
        let link = self.servers.link(key).await.ok()?;
        let (_, number) = link.connection().await.ok()?;
        Some((link, number))
    }

    pub(super) fn scripts_are_off(&self) -> bool {
        self.config.scripting == Scripting::Off
    }

    /// Waits until as many replicas as the URL asks for have what was just written.
    /// Another connection than the one it was written on would know of nothing to wait for.
    pub(super) async fn confirmed_by_replicas(
        &self,
        key: &str,
        before: Option<(Arc<Link>, u64)>,
    ) -> Result<(), Failure> {
        if self.config.replicas == 0 {
            return Ok(());
        }
        let link = self.servers.link(key).await?;
        let answer = link.ask(&self.wait_for_replicas()).await?;
        let is_same =
            |(before, number): (Arc<Link>, u64)| Arc::ptr_eq(&before, &link) && number == link.number();
        if !before.is_some_and(is_same) {
            return Err(Failure::unknown("the connection was lost before replicas confirmed the grant"));
        }
        self.enough_replicas(&answer.map_err(|error| classify(&error))?)
    }

    /// Waits until replicas have what was written on the same connection.
    pub(super) fn wait_for_replicas(&self) -> Cmd {
        let limit = self.config.replicas_timeout.as_millis();
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.config.replicas).arg(u64::try_from(limit).unwrap_or(u64::MAX).max(1));
        wait
    }

    /// Whether the answer to that says that as many have it as the URL asks for.
    pub(super) fn enough_replicas(&self, answer: &Value) -> Result<(), Failure> {
        let (wanted, limit) = (self.config.replicas, self.config.replicas_timeout);
        match answer {
            Value::Int(confirmed) if *confirmed >= i64::from(wanted) => Ok(()),
            Value::Int(confirmed) => Err(Failure::unreachable(format!(
                "only {confirmed} of {wanted} replicas confirmed the grant within {limit:?}: start more replicas or lower ?replicas= in the URL"
            ))),
            _ => Err(Failure::unknown("the answer to WAIT cannot be read")),
        }
    }
}

/// Numbers from 0, those with the same key together.
pub(super) fn grouped<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> Vec<Vec<usize>> {
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by_key(|number| key(*number));
    numbers.chunk_by(|a, b| key(*a) == key(*b)).map(<[usize]>::to_vec).collect()
}

/// The beginning of a call: how the verb is named.
pub(super) fn name_of(verb: &'static Verb, form: Form<'_>) -> Cmd {
    let mut command = Cmd::with_capacity(12, 256);
    if form.functions {
        command.arg("FCALL").arg(verb.function());
    } else {
        command.arg("EVALSHA").arg(verb.hash());
    }
    command
}

/// The beginning of a call with the keys of one lock.
fn call(verb: &'static Verb, form: Form<'_>, key: &str) -> Cmd {
    let mut command = name_of(verb, form);
    command.arg(if form.all_keys { 5 } else { 1 });
    add_keys(&mut command, key, form);
    command
}

/// The same call with all of the script instead of its name.
fn with_text(verb: &'static Verb, command: &Cmd) -> Cmd {
    let mut whole = redis::cmd("EVAL");
    whole.arg(verb.text());
    for arg in command.args_iter().skip(2) {
        match arg {
            redis::Arg::Simple(arg) => whole.arg(arg),
            _ => &mut whole,
        };
    }
    whole
}

fn add_keys(command: &mut Cmd, key: &str, form: Form<'_>) {
    command.arg(key);
    if form.all_keys {
        for end in OTHERS {
            command.arg(format!("{key}{end}"));
        }
    }
}

/// The least epoch of a grant where it is not the server's time, and what the channels of clients end with in
/// a cluster.
fn add_floor_and_shard(command: &mut Cmd, floor: Floor, form: Form<'_>) {
    match floor {
        Some(floor) => {
            command.arg(Text(format_args!("{floor:016}")));
        }
        None if form.shard.is_some() => {
            command.arg("");
        }
        None => {}
    }
    if let Some(shard) = form.shard {
        command.arg(shard);
    }
}

/// How long a head is kept: for the lease, and then until no clock is likely to be before its epoch.
fn keep_millis(ttl: Duration) -> u128 {
    ttl.as_micros().div_ceil(1_000) + REMEMBER.as_millis()
}

/// The shortest lease that is worth its messages.
pub(in crate::backends) const MIN_TTL: Duration = Duration::from_millis(50);
