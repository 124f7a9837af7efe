//! The verbs: one call of a stored procedure each, or a part of one call for several.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use mysql_async::Value;

use super::{
    codec::{add_to, column, entered, in_numbers, standing, unreadable},
    link::Link,
    together::{Together, renew},
    wake::Wake,
};
use crate::{
    backend::{
        Ask, Claim, ClaimId, ClientId, Entered, Failure, Follows, Leave, Left, LockView, News, Scope,
        Standing,
    },
    backends::shared::{
        answers::grant,
        kept::Kept,
        longest_ttl,
        renewals::Renewals,
        served::Verbs,
        steps::Step,
        together::Joined,
        unanswered::Unanswered,
        units::{addable_micros, micros},
    },
    model::name::Name,
};

/// The shortest lease that is worth its commits, which wait for a disk.
pub(super) const MIN_TTL: Duration = Duration::from_millis(500);

/// How many claims one renewal may carry: their lines are locked until all of them are done.
pub(super) const RENEW_BATCH: usize = 64;

/// The lines in a database.
#[derive(Debug)]
pub(crate) struct MysqlStore {
    pub(super) link: Arc<Link>,
    pub(super) client: ClientId,
    /// Those for which a question may arrive late.
    pub(super) unanswered: Unanswered,
    /// Enters and leaves that go together.
    pub(super) together: Together,
    pub(super) renewals: Renewals,
    /// What the database kept of names when this client connected.
    pub(super) kept: Option<Kept>,
    /// The names that are followed, and how many times any of them was asked for.
    pub(super) follows: Follows,
    pub(super) followed: AtomicU64,
}

impl Verbs for MysqlStore {
    type Wake = Wake;

    fn concerns(&self) -> Vec<String> {
        self.link.concerns()
    }

    fn notes(&self) -> Vec<String> {
        let kept = self.kept.map(|kept| kept.note("UPDATE tidelock_settings SET days"));
        kept.into_iter().collect()
    }

    async fn enter(self: Arc<Self>, claim: Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        let longest = self.link.config().longest_ttl;
        if claim.ttl > longest && !claim.is_record() && self.link.forgets() {
            let than = "this server is left alone after a start";
            let instead = "set longest_ttl_ms in the URL of all clients, or let the server write each commit to its disk";
            return Err(longest_ttl::refuse(claim.ttl, longest, than, instead));
        }
        let (weight, total) = in_numbers(claim.share);
        let owner = claim.owner.as_ref().map_or("", |owner| owner.as_str());
        let values = vec![
            claim.name.as_str().into(),
            claim.id.client().get().into(),
            claim.id.serial().into(),
            Value::from(ask == Ask::Try),
            weight.into(),
            total.into(),
            owner.into(),
            (*claim.label).into(),
            micros(claim.ttl).into(),
        ];
        let mut asking = self.unanswered.asking(claim.id);
        let joined = asking.join(&self.together, Step::Enter(Arc::clone(&claim))).await?;
        let turn = match joined {
            Joined::Answered(done) => {
                if done.is_repeated {
                    asking.may_arrive();
                }
                if let Some(epoch) = done.epoch {
                    return Ok(Entered::Held(grant(epoch, addable_micros(claim.ttl), 0)));
                }
                None
            }
            Joined::Alone(turn) => Some(turn),
            Joined::Open => None,
        };
        let text = "CALL tidelock_enter(?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let rows = self.link.call_for(text, values, Some(&mut asking)).await?.rows;
        drop((asking, turn));
        let entered = entered(rows.first().ok_or_else(unreadable)?)?;
        if matches!(entered, Entered::Busy | Entered::Refused(_)) {
            // Nobody leaves a claim that is not in line.
            self.shut_out(&claim.name, claim.id).await?;
        }
        Ok(entered)
    }

    async fn wait(self: Arc<Self>, wake: &mut Wake) -> Result<News, Failure> {
        wake.next(&self).await
    }

    async fn renew(self: Arc<Self>, claims: Vec<Arc<Claim>>) -> Result<Vec<Standing>, Failure> {
        let mut standings = Vec::with_capacity(claims.len());
        for some in claims.chunks(RENEW_BATCH) {
            let verb = async |open: Vec<usize>| self.renew_by_rules(some, open).await;
            let renewed = self.renewals.renew(some, || renew(&self.link, self.client, some), verb).await?;
            standings.extend(renewed);
        }
        Ok(standings)
    }

    async fn leave(self: Arc<Self>, name: Name, id: ClaimId, why: Leave) -> Result<Left, Failure> {
        self.shut_out(&name, id).await?;
        // Evictions tell somebody.
        let joined = match why {
            Leave::Done => self.together.join(Step::Leave(name.clone(), id), &mut false).await?,
            Leave::Evicted(_) => Joined::Open,
        };
        let (turn, may_be_removed) = match joined {
            Joined::Answered(done) if done.epoch.is_some() => return Ok(Left::Removed),
            Joined::Answered(done) => (None, done.is_repeated),
            Joined::Alone(turn) => (Some(turn), false),
            Joined::Open => (None, false),
        };
        let mut values = vec![name.as_str().into(), id.client().get().into(), id.serial().into()];
        let is_release = why == Leave::Done;
        let answer = match why {
            Leave::Done => self.link.call_for("CALL tidelock_release(?, ?, ?)", values, None).await?,
            Leave::Evicted(reason) => {
                values.push((*reason).into());
                self.link.call_for("CALL tidelock_leave(?, ?, ?, ?)", values, None).await?
            }
        };
        drop(turn);
        let was_there = match answer.rows.first() {
            Some(row) => column::<u8>(row, 0)? == 1,
            // Said without a row: it was alone in its line. How many rows a call changed depends on the server.
            None if is_release => true,
            None => return Err(unreadable()),
        };
        // The claim may have been removed by a call whose answer was lost.
        Ok(Left::from_was_there(was_there || answer.is_repeated || may_be_removed))
    }

    async fn look(self: Arc<Self>, scope: Scope) -> Result<Vec<LockView>, Failure> {
        let names: Vec<Value> = match scope {
            Scope::Names(names) => names.iter().map(|name| name.as_str().into()).collect(),
            Scope::All => vec![Value::NULL],
        };
        let mut views: Vec<LockView> = Vec::new();
        for name in names {
            for row in self.link.call("CALL tidelock_look(?)", vec![name]).await? {
                add_to(&mut views, &row)?;
            }
        }
        Ok(views)
    }

    fn follows(&self) -> Option<&Follows> {
        Some(&self.follows)
    }
}

impl MysqlStore {
    /// How those of some claims stand that are at these places, in this order.
    async fn renew_by_rules(
        &self,
        claims: &[Arc<Claim>],
        open: Vec<usize>,
    ) -> Result<Vec<Standing>, Failure> {
        // Everybody locks lines in the same order.
        let mut order: Vec<usize> = (0..open.len()).collect();
        order.sort_by_key(|index| &claims[open[*index]].name);
        let mut text = String::new();
        for index in &order {
            let (id, name) = (claims[open[*index]].id, claims[open[*index]].name.as_str());
            text.push_str(&format!("{id}{:03}{name}", name.len()));
        }
        let (call, values) = ("CALL tidelock_renew(?)", vec![text.into()]);
        let rows = if open.len() < claims.len() {
            // Others of the same renewal have their answers, and wait for this.
            self.link.call_once(call, values).await?
        } else {
            self.link.call(call, values).await?
        };
        let answers: String = column(rows.first().ok_or_else(unreadable)?, 0)?;
        let answers: Vec<_> = answers.split_terminator(';').collect();
        if answers.len() != order.len() {
            return Err(unreadable());
        }
        let mut standings = vec![Standing::Gone; order.len()];
        for (index, answer) in order.into_iter().zip(answers) {
            standings[index] = standing(answer).ok_or_else(unreadable)?;
        }
        Ok(standings)
    }

    /// Sees to it that no question for a claim takes anything any more, if one may still arrive.
    async fn shut_out(&self, name: &Name, id: ClaimId) -> Result<(), Failure> {
        let call = || {
            let values = vec![name.as_str().into(), id.client().get().into(), id.serial().into()];
            self.link.call("CALL tidelock_shut_out(?, ?, ?)", values)
        };
        self.unanswered.shut_out(id, call).await
    }
}
