//! The verbs where scripts are forbidden: each is an optimistic transaction on the one key of a lock.
//!
//! 1. `WATCH`, `GET`, `TIME`: what is in line, and when.
//! 2. What becomes of it, by the rules of [`Line`].
//! 3. `MULTI`, `SET`, `PUBLISH` to those it concerns, `EXEC`: done only if nobody changed the key
//!    since 1. Else all of it again.
//!
//! All happens at the time of 1. It comes before that of 3, so leases end early rather than late, and
//! never goes back from one change to the next: who read before a change cannot write after it.
//!
//! `attempt` is one try; here is what is tried, and how often.

mod attempt;

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};

use self::attempt::{Tried, Trouble, Unheard};
use super::{
    codec,
    errors::{classify, classify_connecting},
    fitness::time_of,
    store::{RedisStore, grouped},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, FailureKind, Leave, Left, Standing},
    backends::shared::{failures::in_doubt, units::micros},
    model::claim::random_u64,
    model::line::{Effect, Line, StoreTime},
    model::name::Name,
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
    /// Whether its answer is that of the first change that was written, should dead claims make another one
    /// necessary.
    first_counts: bool,
    /// Its answer after it cleared what cannot be read; none if it leaves that alone.
    cleared: Option<T>,
}

/// An answer, and whether as many replicas as the URL asks for have what it rests on.
type Confirmed<T> = (T, Result<(), Failure>);

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
            first_counts: false,
            cleared: None,
        };
        self.change(&claim.name, &verb).await?
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
                first_counts: false,
                cleared: None,
            };
            self.change(&claims[group[0]].name, &verb).await
        });
        for (group, answer) in by_name.iter().zip(futures_util::future::join_all(asked).await) {
            let Ok((answer, confirmed)) = answer? else {
                // A client of another kind may have written the line anew. The others of the batch are known.
                group.iter().for_each(|index| standings[*index] = Standing::Unknown);
                continue;
            };
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
    ) -> Result<Left, Failure> {
        let verb = Verb {
            change: &|line, at, effects| line.leave(id, why.clone(), at, effects),
            relied_on: |_| false,
            // What the dead leave behind is changed when the claim has left already.
            first_counts: true,
            cleared: (id == codec::nobody() && *why != Leave::Done).then_some(true),
        };
        let (was_there, _) = self.change(name, &verb).await??;
        Ok(Left::from_was_there(was_there))
    }

    async fn ask_plainly(&self, key: &str, command: &Cmd) -> Result<Value, Failure> {
        self.link.ask(key, &|_| command.clone()).await?.map_err(|error| classify(&error))
    }

    /// The time of the server that has a key, in microseconds.
    async fn time_at(&self, key: &str) -> Result<u64, Failure> {
        let told = self.ask_plainly(key, &redis::cmd("TIME")).await?;
        time_of(&told).ok_or_else(|| Failure::unknown("the answer to TIME cannot be read"))
    }

    /// Answers as the script does.
    pub(super) async fn look_without_scripts(&self, key: &str) -> Result<Value, Failure> {
        let mut get = redis::cmd("GET");
        get.arg(key);
        let head = self.ask_plainly(key, &get).await?;
        let is_idle = match &head {
            Value::BulkString(head) => codec::is_idle(head),
            _ => true,
        };
        if is_idle {
            return Ok(Value::Array(Vec::new()));
        }
        let now = self.time_at(key).await?;
        Ok(Value::Array(vec![Value::Int(i64::try_from(now).unwrap_or(i64::MAX)), head]))
    }

    /// Changes the line of a name. The inner failure: what is kept there cannot be read.
    async fn change<T: Clone + Send + Sync>(
        &self,
        name: &Name,
        verb: &Verb<'_, T>,
    ) -> Result<Result<Confirmed<T>, Failure>, Failure> {
        let key = self.common.space.key(name);
        let mut unheard: Vec<Unheard> = Vec::new();
        let mut first = None;
        loop {
            // Repeated verbs mean the same once, so the answer is as if the dead had never been in line.
            let change = |line: &mut Line, at: StoreTime, effects: &mut Vec<Effect>| {
                unheard.iter().for_each(|claim| claim.remove(line, at, effects));
                (verb.change)(line, at, effects)
            };
            let verb = Verb { change: &change, cleared: verb.cleared.clone(), ..*verb };
            let done = self.commit(name, &key, &verb).await;
            match done {
                Ok(Ok((answer, nobody))) if nobody.is_empty() => return Ok(Ok(first.unwrap_or(answer))),
                Ok(Ok((answer, dead))) => {
                    if verb.first_counts {
                        first.get_or_insert(answer);
                    }
                    unheard = dead;
                }
                Ok(Err(unreadable)) => return Ok(Err(unreadable)),
                // What was changed before stays changed.
                Err(failure) if !unheard.is_empty() => return Err(in_doubt(failure)),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Tries until nobody else is faster.
    async fn commit<T: Clone + Send + Sync>(
        &self,
        name: &Name,
        key: &str,
        verb: &Verb<'_, T>,
    ) -> Result<Result<(Confirmed<T>, Vec<Unheard>), Failure>, Failure> {
        for tried in 0..TRIES {
            let (server, shard) = self.link.server_and_shard(key).await?;
            match self.attempt(name, key, (&server, &shard), verb).await {
                Ok(Tried::Done(answer, unheard)) => return Ok(Ok((answer, unheard))),
                Ok(Tried::Unreadable(failure)) => return Ok(Err(failure)),
                Ok(Tried::Overtaken) => pause(tried).await,
                Ok(Tried::Stale) => {}
                Err(Trouble::Refused(error)) => {
                    if !self.link.is_elsewhere(key, &server, Some(&error)).await {
                        return Err(classify_connecting(&error));
                    }
                }
                Err(Trouble::Failed(failure)) => {
                    let nothing_changed = failure.kind == FailureKind::Unreachable;
                    if !nothing_changed || !self.link.is_elsewhere(key, &server, None).await {
                        return Err(failure);
                    }
                }
            }
        }
        Err(Failure::unreachable(format!(
            "others changed this lock {TRIES} times before this client could: let fewer ask for it at once, or allow scripts"
        )))
    }
}

/// Lets others finish. At random, so that those who met do not meet again.
async fn pause(tried: u32) {
    let longest = PAUSE * (1 << tried.min(DOUBLINGS));
    tokio::time::sleep(Duration::from_micros(random_u64() % micros(longest))).await;
}
