//! The verbs: one call of one function each.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    codec::{self, Id, micros},
    link::{Link, Verb},
    taken::Taken,
    wake::{Heard, Waiting},
};
use crate::{
    backend::{Ask, Claim, ClaimId, Entered, Failure, Leave, LockView, News, Scope, Standing, What},
    backends::unanswered::Unanswered,
    name::Name,
};

/// The shortest lease that is worth its messages.
pub(super) const MIN_TTL: Duration = Duration::from_millis(200);

/// The numbers of the verbs.
const ENTER: usize = 0;
const RENEW: usize = 1;
const LEAVE: usize = 2;
const LOOK: usize = 3;
const PEEK: usize = 4;
const SHUT_OUT: usize = 5;

/// Locks in rows.
pub(super) static ROWS: [Verb; 6] = verbs(
    "SELECT tidelock.enter($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    "SELECT tidelock.renew($1, $2)",
    "SELECT tidelock.leave($1, $2, $3)",
);

/// Locks in rows, and in the session.
pub(super) static ADVISORY: [Verb; 6] = verbs(
    "SELECT tidelock.advisory_enter($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    "SELECT tidelock.advisory_renew($1, $2)",
    "SELECT tidelock.advisory_leave($1, $2, $3)",
);

const fn verbs(enter: &'static str, renew: &'static str, leave: &'static str) -> [Verb; 6] {
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
    [
        Verb { text: enter, types: CLAIM },
        Verb { text: renew, types: BATCH },
        Verb { text: leave, types: &[Type::TEXT, Type::UUID, Type::TEXT] },
        Verb { text: "SELECT * FROM tidelock.look($1)", types: &[Type::TEXT_ARRAY] },
        Verb { text: "SELECT tidelock.peek($1, $2)", types: BATCH },
        Verb { text: "SELECT tidelock.shut_out($1, $2)", types: &[Type::TEXT, Type::UUID] },
    ]
}

/// The locks of a database, as one client sees them.
#[derive(Debug)]
pub(super) struct PostgresStore {
    pub(super) link: Arc<Link>,
    /// Those for which a question may arrive late.
    pub(super) unanswered: Unanswered,
    /// Behind a pooler: those of which nobody tells.
    pub(super) waiting: Option<Waiting>,
    /// With advisory locks: those that the session holds.
    pub(super) taken: Option<Taken>,
}

/// What is heard and was not told yet.
#[derive(Debug)]
pub(super) struct Ear {
    heard: UnboundedReceiver<Heard>,
    news: VecDeque<News>,
    pause: Duration,
}

impl Ear {
    pub(super) fn new(heard: UnboundedReceiver<Heard>) -> Self {
        Self { heard, news: VecDeque::new(), pause: Duration::ZERO }
    }
}

impl PostgresStore {
    pub(super) async fn enter(&self, claim: &Claim, ask: Ask) -> Result<Entered, Failure> {
        let (kind, n, of) = codec::share(claim.share);
        let (id, ttl, is_try) = (Id(claim.id), micros(claim.ttl), ask == Ask::Try);
        let owner = claim.owner.as_ref().map(|owner| owner.as_str());
        let (name, label) = (self.key(&claim.name), &*claim.label);
        let values: [&(dyn ToSql + Sync); 10] =
            [&name, &id, &is_try, &ttl, &kind, &n, &of, &claim.detached, &owner, &label];
        let mut asking = self.unanswered.asking(claim.id);
        let answer = self.link.ask_for(ENTER, &values, Some(&mut asking)).await?;
        drop(asking);
        let entered = codec::entered(&numbers(&answer.rows)?)?;
        self.note(claim, matches!(entered, Entered::Waiting(_)));
        if matches!(entered, Entered::Held(_)) {
            self.note_held(claim, answer.session);
        }
        if matches!(entered, Entered::Busy | Entered::Refused(_)) {
            // Nobody leaves a claim that is not in line.
            self.shut_out(&claim.name, claim.id).await?;
        }
        Ok(entered)
    }

    pub(super) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        let Some(taken) = &self.taken else { return Ok(self.renew_all(claims).await?.0) };
        // What another session had was everybody's when it ended.
        let session = self.link.connection().await?.number();
        let (kept, lost): (Vec<usize>, Vec<usize>) =
            (0..claims.len()).partition(|index| !taken.is_lost(claims[*index].id, session));
        let asked: Vec<Arc<Claim>> = kept.iter().map(|index| Arc::clone(&claims[*index])).collect();
        let (answers, from) = self.renew_all(&asked).await?;
        if !asked.is_empty() && from != session {
            return Err(Failure::unknown("the session was lost and made anew between two questions"));
        }
        let mut standings = vec![Standing::Gone; claims.len()];
        for (index, standing) in kept.into_iter().zip(answers) {
            standings[index] = standing;
        }
        for index in lost {
            taken.forget(claims[index].id);
        }
        Ok(standings)
    }

    /// How claims stand, and which session said so.
    async fn renew_all(&self, claims: &[Arc<Claim>]) -> Result<(Vec<Standing>, u64), Failure> {
        if claims.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let names: Vec<String> = claims.iter().map(|claim| self.key(&claim.name)).collect();
        let ids: Vec<Id> = claims.iter().map(|claim| Id(claim.id)).collect();
        let answer = self.link.ask(RENEW, &[&names, &ids]).await?;
        let standings = codec::standings(&numbers(&answer.rows)?, claims.len())?;
        for (claim, standing) in claims.iter().zip(&standings) {
            self.note(claim, matches!(standing, Standing::Waiting(_)));
            if matches!(standing, Standing::Held(_)) {
                self.note_held(claim, answer.session);
            }
        }
        Ok((standings, answer.session))
    }

    /// Sees to it that no question for a claim takes anything any more, if one may still arrive.
    async fn shut_out(&self, name: &Name, id: ClaimId) -> Result<(), Failure> {
        if self.unanswered.has(id) {
            let asked = self.link.ask(SHUT_OUT, &[&self.key(name), &Id(id)]).await;
            asked.map_err(|failure| Failure::unknown(failure.reason))?;
            self.unanswered.forget(id);
        }
        Ok(())
    }

    pub(super) async fn leave(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<(), Failure> {
        let reason = match why {
            Leave::Done => None,
            Leave::Evicted(reason) => Some(&**reason),
        };
        if let Some(waiting) = &self.waiting {
            waiting.note(name, id, false);
        }
        self.shut_out(name, id).await?;
        self.link.ask(LEAVE, &[&self.key(name), &Id(id), &reason]).await?;
        if let Some(taken) = &self.taken {
            taken.forget(id);
        }
        Ok(())
    }

    pub(super) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
        let names: Option<Vec<String>> = match scope {
            Scope::Names(names) => Some(names.iter().map(|name| self.key(name)).collect()),
            Scope::All => None,
        };
        codec::views(&self.link.ask(LOOK, &[&names]).await?.rows, self.link.prefix())
    }

    /// What a name is called in the database.
    fn key(&self, name: &Name) -> String {
        [self.link.prefix(), name.as_str()].concat()
    }

    fn note(&self, claim: &Claim, waits: bool) {
        if let Some(waiting) = &self.waiting {
            waiting.note(&claim.name, claim.id, waits);
        }
    }

    fn note_held(&self, claim: &Claim, session: u64) {
        if let Some(taken) = &self.taken {
            taken.note(claim, session);
        }
    }

    /// The next thing that is heard unasked.
    pub(super) async fn wait(&self, ear: &mut Ear) -> Result<News, Failure> {
        self.link.connection().await?;
        if let Some(news) = ear.news.pop_front() {
            return Ok(news);
        }
        let Some(waiting) = &self.waiting else { return self.hear(ear).await };
        loop {
            tokio::select! {
                cut = ear.heard.recv() => return told(cut),
                some = waiting.some(&mut ear.pause) => {
                    ear.news.extend(waiting.changed(self.peek(some).await?));
                    if let Some(news) = ear.news.pop_front() {
                        ear.pause = Duration::ZERO;
                        return Ok(news);
                    }
                }
            }
        }
    }

    async fn hear(&self, ear: &mut Ear) -> Result<News, Failure> {
        let Some(taken) = &self.taken else { return told(ear.heard.recv().await) };
        loop {
            tokio::select! {
                heard = ear.heard.recv() => {
                    let news = told(heard)?;
                    match news.what {
                        // Who is granted a row has to take the lock, too.
                        What::Granted(_) => return Ok(News { what: What::Ask, ..news }),
                        What::Evicted(_) => self.let_go(taken, &news.name, news.id).await,
                        What::Ask => {}
                    }
                    return Ok(news);
                }
                (name, id) = taken.next_lapse() => {
                    self.let_go(taken, &name, id).await;
                }
            }
        }
    }

    /// A row lapses by itself; the lock of a session that lives does not. If this fails the session is over.
    async fn let_go(&self, taken: &Taken, name: &Name, id: ClaimId) {
        let _ = self.leave(name, id, &Leave::Done).await;
        taken.forget(id);
    }

    /// Those of some claims that do not wait any more.
    async fn peek(&self, mut claims: Vec<(ClaimId, Name)>) -> Result<Vec<(ClaimId, Name)>, Failure> {
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

fn told(heard: Option<Heard>) -> Result<News, Failure> {
    match heard {
        Some(Heard::News(news)) => Ok(news),
        Some(Heard::Cut(why)) => Err(Failure::unreachable(why)),
        None => Err(Failure::unreachable("nobody can tell anything any more")),
    }
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>, Failure> {
    let read = rows.first().and_then(|row| row.try_get(0).ok());
    read.ok_or_else(|| Failure::unknown("the answer cannot be read: is the schema of another version?"))
}
