//! Keys, arguments, replies and pushes. The records themselves are in `lines`.

mod lines;

use std::{fmt, sync::Arc, time::Duration};

use redis::{RedisWrite, ToRedisArgs, Value};

use self::lines::digits;
pub(super) use self::lines::{is_idle, line_at, nobody, read_line, store_time, view, write_line};
use super::{
    forms::{Reader, unreadable},
    layout::{CLAIM, EVICTED, GRANTED, news, share},
};
use crate::{
    backend::{
        Capacity, Claim, ClaimId, ClientId, Entered, Failure, Grant, Left, News, Refusal, Share, Standing,
        What,
    },
    backends::shared::{
        answers::{grant, place},
        units::{count, micros, natural},
    },
    model::escape::unescape,
    model::line::Effect,
    model::name::Name,
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

    /// The key of a lock. The name is a hash tag, so that the key and the channels of clients can be in
    /// one slot; what would end the tag is encoded.
    pub(super) fn key(&self, name: &Name) -> String {
        let mut key = String::with_capacity(self.prefix.len() + name.as_str().len() + 2);
        key.push_str(&self.prefix);
        key.push('{');
        push_encoded(&mut key, name);
        key.push('}');
        key
    }

    /// The key of a segment: a slot for each.
    #[cfg(feature = "stock")]
    pub(super) fn segment(&self, item: &Name, number: u32) -> String {
        let mut key = format!("{}stock:{{{number}/", self.prefix);
        push_encoded(&mut key, item);
        key.push('}');
        key
    }

    /// The key of the plan of an item.
    #[cfg(feature = "stock")]
    pub(super) fn plan(&self, item: &Name) -> String {
        let mut key = format!("{}plan:{{", self.prefix);
        push_encoded(&mut key, item);
        key.push('}');
        key
    }

    /// The key of what clients of servers that vote write down about a server.
    pub(super) fn record(&self) -> String {
        format!("{}server", self.prefix)
    }

    /// The name of the lock with this key.
    pub(super) fn name(&self, key: &str) -> Option<Name> {
        let name = key.strip_prefix(&*self.prefix)?.strip_prefix('{')?.strip_suffix('}')?;
        Name::new(&unescape(name)?).ok()
    }

    /// How all keys of locks begin.
    pub(super) fn beginning(&self) -> String {
        format!("{}{{", self.prefix)
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

    /// The channel on which those who watch all locks hear of evictions, except in a cluster.
    pub(super) fn evictions(&self) -> String {
        format!("{}in:evicted", self.prefix)
    }

    /// The channel on which a client hears of its claims.
    pub(super) fn inbox(&self, client: ClientId, shard: &str) -> String {
        format!("{}in:{:016x}{shard}", self.prefix, client.get())
    }
}

/// A name as part of a hash tag: what would end the tag is encoded.
fn push_encoded(key: &mut String, name: &Name) {
    for c in name.as_str().chars() {
        match c {
            '{' => key.push_str("%7B"),
            '}' => key.push_str("%7D"),
            '%' => key.push_str("%25"),
            c => key.push(c),
        }
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
            Share::Exclusive => write!(f, "{}{detached},", share::EXCLUSIVE)?,
            Share::Shared => write!(f, "{}{detached},", share::SHARED)?,
            Share::Permits { n, of } => write!(f, "{}{detached}{n},{of}", share::PERMITS)?,
        }
        f.write_str("\n")?;
        f.write_str(self.0.owner.as_ref().map_or("", |owner| owner.as_str()))?;
        f.write_str("\n")?;
        f.write_str(&self.0.label)
    }
}

pub(super) fn strange(what: &str) -> Failure {
    Failure::unknown(format!("the server's answer to {what} is not one of this version's scripts"))
}

/// Whether a script answered that it cannot read the line, and what it found.
fn found(value: &Value) -> Option<&[u8]> {
    match value.as_sequence()? {
        [Value::Int(9), Value::BulkString(found)] => Some(found),
        _ => None,
    }
}

pub(super) fn numbers(value: &Value) -> Option<Vec<i64>> {
    let Value::Array(values) = value else { return None };
    values.iter().map(|value| if let Value::Int(number) = value { Some(*number) } else { None }).collect()
}

/// The reply to `enter`.
pub(super) fn entered(claim: &Claim, value: &Value) -> Result<Entered, Failure> {
    if let Value::BulkString(epoch) = value {
        let epoch = std::str::from_utf8(epoch).ok().and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(|| strange("enter"))?;
        return Ok(Entered::Held(Grant::new(epoch, claim.ttl, 0)));
    }
    if let Some(found) = found(value) {
        return Err(unreadable(found, Reader::Script));
    }
    let numbers = numbers(value).ok_or_else(|| strange("enter"))?;
    Ok(match *numbers {
        [1, epoch, ttl, waiting] => Entered::Held(grant(epoch, ttl, waiting)),
        [2, ahead, lapse_in] => Entered::Waiting(place(ahead, lapse_in)),
        [3] => Entered::Busy,
        [4, -1] => Entered::Refused(Refusal::Capacity(Capacity::Unbounded)),
        [4, of] => Entered::Refused(Refusal::Capacity(Capacity::Of(count(of)))),
        [5, share, n, of] => {
            let letter = |code: &str| i64::from(code.as_bytes()[0]);
            Entered::Refused(Refusal::Upgrade(if share == letter(share::EXCLUSIVE) {
                Share::Exclusive
            } else if share == letter(share::SHARED) {
                Share::Shared
            } else {
                Share::Permits { n: count(n), of: count(of) }
            }))
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
        // A client of another version may have written the line anew, with this claim in it.
        [9, ..] => Standing::Unknown,
        _ => Standing::Gone,
    };
    let standings = numbers.chunks_exact(4).map(standing).collect();
    Ok((standings, natural(numbers[4 * count])))
}

/// The reply to `leave`: whether the claim was in line.
pub(super) fn left(value: &Value) -> Result<Left, Failure> {
    match value {
        Value::Int(was_there) => Ok(Left::from_was_there(*was_there == 1)),
        value => {
            Err(found(value).map_or_else(|| strange("leave"), |found| unreadable(found, Reader::Script)))
        }
    }
}

/// The reply to `raise`: the epoch of the claim, if it holds.
pub(super) fn raised(value: &Value) -> Result<Option<u64>, Failure> {
    if let Some(found) = found(value) {
        return Err(unreadable(found, Reader::Script));
    }
    match value {
        Value::Nil | Value::Boolean(false) => Ok(None),
        epoch => {
            let epoch = text(epoch).and_then(|epoch| epoch.parse().ok());
            epoch.map(Some).ok_or_else(|| strange("raise"))
        }
    }
}

/// The reply to `look`: the server's time and what is kept at the key; nothing if the lock is idle.
pub(super) fn seen(value: &Value) -> Result<Option<(u64, &[u8])>, Failure> {
    match value.as_sequence() {
        Some([]) => Ok(None),
        Some([Value::Int(now), Value::BulkString(head)]) => Ok(Some((natural(*now), head))),
        _ => Err(strange("look")),
    }
}

/// The text that a value is, if it is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    if let Value::BulkString(bytes) = value { std::str::from_utf8(bytes).ok() } else { None }
}

fn claim_id(hex: &str) -> Option<ClaimId> {
    (hex.len() == CLAIM.id.width).then(|| u128::from_str_radix(hex, 16).ok().map(ClaimId::from_u128))?
}

/// What a message in an inbox says; nothing if it is not one of ours.
pub(super) fn news(space: &Space, message: &[u8]) -> Option<News> {
    let text = std::str::from_utf8(message).ok()?;
    let (text, key) = text.rsplit_once('\n')?;
    let what = match GRANTED.letter.of(text)? {
        news::GRANTED => What::Granted(Grant::new(
            GRANTED.epoch.number(text)?,
            Duration::from_micros(GRANTED.ttl.number(text)?),
            GRANTED.text.number(text)?,
        )),
        news::EVICTED => What::Evicted(EVICTED.text.of(text)?.into()),
        _ => return None,
    };
    let id = claim_id(GRANTED.id.of(text)?)?;
    Some(News { name: space.name(key)?, id, what })
}

/// The message to an inbox that says what [`news`] reads.
pub(super) fn message(key: &str, effect: &Effect) -> Option<String> {
    let id = effect.id;
    match &effect.what {
        What::Granted(Grant { epoch, ttl, waiting, .. }) => {
            let (epoch, ttl) = (digits(GRANTED.epoch, *epoch), digits(GRANTED.ttl, micros(*ttl)));
            Some(format!("{}{id}{epoch}{ttl}{waiting}\n{key}", news::GRANTED))
        }
        What::Evicted(reason) => Some(format!("{}{id}{reason}\n{key}", news::EVICTED)),
        What::Ask => None,
    }
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

    #[test]
    fn messages_are_those_of_earlier_releases() {
        let (space, id) = (Space::new("t:"), ClaimId::new(ClientId::from_u64(1), 1));
        let grant = Grant::new(7_000_000_000_000_005, Duration::from_secs(30), 1);
        for (name, what) in
            [("granted", What::Granted(grant)), ("evicted", What::Evicted("no reason".into()))]
        {
            let (text, effect) = (lines::golden(name), Effect { id, what: what.clone() });
            assert_eq!(message("t:{a}", &effect).unwrap(), text);
            assert_eq!(news(&space, text.as_bytes()).unwrap().what, what);
        }
    }

    #[test]
    fn what_is_told_is_what_is_heard() {
        let (space, name) = (Space::new("t:"), Name::new("a{b").unwrap());
        let grant = Grant::new(1_700_000_000_000_007, Duration::from_micros(123_456), 12);
        for what in [What::Granted(grant), What::Evicted("two\nlines".into())] {
            let effect = Effect { id: ClaimId::from_u128(7 << 100), what: what.clone() };
            let text = message(&space.key(&name), &effect).unwrap();
            let heard = news(&space, text.as_bytes()).unwrap();
            assert_eq!(heard, News { name: name.clone(), id: effect.id, what });
        }
    }
}
