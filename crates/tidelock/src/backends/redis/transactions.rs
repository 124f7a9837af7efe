//! The verbs where scripts are forbidden: each is an optimistic transaction on the one key of a lock.
//!
//! 1. `WATCH`, `GET`, `TIME`: what is in line, and when.
//! 2. What becomes of it, by the rules of [`Line`].
//! 3. `MULTI`, `SET`, `PUBLISH` to whoever has to hear of it, `EXEC`: done only if nobody changed the key
//!    since 1. Else all of it again.
//!
//! All happens at the time of 1. It comes before that of 3, so leases end early rather than late, and
//! never goes back from one change to the next: who read before a change cannot write after it.

use std::{sync::Arc, time::Duration};

use redis::{Pipeline, RedisError, Value};

use super::{
    codec::{self, micros, store_time},
    errors::{classify, classify_connecting},
    link::Link,
    pool::Lent,
    scripts::REMEMBER,
    store::{RedisStore, grouped},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, FailureKind, Leave, LockView, Standing, What},
    claim::random_u64,
    clock::Moment,
    line::{Effect, Line, Part, StoreTime},
    name::Name,
};

/// How often a change is tried before others are left alone with the lock.
const TRIES: u32 = 64;
/// The longest pause after the first try; it doubles with each, up to so many times.
const PAUSE: Duration = Duration::from_micros(500);
const DOUBLINGS: u32 = 6;

/// What is done to a line. It is done anew for each try.
type Change<'a, T> = dyn Fn(&mut Line, StoreTime, &mut Vec<Effect>) -> T + Send + Sync + 'a;

/// A verb: what it does to a line, and whether its answer has to be confirmed by replicas.
struct Verb<'a, T> {
    change: &'a Change<'a, T>,
    relied_on: fn(&T) -> bool,
}

/// An answer, and whether as many replicas as the URL asks for have what it rests on.
type Confirmed<T> = (T, Result<(), Failure>);

/// What a try came to.
enum Tried<T> {
    /// The answer, and who holds now without having heard of it.
    Done(Confirmed<T>, Vec<Unheard>),
    /// What is kept at the key is not ours.
    Foreign,
    /// Somebody else was faster.
    Overtaken,
    /// A connection that was used before is no longer one.
    Stale,
}

/// Why a try failed.
enum Trouble {
    /// The server refused: nothing changed.
    Refused(RedisError),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A claim that became a holder and was told so to nobody: its client is dead.
#[derive(Debug)]
struct Unheard {
    id: ClaimId,
    lapses: Moment,
}

impl Unheard {
    /// Takes it out, unless it was renewed since: then its client lives, and knows by that.
    fn remove(&self, line: &mut Line, at: StoreTime, effects: &mut Vec<Effect>) {
        let unchanged = |part: Part| part.claim.id == self.id && part.lapses == self.lapses;
        if line.parts().any(unchanged) {
            line.leave(self.id, Leave::Done, at, effects);
        }
    }
}

impl RedisStore {
    pub(super) async fn enter_by_transaction(
        &self,
        claim: &Arc<Claim>,
        ask: Ask,
    ) -> Result<Confirmed<Entered>, Failure> {
        // The server's clock does not count finer: what is granted is what is kept.
        let claim = Arc::new(Claim { ttl: Duration::from_micros(micros(claim.ttl)), ..Claim::clone(claim) });
        let verb = Verb {
            change: &|line, at, effects| line.enter(&claim, ask, at, effects),
            relied_on: |entered| matches!(entered, Entered::Held(_)),
        };
        self.change(&claim.name, &verb).await?.ok_or_else(codec::foreign)
    }

    pub(super) async fn renew_by_transactions(
        &self,
        claims: &[Arc<Claim>],
    ) -> Result<Vec<Standing>, Failure> {
        // One for each name, as many at once as there are connections.
        let by_name = grouped(claims.len(), |index| &claims[index].name);
        let mut standings = vec![Standing::Gone; claims.len()];
        let asked = by_name.iter().map(|group| async move {
            let ids: Vec<_> = group.iter().map(|index| claims[*index].id).collect();
            let verb = Verb {
                change: &|line, at, effects| {
                    ids.iter().map(|id| line.renew(*id, at, effects)).collect::<Vec<_>>()
                },
                relied_on: |all| all.iter().any(|standing| matches!(standing, Standing::Held(_))),
            };
            self.change(&claims[group[0]].name, &verb).await
        });
        for (group, answer) in by_name.iter().zip(futures_util::future::join_all(asked).await) {
            // Where something else is kept none of ours is in line; the others of the batch may well be.
            let Some((answer, confirmed)) = answer? else { continue };
            confirmed?;
            for (index, standing) in group.iter().zip(answer) {
                standings[*index] = standing;
            }
        }
        Ok(standings)
    }

    pub(super) async fn leave_by_transaction(
        &self,
        name: &Name,
        id: ClaimId,
        why: &Leave,
    ) -> Result<(), Failure> {
        let verb = Verb {
            change: &|line, at, effects| line.leave(id, why.clone(), at, effects),
            relied_on: |_| false,
        };
        self.change(name, &verb).await?.map(drop).ok_or_else(codec::foreign)
    }

    pub(super) async fn look_without_scripts(&self, name: &Name) -> Result<Option<LockView>, Failure> {
        let key = self.common.space.key(name);
        let ask = async |verb: &str, of: Option<&str>| {
            let mut command = redis::cmd(verb);
            command.arg(of);
            self.servers.ask(&key, &|_| command.clone()).await?.map_err(|error| classify(&error))
        };
        let head = ask("GET", Some(&key)).await?;
        let now = time(&ask("TIME", None).await?)?;
        let claims = match &head {
            Value::BulkString(head) if head.starts_with(b"L") => {
                ask("HGETALL", Some(&format!("{key}:c"))).await?
            }
            _ => Value::Nil,
        };
        Ok(codec::view_of_keys(name, &head, &claims, store_time(now)))
    }

    /// Changes the line of a name. No answer: what is kept there is not ours.
    async fn change<T: Send>(
        &self,
        name: &Name,
        verb: &Verb<'_, T>,
    ) -> Result<Option<Confirmed<T>>, Failure> {
        let key = self.common.space.key(name);
        let mut unheard: Vec<Unheard> = Vec::new();
        loop {
            // Repeated verbs mean the same once, so the answer is as if the dead had never been in line.
            let change = |line: &mut Line, at: StoreTime, effects: &mut Vec<Effect>| {
                unheard.iter().for_each(|claim| claim.remove(line, at, effects));
                (verb.change)(line, at, effects)
            };
            let verb = Verb { change: &change, relied_on: verb.relied_on };
            let done = self.commit(name, &key, &verb).await;
            match done {
                Ok(Some((answer, nobody))) if nobody.is_empty() => return Ok(Some(answer)),
                Ok(Some((_, dead))) => unheard = dead,
                Ok(None) => return Ok(None),
                // What was changed before stays changed.
                Err(failure) if !unheard.is_empty() => return Err(Failure::unknown(failure.reason)),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Tries until nobody else is faster.
    async fn commit<T: Send>(
        &self,
        name: &Name,
        key: &str,
        verb: &Verb<'_, T>,
    ) -> Result<Option<(Confirmed<T>, Vec<Unheard>)>, Failure> {
        for tried in 0..TRIES {
            let (link, shard) = self.servers.place(key).await?;
            match self.attempt(name, key, (&link, &shard), verb).await {
                Ok(Tried::Done(answer, unheard)) => return Ok(Some((answer, unheard))),
                Ok(Tried::Foreign) => return Ok(None),
                Ok(Tried::Overtaken) => pause(tried).await,
                Ok(Tried::Stale) => {}
                Err(Trouble::Refused(error)) => {
                    if !self.servers.is_elsewhere(key, &link, Some(&error)).await {
                        return Err(classify_connecting(&error));
                    }
                }
                Err(Trouble::Failed(failure)) => {
                    let nothing_changed = failure.kind == FailureKind::Unreachable;
                    if !nothing_changed || !self.servers.is_elsewhere(key, &link, None).await {
                        return Err(failure);
                    }
                }
            }
        }
        Err(Failure::unreachable(format!(
            "others changed this lock {TRIES} times before this client could: let fewer ask for it at once, or allow scripts"
        )))
    }

    async fn attempt<T: Send>(
        &self,
        name: &Name,
        key: &str,
        (link, shard): (&Arc<Link>, &str),
        verb: &Verb<'_, T>,
    ) -> Result<Tried<T>, Trouble> {
        if !shard.is_empty() {
            link.hear_shard(shard).await?.map_err(|error| classify(&error))?;
        }
        let mut lent = link.lend().await?;
        let answers = match lent.ask(&question(key)).await {
            Ok(answers) => answers,
            Err(_) if !lent.is_new => return Ok(Tried::Stale),
            Err(error) => return Err(Trouble::Refused(error)),
        };
        let (line, at) = match read(name, answers) {
            Ok((Some(line), now)) => (line, store_time(now)),
            Ok((None, _)) => {
                lent.give_back();
                return Ok(Tried::Foreign);
            }
            Err(error) if error.code() == Some("WRONGTYPE") => return Ok(Tried::Foreign),
            Err(error) => return Err(refused(&lent, error)),
        };
        let (mut changed, mut effects) = (line.clone(), Vec::new());
        let answer = (verb.change)(&mut changed, at, &mut effects);
        if changed.last_epoch() == line.last_epoch() && changed.parts().eq(line.parts()) {
            lent.give_back();
            return Ok(Tried::Done((answer, Ok(())), Vec::new()));
        }
        let wanted = if (verb.relied_on)(&answer) { self.config.replicas } else { 0 };
        self.write(lent, (key, shard), (&changed, at), &effects, wanted).await.map(|written| match written {
            Some((unheard, confirmed)) => Tried::Done((answer, confirmed), unheard),
            None => Tried::Overtaken,
        })
    }

    /// Writes a line where it was read, and tells whom it concerns. Nothing: somebody else was faster.
    async fn write(
        &self,
        mut lent: Lent,
        (key, shard): (&str, &str),
        (line, at): (&Line, StoreTime),
        effects: &[Effect],
        replicas: u32,
    ) -> Result<Option<Confirmed<Vec<Unheard>>>, Trouble> {
        let mut commands = redis::pipe();
        commands
            .cmd("MULTI")
            .cmd("SET")
            .arg(key)
            .arg(codec::write_line(line))
            .arg("PX")
            .arg(keep_ms(line, at));
        let mut told = Vec::new();
        for effect in effects {
            let Some(message) = codec::message(key, effect) else { continue };
            let inbox = self.common.space.inbox(effect.id.client(), shard);
            commands.cmd(if shard.is_empty() { "PUBLISH" } else { "SPUBLISH" }).arg(inbox).arg(message);
            told.push(effect);
        }
        commands.cmd("EXEC");
        if replicas > 0 {
            // On this connection: what another one wrote is not waited for.
            commands.add_command(self.wait_for_replicas());
        }
        // From here on it may have happened.
        let unknown = |error: &RedisError| Trouble::Failed(Failure::unknown(classify(error).reason));
        let mut answers = lent.ask(&commands).await.map_err(|error| unknown(&error))?;
        let confirmed = if replicas > 0 {
            let confirmed = answers.pop().unwrap_or(Value::Nil).extract_error();
            confirmed.map_err(|error| classify(&error)).and_then(|value| self.enough_replicas(&value))
        } else {
            Ok(())
        };
        match answers.pop() {
            Some(Value::Nil) => {
                lent.give_back();
                Ok(None)
            }
            Some(Value::Array(done)) => {
                let done = Value::Array(done).extract_error().map_err(|error| unknown(&error))?;
                lent.give_back();
                Ok(Some((unheard(line, &told, &done), confirmed)))
            }
            // One of the commands was not taken, so none was done; the first says why.
            last => {
                answers.extend(last);
                match answers.into_iter().find_map(|answer| answer.extract_error().err()) {
                    Some(error) => Err(refused(&lent, error)),
                    None => Err(Failure::unknown("the answer to EXEC cannot be read").into()),
                }
            }
        }
    }
}

/// Asks for a line and watches it. What the last transaction on this connection may still watch, having
/// had nothing to write, is let go first: it would make this one fail.
fn question(key: &str) -> Pipeline {
    let mut question = redis::pipe();
    question.cmd("UNWATCH").cmd("WATCH").arg(key).cmd("GET").arg(key).cmd("TIME");
    question
}

/// The line, if it is one of ours, and the server's time.
fn read(name: &Name, answers: Vec<Value>) -> Result<(Option<Line>, u64), RedisError> {
    let answers = answers.into_iter().map(Value::extract_error).collect::<Result<Vec<_>, _>>()?;
    let strange = || {
        RedisError::from((
            redis::ErrorKind::UnexpectedReturnType,
            "the answer to GET and TIME cannot be read",
        ))
    };
    let [_, _, head, now] = &answers[..] else { return Err(strange()) };
    let line = match head {
        Value::Nil => Some(Line::default()),
        head => codec::text(head).and_then(|head| codec::read_line(name, head)),
    };
    Ok((line, time(now).map_err(|_| strange())?))
}

/// The answer to `TIME`, in microseconds.
fn time(value: &Value) -> Result<u64, Failure> {
    let read = redis::from_redis_value_ref::<(u64, u64)>(value);
    let (seconds, micros) = read.map_err(|_| Failure::unknown("the answer to TIME cannot be read"))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// The server refused. The connection is not used again: something may be queued or watched on it.
fn refused(lent: &Lent, error: RedisError) -> Trouble {
    let answer = Err::<(), _>(error.clone());
    lent.link.give_up_if_broken(lent.number, &answer);
    Trouble::Refused(error)
}

/// For how long a line is kept: until its last lease is over and no clock is as far back as its epoch,
/// and then for a while.
fn keep_ms(line: &Line, at: StoreTime) -> u64 {
    let over = line.parts().map(|part| part.lapses.as_nanos() / 1_000).max().unwrap_or(0);
    over.max(line.last_epoch()).saturating_sub(at.micros).div_ceil(1_000) + micros(REMEMBER) / 1_000
}

/// Those who became holders and whose inbox nobody reads. `done` is what `EXEC` answered.
fn unheard(line: &Line, told: &[&Effect], done: &Value) -> Vec<Unheard> {
    let answers = done.as_sequence().unwrap_or_default().iter().skip(1);
    let by_nobody = |(effect, heard): (&&Effect, &Value)| {
        let granted = matches!(effect.what, What::Granted(_));
        (granted && *heard == Value::Int(0)).then_some(effect.id)
    };
    let ids: Vec<_> = told.iter().zip(answers).filter_map(by_nobody).collect();
    let parts = line.parts().filter(|part| ids.contains(&part.claim.id));
    parts.map(|part| Unheard { id: part.claim.id, lapses: part.lapses }).collect()
}

/// Lets others finish. At random, so that those who met do not meet again.
async fn pause(tried: u32) {
    let longest = PAUSE * (1 << tried.min(DOUBLINGS));
    tokio::time::sleep(Duration::from_micros(random_u64() % micros(longest))).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ClientId, Share};

    #[test]
    fn a_holder_that_renewed_since_it_was_not_heard_stays() {
        let claim = Arc::new(Claim {
            id: ClaimId::new(ClientId::from_u64(1), 1),
            name: Name::new("a").unwrap(),
            share: Share::Exclusive,
            owner: None,
            ttl: Duration::from_secs(1),
            label: "test".into(),
            detached: false,
            writes: false,
            auto_renew: true,
        });
        let (mut line, mut effects) = (Line::default(), Vec::new());
        line.enter(&claim, Ask::Queue, store_time(1_000), &mut effects);
        let effect = Effect {
            id: claim.id,
            what: What::Granted(crate::backend::Grant { epoch: 1_000, ttl: claim.ttl, waiting: 0 }),
        };
        let done = |heard| Value::Array(vec![Value::Okay, Value::Int(heard)]);
        assert!(unheard(&line, &[&effect], &done(1)).is_empty());
        let nobody = unheard(&line, &[&effect], &done(0));
        let mut renewed = line.clone();
        renewed.renew(claim.id, store_time(2_000), &mut effects);
        nobody[0].remove(&mut renewed, store_time(3_000), &mut effects);
        assert_eq!(renewed.len(), 1);
        nobody[0].remove(&mut line, store_time(3_000), &mut effects);
        assert!(line.is_empty());
    }

    #[test]
    fn a_line_is_kept_beyond_its_last_lease_and_its_epoch() {
        assert_eq!(keep_ms(&Line::default(), store_time(5)), 600_000);
        assert_eq!(keep_ms(&Line::from_parts(7_001, []), store_time(5_000)), 600_003);
    }
}
