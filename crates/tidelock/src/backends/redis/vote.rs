//! What `redlock` asks one server of several that vote. It is asked only while it is connected, so that one which is
//! not costs nobody any time, and it is told the least epoch of a grant, which is the same for all servers.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use redis::Value;

use super::{
    errors::{classify, is_missing},
    fitness::time_of,
    link::{Common, Form, Link, Live, Server},
    quiet::Quiet,
    record::Record,
    scripts::LOCKS,
    settings::{RedisSettings, Scripting},
    store::{Floor, RedisStore},
    together::Joined,
    wake::Wake,
};
use crate::{
    backend::{Ask, Claim, ClaimId, ClientId, Entered, Failure, Grant, Leave, Left},
    backends::shared::steps::Step,
    clock::nanos,
    model::name::Name,
};

impl RedisStore {
    /// A server that grants nothing before it is up for `longest_ttl`, and what it tells unasked.
    pub(crate) fn that_votes(
        config: RedisSettings,
        client: ClientId,
        longest_ttl: Duration,
    ) -> Result<(Self, Arc<Server>, Wake), Failure> {
        // The functions of locks that other programs take as well do not raise an epoch.
        let scripting = if config.mode.is_some() { Scripting::Scripts } else { config.scripting };
        let config = RedisSettings { scripting, ..config };
        let (tell, wake) = Wake::new();
        let longest_ttl = AtomicU64::new(nanos(longest_ttl));
        let common = Common { longest_ttl, wary: true, ..Common::new(&config, &LOCKS, client, tell) };
        let store = Self::new(config, common)?;
        let Link::One(server) = &store.link else {
            return Err(Failure::denied("servers that vote are single servers"));
        };
        let server = Arc::clone(server);
        Ok((store, server, wake))
    }

    /// Asks a server for a place in line, if it may grant, and what its clock says. Nothing: it may not, or is not
    /// connected.
    pub(crate) async fn enter_with_time(
        &self,
        claim: &Arc<Claim>,
        ask: Ask,
        floor: Floor,
    ) -> Option<Result<Entered, Failure>> {
        let joined = self.join(&claim.name, || Step::Enter(Arc::clone(claim)), floor).await;
        let _alone = match joined {
            Ok(Joined::Answered(epoch)) => {
                return Some(Ok(Entered::Held(Grant::new(epoch, claim.ttl, 0))));
            }
            Ok(Joined::Alone(under_way)) => under_way,
            Err(failure) => return Some(Err(failure)),
        };
        let (server, live) = self.at_hand()?;
        // Hardly ever needed where many are asked for, and large.
        Some(Box::pin(self.enter_with_time_at(&server, live, claim, ask, floor)).await)
    }

    async fn enter_with_time_at(
        &self,
        server: &Server,
        live: Live,
        claim: &Arc<Claim>,
        ask: Ask,
        floor: Floor,
    ) -> Result<Entered, Failure> {
        let asked = self.common.clock.now();
        // The time is told behind the vote: a clock that stepped before the vote has stepped then, too.
        let mut both = redis::pipe();
        both.add_command(self.enter_command(claim, ask, floor, Form::plain(server)));
        both.cmd("TIME");
        let number = live.1;
        let answers = server.ask_live_all(live, &both).await.map_err(|error| classify(&error))?;
        let mut answers = answers.into_iter();
        let entered = answers.next().unwrap_or(Value::Nil).extract_error();
        server.give_up_if_broken(number, &entered);
        let (entered, time) = match entered {
            Ok(answer) => (self.read_entered(claim, &answer).await?, answers.next()),
            Err(error) if is_missing(&error) => {
                let entered = self.ask_to_enter(claim, ask, floor).await?;
                let key = self.common.space.key(&claim.name);
                (entered, self.link.ask(&key, &|_| redis::cmd("TIME")).await?.ok())
            }
            Err(error) => return Err(classify(&error)),
        };
        // A server that does not tell the time is not known to have the right one.
        let time = time.and_then(|told| time_of(&told));
        let Some(time) = time else {
            // Answers that do not belong to their questions: none on this connection can be relied on.
            server.cut(number, "the answer to TIME cannot be read");
            return Err(Failure::unknown("the answer to TIME cannot be read"));
        };
        server.note_time(time, asked)?;
        Ok(entered)
    }

    /// Puts a claim on a server that is connected, whether or not it may grant.
    pub(crate) async fn enter_anyway(
        &self,
        (server, live): (&Server, Live),
        claim: &Arc<Claim>,
        ask: Ask,
        floor: Floor,
    ) -> Result<Entered, Failure> {
        let make = |form: Form<'_>| self.enter_command(claim, ask, floor, form);
        let answer = match server.call(live, make).await {
            Some(answer) => answer?,
            None => self.ask(self.verbs.enter, &self.common.space.key(&claim.name), &make).await?,
        };
        self.read_entered(claim, &answer).await
    }

    /// Gives a claim back on a server that is connected, whatever the server forgot. Nothing: it is not connected.
    pub(crate) async fn leave_anyway(
        &self,
        server: &Server,
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
    ) -> Option<Result<Left, Failure>> {
        let _alone = if *why == Leave::Done {
            match self.join(name, || Step::Leave(name.clone(), id), None).await {
                Ok(Joined::Answered(_)) => return Some(Ok(Left::Removed)),
                Ok(Joined::Alone(under_way)) => under_way,
                Err(failure) => return Some(Err(failure)),
            }
        } else {
            None
        };
        let live = server.live()?;
        // As for an enter.
        Some(Box::pin(self.leave_anyway_at((server, live), name, id, why, floor)).await)
    }

    async fn leave_anyway_at(
        &self,
        (server, live): (&Server, Live),
        name: &Name,
        id: ClaimId,
        why: &Leave,
        floor: Floor,
    ) -> Result<Left, Failure> {
        match server.call(live, |form| self.leave_command(name, id, why, floor, form)).await {
            Some(answer) => self.read_left(id, &answer?),
            None => self.ask_to_leave(name, id, why, floor).await,
        }
    }
}

impl Server {
    /// Asks what its clock says.
    pub(crate) async fn tell_time(&self) {
        let Some(live) = self.live() else { return };
        let asked = self.common().clock.now();
        let told = self.ask_live(live, &redis::cmd("TIME")).await;
        if let Some(time) = told.ok().and_then(|told| time_of(&told)) {
            // That it jumped is seen by comparing it with others.
            let _ = self.note_time(time, asked);
        }
    }

    /// Finds out on the server since when it can be relied on, and writes it down if nobody did. `now` is the time by
    /// the clocks of a majority, in microseconds; `longest` is for how long a server without a record has no vote.
    pub(crate) async fn be_vouched_for(&self, now: u64, longest: Duration) -> Result<(), Failure> {
        let Some((live, fitness)) = self.live().zip(self.fitness()) else {
            return Err(Failure::unreachable("it is not connected"));
        };
        let (number, keeps_all) = (live.1, fitness.keeps_data && fitness.syncs);
        let key = self.common().space.record();
        let first = Record::of(&fitness.run, keeps_all, now, None);
        let mut both = redis::pipe();
        both.cmd("SET").arg(&key).arg(first.text()).arg("NX");
        both.cmd("GET").arg(&key);
        let failed = |error| classify(&error);
        let answers = self.ask_live_all(live.clone(), &both).await.map_err(failed)?;
        let found =
            answers.into_iter().map(Value::extract_error).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let found: Option<String> =
            found.into_iter().nth(1).and_then(|text| redis::from_redis_value(text).ok());
        let found = found.as_deref().and_then(Record::read);
        let record = Record::of(&fitness.run, keeps_all, now, found.as_ref());
        if found.as_ref() != Some(&record) {
            let mut write = redis::cmd("SET");
            write.arg(&key).arg(record.text());
            self.ask_live(live, &write).await.map_err(failed)?;
        }
        let why = if keeps_all { Quiet::WrongClock } else { Quiet::Forgot };
        self.vouch(number, record.left(now, longest), why);
        Ok(())
    }

    /// Its clock differs from those of a majority: leases may have ended there too early. It grants nothing for so long
    /// after this was last seen.
    pub(crate) fn has_wrong_clock(&self, longest: Duration) {
        self.keep_quiet(longest, Quiet::WrongClock);
    }

    /// Writes down, for those who come later, that its clock was wrong until now.
    pub(crate) async fn record_wrong_clock(&self, now: u64) {
        let (Some(live), Some(fitness)) = (self.live(), self.fitness()) else { return };
        let mut write = redis::cmd("SET");
        write.arg(self.common().space.record());
        write.arg(Record { run: fitness.run, since: now }.text());
        // If it cannot be told, those who come later see its clock themselves.
        let _ = self.ask_live(live, &write).await;
    }

    /// The server's identity: the same one has it under every name.
    pub(crate) fn run(&self) -> Option<String> {
        self.fitness().map(|fitness| fitness.run).filter(|run| !run.is_empty())
    }
}
