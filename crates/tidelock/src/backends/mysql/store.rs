//! The verbs: one call of a stored procedure each.

use std::{sync::Arc, time::Duration};

use mysql_async::{FromValueError, Row, Value, prelude::FromValue};

use super::link::Link;
use crate::{
    backend::{
        Ask, Capacity, Claim, ClaimId, ClaimView, ClientId, Entered, Failure, Grant, Leave, LockView, Place,
        Refusal, Scope, Share, Standing,
    },
    backends::unanswered::Unanswered,
    name::Name,
    owner::Owner,
};

/// The shortest lease that is worth its commits, which wait for a disk.
pub(super) const MIN_TTL: Duration = Duration::from_millis(500);

/// How many claims one renewal may carry: their lines are locked until all of them are done.
pub(super) const RENEW_BATCH: usize = 64;

/// The lines in a database.
#[derive(Debug)]
pub(super) struct MysqlStore {
    pub(super) link: Link,
    pub(super) client: ClientId,
    /// Those for which a question may arrive late.
    pub(super) unanswered: Unanswered,
}

impl MysqlStore {
    pub(super) async fn enter(&self, claim: &Claim, ask: Ask) -> Result<Entered, Failure> {
        let longest = self.link.config().longest_ttl;
        if claim.ttl > longest && self.link.forgets() {
            return Err(Failure::denied(format!(
                "a ttl of {:?} is longer than this server is left alone after a start, which is {longest:?}: ask for less, set longest_ttl_ms in the URL of all clients, or let the server write each commit to its disk",
                claim.ttl
            )));
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
        let text = "CALL tidelock_enter(?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let rows = self.link.call_for(text, values, Some(&mut asking)).await?;
        drop(asking);
        let entered = entered(rows.first().ok_or_else(unreadable)?)?;
        if matches!(entered, Entered::Busy | Entered::Refused(_)) {
            // Nobody leaves a claim that is not in line.
            self.shut_out(&claim.name, claim.id).await?;
        }
        Ok(entered)
    }

    pub(super) async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>, Failure> {
        // Everybody locks lines in the same order.
        let mut order: Vec<usize> = (0..claims.len()).collect();
        order.sort_by_key(|index| &claims[*index].name);
        let mut standings = vec![Standing::Gone; claims.len()];
        for some in order.chunks(RENEW_BATCH) {
            let mut text = String::new();
            for index in some {
                let (id, name) = (claims[*index].id, claims[*index].name.as_str());
                text.push_str(&format!("{id}{:03}{name}", name.len()));
            }
            let rows = self.link.call("CALL tidelock_renew(?)", vec![text.into()]).await?;
            let answers: String = column(rows.first().ok_or_else(unreadable)?, 0)?;
            let answers: Vec<_> = answers.split_terminator(';').collect();
            if answers.len() != some.len() {
                return Err(unreadable());
            }
            for (index, answer) in some.iter().zip(answers) {
                standings[*index] = standing(answer).ok_or_else(unreadable)?;
            }
        }
        Ok(standings)
    }

    /// Sees to it that no question for a claim takes anything any more, if one may still arrive.
    async fn shut_out(&self, name: &Name, id: ClaimId) -> Result<(), Failure> {
        if self.unanswered.has(id) {
            let values = vec![name.as_str().into(), id.client().get().into(), id.serial().into()];
            let called = self.link.call("CALL tidelock_shut_out(?, ?, ?)", values).await;
            called.map_err(|failure| Failure::unknown(failure.reason))?;
            self.unanswered.forget(id);
        }
        Ok(())
    }

    pub(super) async fn leave(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<(), Failure> {
        let reason = match why {
            Leave::Done => Value::NULL,
            Leave::Evicted(reason) => (**reason).into(),
        };
        self.shut_out(name, id).await?;
        let values = vec![name.as_str().into(), id.client().get().into(), id.serial().into(), reason];
        self.link.call("CALL tidelock_leave(?, ?, ?, ?)", values).await.map(drop)
    }

    pub(super) async fn look(&self, scope: &Scope) -> Result<Vec<LockView>, Failure> {
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
}

/// What became of an `enter`.
fn entered(row: &Row) -> Result<Entered, Failure> {
    let kind: String = column(row, 0)?;
    let (a, b, c): (i64, i64, i64) = (column(row, 1)?, column(row, 2)?, column(row, 3)?);
    match &*kind {
        "H" => Ok(Entered::Held(grant(a, b, c))),
        "W" => Ok(Entered::Waiting(place(a, b))),
        "B" => Ok(Entered::Busy),
        "C" if a == 0 => Ok(Entered::Refused(Refusal::Capacity(Capacity::Unbounded))),
        "C" => Ok(Entered::Refused(Refusal::Capacity(Capacity::Of(a as u32)))),
        "U" => Ok(Entered::Refused(Refusal::Upgrade(share(a as u32, b as u32)))),
        _ => Err(unreadable()),
    }
}

/// Adds a claim in line to what people see of its lock.
fn add_to(views: &mut Vec<LockView>, row: &Row) -> Result<(), Failure> {
    let number = |index| column::<u64>(row, index);
    let text = |index| column::<Vec<u8>>(row, index).map(|text| String::from_utf8_lossy(&text).into_owned());
    let name = Name::new(&text(1)?).map_err(|_| unreadable())?;
    let share = share(number(5)? as u32, number(6)? as u32);
    let owner = text(7)?;
    let claim = Claim {
        id: ClaimId::new(ClientId::from_u64(number(3)?), number(4)?),
        name: name.clone(),
        share,
        owner: if owner.is_empty() { None } else { Some(Owner::new(&owner).map_err(|_| unreadable())?) },
        ttl: Duration::from_micros(number(9)?),
        label: text(8)?.into(),
        detached: false,
        writes: false,
        auto_renew: true,
    };
    let (now, since, lapses) = (number(0)?, number(10)?, number(11)?);
    let waits = number(13)? == 1;
    let epoch = if waits { None } else { Some(number(12)?) };
    let seen = ClaimView::new(
        &claim,
        epoch,
        Duration::from_micros(now.saturating_sub(since)),
        Duration::from_micros(lapses.saturating_sub(now)),
    );
    if views.last().is_none_or(|view| view.name != name) {
        views.push(LockView::new(name, None, number(2)?));
    }
    if let Some(view) = views.last_mut() {
        view.capacity = view.capacity.or(share.capacity());
        if waits { view.waiters.push(seen) } else { view.holders.push(seen) }
    }
    Ok(())
}

/// `H epoch ttl waiting`, `W ahead lapse_in` or `G`.
fn standing(text: &str) -> Option<Standing> {
    let mut words = text.split(' ');
    let kind = words.next()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    match kind {
        "H" => Some(Standing::Held(grant(number()?, number()?, number()?))),
        "W" => Some(Standing::Waiting(place(number()?, number()?))),
        "G" => Some(Standing::Gone),
        _ => None,
    }
}

pub(super) fn grant(epoch: i64, ttl: i64, waiting: i64) -> Grant {
    Grant { epoch: epoch as u64, ttl: Duration::from_micros(ttl as u64), waiting: waiting as u32 }
}

fn place(ahead: i64, lapse_in: i64) -> Place {
    Place { ahead: ahead as u32, lapse_in: u64::try_from(lapse_in).ok().map(Duration::from_micros) }
}

/// As it is kept: weight and capacity, with no weight for all of it and no capacity for readers.
fn in_numbers(share: Share) -> (u32, u32) {
    match share {
        Share::Exclusive => (0, 0),
        Share::Shared => (1, 0),
        Share::Permits { n, of } => (n, of),
    }
}

fn share(weight: u32, total: u32) -> Share {
    match (weight, total) {
        (0, _) => Share::Exclusive,
        (_, 0) => Share::Shared,
        (n, of) => Share::Permits { n, of },
    }
}

/// The server's clock does not count finer.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn column<T: FromValue>(row: &Row, index: usize) -> Result<T, Failure> {
    row.get_opt(index).and_then(|value: Result<T, FromValueError>| value.ok()).ok_or_else(unreadable)
}

pub(super) fn unreadable() -> Failure {
    Failure::unknown("the answer of the stored procedure cannot be read")
}
