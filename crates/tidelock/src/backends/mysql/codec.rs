//! Answers of procedures, and how a share is kept.

use std::time::Duration;

use mysql_async::{FromValueError, Row, prelude::FromValue};

use crate::{
    backend::{
        Capacity, Claim, ClaimId, ClaimView, ClientId, Entered, Failure, LockView, Refusal, Share, Standing,
    },
    backends::shared::{
        answers::{add_to_views, grant, place},
        units::count,
    },
    model::name::Name,
    model::owner::Owner,
};

/// What became of an `enter`.
pub(super) fn entered(row: &Row) -> Result<Entered, Failure> {
    let kind: String = column(row, 0)?;
    let (a, b, c): (i64, i64, i64) = (column(row, 1)?, column(row, 2)?, column(row, 3)?);
    match &*kind {
        "H" => Ok(Entered::Held(grant(a, b, c))),
        "W" => Ok(Entered::Waiting(place(a, b))),
        "B" => Ok(Entered::Busy),
        "C" if a == 0 => Ok(Entered::Refused(Refusal::Capacity(Capacity::Unbounded))),
        "C" => Ok(Entered::Refused(Refusal::Capacity(Capacity::Of(count(a))))),
        "U" => Ok(Entered::Refused(Refusal::Upgrade(share(count(a), count(b))))),
        _ => Err(unreadable()),
    }
}

/// Adds a claim in line to what people see of its lock.
pub(super) fn add_to(views: &mut Vec<LockView>, row: &Row) -> Result<(), Failure> {
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
    add_to_views(views, &name, number(2)?, share, seen);
    Ok(())
}

/// `H epoch ttl waiting`, `W ahead lapse_in` or `G`.
pub(super) fn standing(text: &str) -> Option<Standing> {
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

/// As it is kept: weight and capacity, with no weight for all of it and no capacity for readers.
pub(super) fn in_numbers(share: Share) -> (u32, u32) {
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

pub(super) fn column<T: FromValue>(row: &Row, index: usize) -> Result<T, Failure> {
    row.get_opt(index).and_then(|value: Result<T, FromValueError>| value.ok()).ok_or_else(unreadable)
}

pub(super) fn unreadable() -> Failure {
    Failure::unknown("the answer of the stored procedure cannot be read")
}
