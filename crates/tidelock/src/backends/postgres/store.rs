//! The verbs: one call of one function each, or a part of one call for several.

use std::{sync::Arc, time::Duration};

use tokio_postgres::types::{ToSql, Type};

use super::{
    claims::Claims,
    codec::{self, Id, value},
    link::{Link, Verb},
    together::Together,
    wake::Wake,
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, Follows, Leave, Left, LockView, News, Scope, Standing},
    backends::shared::{
        answers::grant, renewals::Renewals, served::Verbs, steps::Step, together::Joined,
        unanswered::Unanswered, units::addable_micros,
    },
    model::name::Name,
};

/// The shortest lease that is worth its messages.
pub(super) const MIN_TTL: Duration = Duration::from_millis(200);

/// How many claims one renewal may carry. Each takes some ten microseconds, in which its row is locked.
pub(super) const RENEW_BATCH: usize = 128;

/// The numbers of the verbs.
const ENTER: usize = 0;
const RENEW: usize = 1;
const LEAVE: usize = 2;
const LOOK: usize = 3;
const PEEK: usize = 4;
const SHUT_OUT: usize = 5;
pub(super) const TOGETHER: usize = 6;
pub(super) const FOLLOW: usize = 7;
const RENEW_TOGETHER: usize = 8;

/// Locks in rows.
pub(super) static ROWS: [Verb; 9] = verbs(
    "SELECT tidelock.enter($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    "SELECT tidelock.renew($1, $2)",
    "SELECT tidelock.exit($1, $2, $3)",
);

/// Locks in rows, and in the session.
pub(super) static ADVISORY: [Verb; 9] = verbs(
    "SELECT tidelock.advisory_enter($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    "SELECT tidelock.advisory_renew($1, $2)",
    "SELECT tidelock.advisory_exit($1, $2, $3)",
);

const fn verbs(enter: &'static str, renew: &'static str, leave: &'static str) -> [Verb; 9] {
    const CLAIM: &[Type] = &[
        Type::TEXT,
        Type::UUID,
        Type::BOOL,
        Type::INT8,
        Type::INT2,
        Type::INT8,
        Type::INT8,
        Type::BOOL,
        Type::TEXT,
        Type::TEXT,
    ];
    const BATCH: &[Type] = &[Type::TEXT_ARRAY, Type::UUID_ARRAY];
    const STEPS: &[Type] = &[
        Type::TEXT_ARRAY,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
    ];
    [
        Verb { text: enter, types: CLAIM },
        Verb { text: renew, types: BATCH },
        Verb { text: leave, types: &[Type::TEXT, Type::UUID, Type::TEXT] },
        Verb { text: "SELECT * FROM tidelock.look($1)", types: &[Type::TEXT_ARRAY] },
        Verb { text: "SELECT tidelock.peek($1, $2)", types: BATCH },
        Verb { text: "SELECT tidelock.shut_out($1, $2)", types: &[Type::TEXT, Type::UUID] },
        Verb { text: "SELECT tidelock.together($1, $2, $3, $4, $5, $6, $7, $8, $9)", types: STEPS },
        Verb { text: "SELECT tidelock.follow($1, $2)", types: &[Type::TEXT, Type::TEXT] },
        Verb { text: "SELECT tidelock.renew_together($1, $2)", types: BATCH },
    ]
}

/// The locks of a database, as one client sees them.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    pub(super) link: Arc<Link>,
    /// Those for which a question may arrive late.
    pub(super) unanswered: Unanswered,
    pub(super) claims: Claims,
    /// Enters and leaves that go together; nothing where each has to do with its session.
    pub(super) together: Option<Together>,
    pub(super) renewals: Renewals,
    /// The names that are followed; nothing where the server cannot tell.
    pub(super) follows: Option<Follows>,
}

impl Verbs for PostgresStore {
    type Wake = Wake;

    fn concerns(&self) -> Vec<String> {
        self.link.fitness().map(|fitness| fitness.concerns()).unwrap_or_default()
    }

    fn notes(&self) -> Vec<String> {
        self.link.fitness().map(|fitness| fitness.notes()).unwrap_or_default()
    }

    async fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        let (kind, n, of) = codec::share(claim.share);
        let (id, ttl, is_try) = (Id(claim.id), addable_micros(claim.ttl), ask == Ask::Try);
        let owner = claim.owner.as_ref().map(|owner| owner.as_str());
        let (name, label) = (self.key(&claim.name), &*claim.label);
        let values: [&(dyn ToSql + Sync); 10] =
            [&name, &id, &is_try, &ttl, &kind, &n, &of, &claim.detached, &owner, &label];
        let mut asking = self.unanswered.asking(claim.id);
        let joined = match &self.together {
            Some(together) => asking.join(together, Step::Enter(Arc::clone(&claim))).await?,
            None => Joined::Open,
        };
        let turn = match joined {
            Joined::Answered(epoch) => {
                self.claims.note_not_waiting(claim.id);
                return Ok(Entered::Held(grant(epoch, ttl, 0)));
            }
            Joined::Alone(turn) => Some(turn),
            Joined::Open => None,
        };
        let answer = self.link.ask_for(ENTER, &values, Some(&mut asking)).await?;
        drop((asking, turn));
        let entered = codec::entered(&value::<Vec<i64>>(&answer.rows)?)?;
        match &entered {
            Entered::Held(_) => self.claims.note_held(&claim, answer.session),
            Entered::Waiting(_) => self.claims.note_waiting(&claim),
            Entered::Busy | Entered::Refused(_) => {
                self.claims.note_not_waiting(claim.id);
                // Nobody leaves a claim that is not in line.
                self.shut_out(&claim.name, claim.id).await?;
            }
        }
        Ok(entered)
    }

    async fn wait(self: Arc<Self>, wake: &mut Wake) -> Result<News, Failure> {
        wake.next(&self).await
    }

    async fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> Result<Vec<Standing>, Failure> {
        let Some(advisory) = &self.claims.advisory else {
            let verb = async |open: Vec<usize>| {
                let claims: Vec<_> = open.into_iter().map(|index| Arc::clone(&claims[index])).collect();
                Ok(self.renew_by_rules(&claims).await?.0)
            };
            return self.renewals.renew(&claims, || self.renew_together(&claims), verb).await;
        };
        // What another session had was everybody's when it ended.
        let session = self.link.connection().await?.number();
        let (kept, lost): (Vec<usize>, Vec<usize>) =
            (0..claims.len()).partition(|index| !advisory.is_lost(claims[*index].id, session));
        let asked: Vec<Arc<Claim>> = kept.iter().map(|index| Arc::clone(&claims[*index])).collect();
        let (answers, from) = self.renew_by_rules(&asked).await?;
        if !asked.is_empty() && from != session {
            return Err(Failure::unknown("the session was lost and made anew between two questions"));
        }
        let mut standings = vec![Standing::Gone; claims.len()];
        for (index, standing) in kept.into_iter().zip(answers) {
            standings[index] = standing;
        }
        for index in lost {
            advisory.forget(claims[index].id);
        }
        Ok(standings)
    }

    async fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> Result<Left, Failure> {
        self.take_out(&name, id, &why).await
    }

    async fn look(self: Arc<Self>, scope: Scope) -> Result<Vec<LockView>, Failure> {
        let names: Option<Vec<String>> = match scope {
            Scope::Names(names) => Some(names.iter().map(|name| self.key(name)).collect()),
            Scope::All => None,
        };
        codec::views(&self.link.ask(LOOK, &[&names]).await?.rows, self.link.prefix())
    }

    fn follows(&self) -> Option<&Follows> {
        self.follows.as_ref()
    }
}

impl PostgresStore {
    /// How those of some claims stand that are renewed without a rule.
    async fn renew_together(&self, claims: &[Arc<Claim>]) -> Result<Vec<Option<Standing>>, Failure> {
        let (names, ids) = self.batch(claims);
        let answer = self.link.ask(RENEW_TOGETHER, &[&names, &ids]).await?;
        let answered = value::<Option<Vec<i64>>>(&answer.rows)?.unwrap_or_default();
        let standings = codec::renewed(&answered, claims.len())?;
        for (claim, standing) in claims.iter().zip(&standings) {
            if let Some(standing) = standing {
                self.note(claim, standing, answer.session);
            }
        }
        Ok(standings)
    }

    /// How claims stand, and which session said so.
    async fn renew_by_rules(&self, claims: &[Arc<Claim>]) -> Result<(Vec<Standing>, u64), Failure> {
        if claims.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let (names, ids) = self.batch(claims);
        let answer = self.link.ask(RENEW, &[&names, &ids]).await?;
        let standings = codec::standings(&value::<Vec<i64>>(&answer.rows)?, claims.len())?;
        for (claim, standing) in claims.iter().zip(&standings) {
            self.note(claim, standing, answer.session);
        }
        Ok((standings, answer.session))
    }

    fn batch(&self, claims: &[Arc<Claim>]) -> (Vec<String>, Vec<Id>) {
        claims.iter().map(|claim| (self.key(&claim.name), Id(claim.id))).unzip()
    }

    /// A session says how a claim stands.
    fn note(&self, claim: &Claim, standing: &Standing, session: u64) {
        match standing {
            Standing::Held(_) => self.claims.note_held(claim, session),
            Standing::Waiting(_) => self.claims.note_waiting(claim),
            Standing::Gone | Standing::Unknown => self.claims.note_not_waiting(claim.id),
        }
    }

    /// Makes sure that no question for a claim takes anything any more, if one may still arrive.
    async fn shut_out(&self, name: &Name, id: ClaimId) -> Result<(), Failure> {
        let ask = || async move { self.link.ask(SHUT_OUT, &[&self.key(name), &Id(id)]).await };
        self.unanswered.shut_out(id, ask).await
    }

    /// Takes a claim out of its line.
    pub(super) async fn take_out(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<Left, Failure> {
        let reason = match why {
            Leave::Done => None,
            Leave::Evicted(reason) => Some(&**reason),
        };
        self.claims.note_not_waiting(id);
        self.shut_out(name, id).await?;
        // Evictions tell somebody.
        let together = self.together.as_ref().filter(|_| reason.is_none());
        let joined = match together {
            Some(together) => together.join(Step::Leave(name.clone(), id), &mut false).await?,
            None => Joined::Open,
        };
        let turn = match joined {
            Joined::Answered(_) => return Ok(Left::Removed),
            Joined::Alone(turn) => Some(turn),
            Joined::Open => None,
        };
        // Asked again only where the server undid it: then nothing was removed before.
        let answer = self.link.ask(LEAVE, &[&self.key(name), &Id(id), &reason]).await?;
        drop(turn);
        self.claims.note_left(id);
        value(&answer.rows).map(Left::from_was_there)
    }

    /// What a name is called in the database.
    pub(super) fn key(&self, name: &Name) -> String {
        [self.link.prefix(), name.as_str()].concat()
    }

    /// Those of some claims that do not wait any more.
    pub(super) async fn peek(
        &self,
        mut claims: Vec<(ClaimId, Name)>,
    ) -> Result<Vec<(ClaimId, Name)>, Failure> {
        let names: Vec<String> = claims.iter().map(|(_, name)| self.key(name)).collect();
        let ids: Vec<Id> = claims.iter().map(|(id, _)| Id(*id)).collect();
        let rows = self.link.ask(PEEK, &[&names, &ids]).await?.rows;
        let changed: Vec<i32> = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or_default();
        let mut number = 0;
        claims.retain(|_| {
            number += 1;
            changed.contains(&number)
        });
        Ok(claims)
    }
}
