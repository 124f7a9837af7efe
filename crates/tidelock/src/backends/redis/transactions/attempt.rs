//! One try of a transaction: what is in line is read, changed, and written if nobody else was faster.

use std::sync::Arc;

use redis::{Pipeline, RedisError, Value};

use super::{
    super::{
        codec::{self, store_time},
        errors::classify,
        fitness::time_of,
        forms::{Reader, unreadable},
        link::{Lent, Server},
        scripts::REMEMBER,
        store::RedisStore,
    },
    Confirmed, Verb,
};
use crate::{
    backend::{ClaimId, Failure, Leave, What},
    backends::shared::{failures::in_doubt, units::micros},
    clock::Moment,
    model::line::{Effect, Line, Part, StoreTime},
    model::name::Name,
};

/// What a try came to.
pub(super) enum Tried<T> {
    /// The answer, and who holds now without having heard of it.
    Done(Confirmed<T>, Vec<Unheard>),
    /// What is kept at the key cannot be read by this client: why.
    Unreadable(Failure),
    /// Somebody else was faster.
    Overtaken,
    /// A connection that was used before is no longer one.
    Stale,
}

/// Why a try failed.
pub(super) enum Trouble {
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
pub(super) struct Unheard {
    id: ClaimId,
    lapses: Moment,
}

impl Unheard {
    /// Takes it out, unless it was renewed since: then its client lives, and knows by that.
    pub(super) fn remove(&self, line: &mut Line, at: StoreTime, effects: &mut Vec<Effect>) {
        let unchanged = |part: Part| part.claim.id == self.id && part.lapses == self.lapses;
        if line.parts().any(unchanged) {
            line.leave(self.id, Leave::Done, at, effects);
        }
    }
}

impl RedisStore {
    pub(super) async fn attempt<T: Clone + Send + Sync>(
        &self,
        name: &Name,
        key: &str,
        (server, shard): (&Arc<Server>, &str),
        verb: &Verb<'_, T>,
    ) -> Result<Tried<T>, Trouble> {
        if !shard.is_empty() {
            server.hear_shard(shard).await?.map_err(|error| classify(&error))?;
        }
        let mut lent = server.lend().await?;
        let answers = match lent.ask(&question(key)).await {
            Ok(answers) => answers,
            Err(_) if !lent.is_new => return Ok(Tried::Stale),
            Err(error) => return Err(Trouble::Refused(error)),
        };
        let (line, at) = match read(name, answers) {
            Ok((Ok(line), now)) => (line, store_time(now)),
            Ok((Err(unreadable), now)) => {
                let Some(answer) = verb.cleared.clone() else {
                    lent.give_back();
                    return Ok(Tried::Unreadable(unreadable));
                };
                let (idle, at) = (Line::from_parts(now, []), store_time(now));
                let written = self.write(lent, (key, shard), (&idle, at), &[], 0).await?;
                return Ok(written.map_or(Tried::Overtaken, |_| Tried::Done((answer, Ok(())), Vec::new())));
            }
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
        // Behind the others, whose answers are read in their order.
        let evictions =
            told.iter().filter(|effect| shard.is_empty() && matches!(effect.what, What::Evicted(_)));
        for message in evictions.filter_map(|effect| codec::message(key, effect)) {
            commands.cmd("PUBLISH").arg(self.common.space.evictions()).arg(message);
        }
        commands.cmd("EXEC");
        if replicas > 0 {
            // On this connection: what another one wrote is not waited for.
            commands.add_command(self.wait_for_replicas());
        }
        // From here on it may have happened.
        let unknown = |error: &RedisError| Trouble::Failed(in_doubt(classify(error)));
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

/// The line, if this client can read it, and the server's time.
fn read(name: &Name, answers: Vec<Value>) -> Result<(Result<Line, Failure>, u64), RedisError> {
    let strange = || {
        RedisError::from((
            redis::ErrorKind::UnexpectedReturnType,
            "the answer to GET and TIME cannot be read",
        ))
    };
    let Ok([unwatched, watched, head, now]) = <[Value; 4]>::try_from(answers) else { return Err(strange()) };
    unwatched.extract_error()?;
    watched.extract_error()?;
    let now = time_of(&now.extract_error()?).ok_or_else(strange)?;
    let line = match head.extract_error() {
        Ok(Value::Nil) => Ok(Line::default()),
        Ok(Value::BulkString(head)) => {
            let line = std::str::from_utf8(&head).ok().and_then(|head| codec::read_line(name, head));
            // What scripts keep there may be in use, and is not to be cleared.
            let reader = || Reader::Transaction { whole: codec::line_at(name, &head).is_some() };
            line.ok_or_else(|| unreadable(&head, reader()))
        }
        Err(error) if error.code() == Some("WRONGTYPE") => Err(classify(&error)),
        Err(error) => return Err(error),
        Ok(_) => return Err(strange()),
    };
    Ok((line, now))
}

/// The server refused. The connection is not used again: something may be queued or watched on it.
fn refused(lent: &Lent, error: RedisError) -> Trouble {
    let answer = Err::<(), _>(error.clone());
    lent.server.give_up_if_broken(lent.number, &answer);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::{Ask, Claim, ClientId, Share};

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
        let effect =
            Effect { id: claim.id, what: What::Granted(crate::backend::Grant::new(1_000, claim.ttl, 0)) };
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
