//! Arguments, answers and pushes.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked},
};

use crate::{
    backend::{
        Capacity, Claim, ClaimId, ClaimView, ClientId, Entered, Failure, LockView, News, Refusal, Share,
        Standing, What,
    },
    backends::shared::{
        answers::{add_to_views, grant, place},
        units::{count, from_micros, natural},
    },
    model::name::Name,
    model::owner::Owner,
};

/// A claim's id as the server has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(pub(super) ClaimId);

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0.get());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(ClaimId::from_u128(u128::from_be_bytes(raw.try_into()?))))
    }

    accepts!(UUID);
}

/// A client's id as the server has it.
pub(super) fn client_text(client: ClientId) -> String {
    format!("{:016x}", client.get())
}

/// The channel on which a client is told.
pub(super) fn channel(client: ClientId) -> String {
    format!("tidelock_{}", client_text(client))
}

/// How much a claim asks for, as the server has it: which kind, so many of so many.
pub(super) fn share(share: Share) -> (i16, i64, i64) {
    match share {
        Share::Exclusive => (0, 1, 0),
        Share::Shared => (1, 1, 0),
        Share::Permits { n, of } => (2, i64::from(n), i64::from(of)),
    }
}

fn share_of(kind: i64, n: i64, of: i64) -> Share {
    match kind {
        0 => Share::Exclusive,
        1 => Share::Shared,
        _ => Share::Permits { n: count(n), of: count(of) },
    }
}

fn unreadable(what: &str) -> Failure {
    Failure::unknown(format!("the answer to {what} cannot be read: is the schema of another version?"))
}

/// An answer is not what this version of the schema says.
pub(super) fn strange() -> Failure {
    Failure::unknown("the answer cannot be read: is the schema of another version?")
}

/// The only value of an answer.
pub(super) fn value<'a, T: FromSql<'a>>(rows: &'a [Row]) -> Result<T, Failure> {
    rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(strange)
}

/// The answer to `enter`.
pub(super) fn entered(answer: &[i64]) -> Result<Entered, Failure> {
    match *answer {
        [1, at, ttl, waiting] => Ok(Entered::Held(grant(at, ttl, waiting))),
        [2, ahead, lapse_in, _] => Ok(Entered::Waiting(place(ahead, lapse_in))),
        [3] => Ok(Entered::Busy),
        [4, -1] => Ok(Entered::Refused(Refusal::Capacity(Capacity::Unbounded))),
        [4, of] => Ok(Entered::Refused(Refusal::Capacity(Capacity::Of(count(of))))),
        [5, kind, n, of] => Ok(Entered::Refused(Refusal::Upgrade(share_of(kind, n, of)))),
        [6, left] => Err(Failure::unreachable(format!(
            "the server recovered from a crash, was promoted, is a copy or was just upgraded, and may not know who holds what: it grants nothing for another {:.1?}",
            from_micros(left)
        ))),
        _ => Err(unreadable("enter")),
    }
}

/// The answer to `renew`.
pub(super) fn standings(answer: &[i64], claims: usize) -> Result<Vec<Standing>, Failure> {
    let (each, []) = answer.as_chunks::<4>() else { return Err(unreadable("renew")) };
    if each.len() != claims {
        return Err(unreadable("renew"));
    }
    each.iter().map(|one| standing(*one)).collect()
}

/// The answer to `renew_together`: the numbers of claims from 1 on, then as many of each number that says how they stand.
/// Nothing for the others.
pub(super) fn renewed(answer: &[i64], claims: usize) -> Result<Vec<Option<Standing>>, Failure> {
    let count = answer.len() / 5;
    if answer.len() != 5 * count {
        return Err(unreadable("renew_together"));
    }
    let mut standings = vec![None; claims];
    for each in 0..count {
        let column = |number: usize| answer[number * count + each];
        let index = usize::try_from(column(0)).unwrap_or_default().checked_sub(1);
        let place = index.and_then(|index| standings.get_mut(index)).ok_or_else(strange)?;
        *place = Some(standing([column(1), column(2), column(3), column(4)])?);
    }
    Ok(standings)
}

fn standing(numbers: [i64; 4]) -> Result<Standing, Failure> {
    match numbers {
        [1, at, ttl, waiting] => Ok(Standing::Held(grant(at, ttl, waiting))),
        [2, ahead, lapse_in, _] => Ok(Standing::Waiting(place(ahead, lapse_in))),
        [0, ..] => Ok(Standing::Gone),
        _ => Err(unreadable("renew")),
    }
}

/// What a client is told: a letter, an id, a name, and after a new line what there is to say.
pub(super) fn news(text: &str, prefix: &str) -> Option<News> {
    let (head, said) = text.split_once('\n')?;
    let (what, id, name) = (head.get(..1)?, head.get(1..33)?, head.get(33..)?);
    let id = ClaimId::from_u128(u128::from_str_radix(id, 16).ok()?);
    let name = Name::new(name.strip_prefix(prefix)?).ok()?;
    let what = match what {
        "G" => {
            let mut numbers = said.split(' ').map(str::parse::<i64>);
            let mut next = || numbers.next()?.ok();
            let (at, ttl, waiting) = (next()?, next()?, next()?);
            What::Granted(grant(at, ttl, waiting))
        }
        "E" => What::Evicted(said.into()),
        "A" => What::Ask,
        _ => return None,
    };
    Some(News { name, id, what })
}

/// What a client is told of a name that it follows: a letter, and what the name is called in the database.
pub(super) fn followed(text: &str) -> Option<&str> {
    text.strip_prefix('F')
}

/// The rows of `look`: one for each claim, those of a name together and in order. Names with another prefix are not ours.
pub(super) fn views(rows: &[Row], prefix: &str) -> Result<Vec<LockView>, Failure> {
    let mut views: Vec<LockView> = Vec::new();
    for row in rows {
        let name = row.try_get::<_, &str>(0).map_err(|_| unreadable("look"))?;
        let Some(name) = name.strip_prefix(prefix).and_then(|name| Name::new(name).ok()) else { continue };
        let (last_epoch, claim) = view(row, &name).map_err(|_| unreadable("look"))?;
        let Some((claim, share)) = claim else { continue };
        add_to_views(&mut views, &name, natural(last_epoch), share, claim);
    }
    Ok(views)
}

/// The last epoch of a lock, and a claim with its share; nothing if it lapsed.
fn view(row: &Row, name: &Name) -> Result<(i64, Option<(ClaimView, Share)>), tokio_postgres::Error> {
    let (last_epoch, now): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    let (since, lapses): (i64, i64) = (row.try_get(5)?, row.try_get(6)?);
    let (hold, at, held_since): (i16, i64, i64) = (row.try_get(7)?, row.try_get(8)?, row.try_get(9)?);
    let (kind, n, of): (i16, i64, i64) = (row.try_get(10)?, row.try_get(11)?, row.try_get(12)?);
    let (owner, label): (Option<&str>, &str) = (row.try_get(14)?, row.try_get(15)?);
    let claim = Claim {
        id: row.try_get::<_, Id>(3)?.0,
        name: name.clone(),
        share: share_of(i64::from(kind), n, of),
        owner: owner.and_then(|owner| Owner::new(owner).ok()),
        ttl: from_micros(row.try_get(4)?),
        label: label.into(),
        detached: row.try_get(13)?,
        writes: false,
        auto_renew: true,
    };
    let from = if hold > 0 { held_since } else { since };
    let seen = ClaimView::new(
        &claim,
        (hold > 0).then(|| natural(at)),
        from_micros(now.saturating_sub(from)),
        from_micros(lapses.saturating_sub(now)),
    );
    Ok((last_epoch, (lapses > now).then_some((seen, claim.share))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::Grant;

    #[test]
    fn what_is_told_is_read() {
        let id = ClaimId::from_u128(0x1234 << 64 | 7);
        let told = news(&format!("G{id}x:orders/42\n17 30000000 2"), "x:").unwrap();
        let grant = Grant::new(17, Duration::from_secs(30), 2);
        assert_eq!((told.id, told.name.as_str(), told.what), (id, "orders/42", What::Granted(grant)));
        let told = news(&format!("E{id}🔒\nby hand"), "").unwrap();
        assert_eq!((told.name.as_str(), told.what), ("🔒", What::Evicted("by hand".into())));
        assert_eq!(news(&format!("E{id}y:a\nby hand"), "x:"), None);
        for nonsense in ["", "G", "G\n", "Gé\n1 2 3", &format!("G{id}a\n1 2"), &format!("X{id}a\n1 2 3")] {
            assert_eq!(news(nonsense, ""), None, "{nonsense:?}");
        }
    }

    #[test]
    fn answers_that_cannot_be_read_are_unknown() {
        assert!(entered(&[]).is_err() && entered(&[1, 2]).is_err() && entered(&[9]).is_err());
        assert!(standings(&[1, 2, 3], 1).is_err() && standings(&[0, 0, 0, 0], 2).is_err());
        assert_eq!(standings(&[0, 0, 0, 0], 1).unwrap(), [Standing::Gone]);
        for nonsense in [&[1, 1, 1, 1][..], &[0, 1, 9, 9, 9], &[3, 1, 9, 9, 9], &[1, 7, 9, 9, 9]] {
            assert!(renewed(nonsense, 2).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn claims_that_were_renewed_together_are_told_by_their_numbers() {
        assert_eq!(renewed(&[], 2).unwrap(), [None, None]);
        let (held, waits) = (grant(17, 30_000_000, 2), place(1, -1));
        let answer = [3, 1, 1, 2, 17, 1, 30_000_000, -1, 2, 0];
        let expected = [Some(Standing::Waiting(waits)), None, Some(Standing::Held(held))];
        assert_eq!(renewed(&answer, 3).unwrap(), expected);
    }
}
