//! Keys, arguments, replies and pushes.

use std::{fmt, sync::Arc, time::Duration};

use redis::{RedisWrite, ToRedisArgs, Value};

use crate::{
    backend::{
        Capacity, Claim, ClaimId, ClaimView, ClientId, Entered, Failure, Grant, LockView, News, Place,
        Refusal, Share, Standing, What,
    },
    name::Name,
    owner::Owner,
    url::unescape,
};

/// Where the keys and channels of an installation are.
#[derive(Clone, Debug)]
pub(super) struct Space {
    prefix: Arc<str>,
}

impl Space {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The key of a lock. The name is a hash tag, so that all keys of a lock are in one slot; what
    /// would end the tag is encoded.
    pub(super) fn key(&self, name: &Name) -> String {
        let text = name.as_str();
        let mut key = String::with_capacity(self.prefix.len() + text.len() + 2);
        key.push_str(&self.prefix);
        key.push('{');
        for c in text.chars() {
            match c {
                '{' => key.push_str("%7B"),
                '}' => key.push_str("%7D"),
                '%' => key.push_str("%25"),
                c => key.push(c),
            }
        }
        key.push('}');
        key
    }

    /// The name of the lock with this key.
    pub(super) fn name(&self, key: &str) -> Option<Name> {
        let name = key.strip_prefix(&*self.prefix)?.strip_prefix('{')?.strip_suffix('}')?;
        Name::new(&unescape(name)?).ok()
    }

    /// A pattern that all keys of locks match.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::new();
        for c in self.prefix.chars() {
            if "*?[]\\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "{*}"
    }

    /// The channel on which a client hears of its claims.
    pub(super) fn inbox(&self, client: ClientId, shard: &str) -> String {
        format!("{}in:{:016x}{shard}", self.prefix, client.get())
    }
}

/// An argument that is written straight into a command.
pub(super) struct Text<T>(pub(super) T);

impl<T: fmt::Display> ToRedisArgs for Text<T> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(&self.0);
    }
}

/// The end of a record, as scripts keep it: share, detached, permits, owner, label.
pub(super) struct Tail<'a>(pub(super) &'a Claim);

impl fmt::Display for Tail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detached = u8::from(self.0.detached);
        match self.0.share {
            Share::Exclusive => write!(f, "x{detached},")?,
            Share::Shared => write!(f, "s{detached},")?,
            Share::Permits { n, of } => write!(f, "p{detached}{n},{of}")?,
        }
        f.write_str("\n")?;
        f.write_str(self.0.owner.as_ref().map_or("", |owner| owner.as_str()))?;
        f.write_str("\n")?;
        f.write_str(&self.0.label)
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn strange(what: &str) -> Failure {
    Failure::unknown(format!("the server's answer to {what} is not one of this version's scripts"))
}

fn numbers(value: &Value) -> Option<Vec<i64>> {
    let Value::Array(values) = value else { return None };
    values.iter().map(|value| if let Value::Int(number) = value { Some(*number) } else { None }).collect()
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn small(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

fn grant(epoch: i64, ttl: i64, waiting: i64) -> Grant {
    Grant { epoch: natural(epoch), ttl: Duration::from_micros(natural(ttl)), waiting: small(waiting) }
}

fn place(ahead: i64, lapse_in: i64) -> Place {
    let lapse_in = (lapse_in >= 0).then(|| Duration::from_micros(natural(lapse_in)));
    Place { ahead: small(ahead), lapse_in }
}

/// The reply to `enter`.
pub(super) fn entered(claim: &Claim, value: &Value) -> Result<Entered, Failure> {
    if let Value::BulkString(epoch) = value {
        let epoch = std::str::from_utf8(epoch).ok().and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(|| strange("enter"))?;
        return Ok(Entered::Held(Grant { epoch, ttl: claim.ttl, waiting: 0 }));
    }
    let numbers = numbers(value).ok_or_else(|| strange("enter"))?;
    Ok(match *numbers {
        [1, epoch, ttl, waiting] => Entered::Held(grant(epoch, ttl, waiting)),
        [2, ahead, lapse_in] => Entered::Waiting(place(ahead, lapse_in)),
        [3] => Entered::Busy,
        [4, -1] => Entered::Refused(Refusal::Capacity(Capacity::Unbounded)),
        [4, of] => Entered::Refused(Refusal::Capacity(Capacity::Of(small(of)))),
        [5, share, n, of] => {
            let share = match u8::try_from(share) {
                Ok(b'x') => Share::Exclusive,
                Ok(b's') => Share::Shared,
                _ => Share::Permits { n: small(n), of: small(of) },
            };
            Entered::Refused(Refusal::Upgrade(share))
        }
        [9] => {
            return Err(Failure::denied(
                "something else is kept under the key of this lock, or it is used with scripting=off elsewhere: agree on one, or use another ?prefix= in the URL",
            ));
        }
        _ => return Err(strange("enter")),
    })
}

/// The reply to `renew` of so many claims: how each stands, and the server's time.
pub(super) fn standings(value: &Value, count: usize) -> Result<(Vec<Standing>, u64), Failure> {
    let numbers = numbers(value).filter(|n| n.len() == 4 * count + 1).ok_or_else(|| strange("renew"))?;
    let standing = |four: &[i64]| match *four {
        [1, epoch, ttl, waiting] => Standing::Held(grant(epoch, ttl, waiting)),
        [2, ahead, lapse_in, _] => Standing::Waiting(place(ahead, lapse_in)),
        _ => Standing::Gone,
    };
    let standings = numbers.chunks_exact(4).map(standing).collect();
    Ok((standings, natural(numbers[4 * count])))
}

/// The reply to `look`: nothing if the lock is idle.
pub(super) fn view(name: &Name, value: &Value) -> Result<Option<LockView>, Failure> {
    let bad = || strange("look");
    let Value::Array(values) = value else { return Err(bad()) };
    let [Value::Int(now), Value::Int(epoch), Value::Int(_), Value::Int(_), claims @ ..] = &**values else {
        return if values.is_empty() { Ok(None) } else { Err(bad()) };
    };
    let now = natural(*now);
    let mut view = LockView::new(name.clone(), None, natural(*epoch));
    for pair in claims.chunks_exact(2) {
        let [Value::BulkString(id), Value::BulkString(record)] = pair else { continue };
        let (Ok(id), Ok(record)) = (std::str::from_utf8(id), std::str::from_utf8(record)) else { continue };
        let (capacity, seen) = claim_view(name, id, record, now).ok_or_else(bad)?;
        let Some(seen) = seen else { continue };
        view.capacity = view.capacity.or(capacity);
        if seen.epoch.is_some() { view.holders.push(seen) } else { view.waiters.push(seen) }
    }
    view.holders.sort_by_key(|holder| (holder.epoch, std::cmp::Reverse(holder.age)));
    let idle = view.holders.is_empty() && view.waiters.is_empty();
    Ok((!idle).then_some(view))
}

/// A record as people see it, and what it says of the capacity. No view: its lease is over.
fn claim_view(
    name: &Name,
    id: &str,
    record: &str,
    now: u64,
) -> Option<(Option<Capacity>, Option<ClaimView>)> {
    let number = |from: usize, to: usize| record.get(from..to)?.parse::<u64>().ok();
    let (renewed, ttl, since) = (number(0, 16)?, number(16, 32)?, number(32, 48)?);
    let lapses = renewed + ttl;
    let (hold, epoch, held_since) = (number(48, 49)?, number(49, 65)?, number(65, 81)?);
    let (kind, detached) = (record.get(81..82)?, record.get(82..83)? == "1");
    let mut lines = record.get(83..)?.splitn(3, '\n');
    let (n, of) = lines.next()?.split_once(',')?;
    let (owner, label) = (lines.next()?, lines.next()?);
    let share = match kind {
        "x" => Share::Exclusive,
        "s" => Share::Shared,
        _ => Share::Permits { n: n.parse().ok()?, of: of.parse().ok()? },
    };
    let owner = if owner.is_empty() { None } else { Some(Owner::new(owner).ok()?) };
    let (id, ttl) = (claim_id(id)?, Duration::from_micros(ttl));
    let claim = Claim { id, name: name.clone(), share, owner, ttl, label: label.into(), detached };
    let since = if hold > 0 { held_since } else { since };
    let age = Duration::from_micros(now.saturating_sub(since));
    let seen = (lapses > now).then(|| {
        ClaimView::new(&claim, (hold > 0).then_some(epoch), age, Duration::from_micros(lapses - now))
    });
    Some((share.capacity(), seen))
}

fn claim_id(hex: &str) -> Option<ClaimId> {
    (hex.len() == 32).then(|| u128::from_str_radix(hex, 16).ok().map(ClaimId::from_u128))?
}

/// What a message in an inbox says; nothing if it is not one of ours.
pub(super) fn news(space: &Space, message: &[u8]) -> Option<News> {
    let text = std::str::from_utf8(message).ok()?;
    let (text, key) = text.rsplit_once('\n')?;
    let (kind, id, rest) = (text.get(..1)?, claim_id(text.get(1..33)?)?, text.get(33..)?);
    let what = match kind {
        "G" => What::Granted(Grant {
            epoch: rest.get(..16)?.parse().ok()?,
            ttl: Duration::from_micros(rest.get(16..32)?.parse().ok()?),
            waiting: rest.get(32..)?.parse().ok()?,
        }),
        "E" => What::Evicted(rest.into()),
        _ => return None,
    };
    Some(News { name: space.name(key)?, id, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_names_apart_and_give_them_back() {
        let space = Space::new("tidelock:");
        for name in ["a", "{a}", "}", "{", "%7D", "a}b{c", "🔒 x", "tidelock:{a}"] {
            let name = Name::new(name).unwrap();
            let key = space.key(&name);
            assert_eq!(key.matches(['{', '}']).count(), 2, "{key}");
            assert_eq!(space.name(&key), Some(name));
        }
        assert_eq!(space.name("other:{a}"), None);
        assert_eq!(Space::new("a*[b]").pattern(), "a\\*\\[b\\]{*}");
    }

    #[test]
    fn messages_of_others_are_no_news() {
        let space = Space::new("t:");
        for bad in ["", "G", "hello\nt:{a}", "Gzz\nt:{a}", "G00000000000000000000000000000001\nt:{a}"] {
            assert_eq!(news(&space, bad.as_bytes()), None, "{bad}");
        }
        let id = ClaimId::from_u128(1);
        let heard = news(&space, format!("E{id}no reason\nt:{{a}}").as_bytes()).unwrap();
        assert_eq!((heard.id, heard.what), (id, What::Evicted("no reason".into())));
    }
}
