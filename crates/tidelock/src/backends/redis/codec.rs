//! Keys, arguments, replies and pushes.

use std::{fmt, sync::Arc, time::Duration};

use redis::{RedisWrite, ToRedisArgs, Value};

use crate::{
    backend::{
        Capacity, Claim, ClaimId, ClientId, Entered, Failure, Grant, LockView, News, Place, Refusal, Share,
        Standing, What,
    },
    clock::Moment,
    line::{Effect, Line, Part, PartHold, StoreTime},
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
        let mut key = String::with_capacity(self.prefix.len() + name.as_str().len() + 2);
        key.push_str(&self.prefix);
        key.push('{');
        push_encoded(&mut key, name);
        key.push('}');
        key
    }

    /// The key of a segment: a slot for each.
    pub(super) fn segment(&self, item: &Name, number: u32) -> String {
        let mut key = format!("{}stock:{{{number}/", self.prefix);
        push_encoded(&mut key, item);
        key.push('}');
        key
    }

    /// The key of the plan of an item.
    pub(super) fn plan(&self, item: &Name) -> String {
        let mut key = format!("{}plan:{{", self.prefix);
        push_encoded(&mut key, item);
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

/// What is kept at the key of a lock is not for this client to read.
pub(super) fn foreign() -> Failure {
    Failure::denied(
        "something else is kept under the key of this lock, or some clients use it with scripting=off and others without: agree on one, or use another ?prefix= in the URL",
    )
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
        [9] => return Err(foreign()),
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

/// The reply to `raise`: the epoch of the claim, if it holds.
pub(super) fn raised(value: &Value) -> Result<Option<u64>, Failure> {
    match value {
        Value::Nil | Value::Boolean(false) => Ok(None),
        epoch => {
            let epoch = text(epoch).and_then(|epoch| epoch.parse().ok());
            epoch.map(Some).ok_or_else(|| strange("raise"))
        }
    }
}

/// The reply to `look`: nothing if the lock is idle.
pub(super) fn view(name: &Name, value: &Value) -> Result<Option<LockView>, Failure> {
    let bad = || strange("look");
    let Value::Array(values) = value else { return Err(bad()) };
    match &**values {
        [] => Ok(None),
        // A line of transactions, all of it.
        [Value::Int(now), head] => {
            let line = text(head).and_then(|head| read_line(name, head));
            Ok(line.and_then(|line| look(name, &line, store_time(natural(*now)))))
        }
        [Value::Int(now), Value::Int(epoch), claims @ ..] => {
            let pairs = claims.chunks_exact(2).filter_map(|pair| text(&pair[0]).zip(text(&pair[1])));
            let parts: Option<Vec<_>> = pairs.map(|(id, record)| part(name, id, record)).collect();
            let line = line_of_scripts(natural(*epoch), parts.ok_or_else(bad)?);
            Ok(look(name, &line, store_time(natural(*now))))
        }
        _ => Err(bad()),
    }
}

/// What people see of the keys of a lock: its head, and the hash of claims where scripts keep one.
pub(super) fn view_of_keys(name: &Name, head: &Value, claims: &Value, at: StoreTime) -> Option<LockView> {
    let head = text(head)?;
    let line = match head.get(..1)? {
        "S" => {
            let only = part(name, head.get(1..33)?, head.get(33..)?)?;
            line_of_scripts(0, vec![only])
        }
        "Q" => {
            let claims = head.split(SEPARATOR).skip(1);
            let parts = claims.map(|claim| part(name, claim.get(..32)?, claim.get(32..)?));
            let parts: Vec<_> = parts.collect::<Option<_>>()?;
            line_of_scripts(parts.first()?.hold?.epoch, parts)
        }
        "L" => {
            let epoch = head.get(1..)?.split(',').next()?.parse().ok()?;
            // How many claims owners have is kept there too, under what is no id.
            let pairs = claims.as_map_iter()?.filter_map(|(id, record)| text(id).zip(text(record)));
            let mut parts: Vec<_> = pairs.filter_map(|(id, record)| part(name, id, record)).collect();
            parts.sort_by_key(|part| part.since);
            line_of_scripts(epoch, parts)
        }
        _ => read_line(name, head)?,
    };
    look(name, &line, at)
}

/// The text that a value is, if it is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    if let Value::BulkString(bytes) = value { std::str::from_utf8(bytes).ok() } else { None }
}

/// The line of claims of which those that wait are in order.
fn line_of_scripts(epoch: u64, mut parts: Vec<Part>) -> Line {
    let order =
        |part: &Part| part.hold.map_or((true, 0, Moment::default()), |hold| (false, hold.epoch, hold.since));
    parts.sort_by_key(order);
    Line::from_parts(epoch, parts)
}

/// What people see of a line; nothing if it is idle.
fn look(name: &Name, line: &Line, at: StoreTime) -> Option<LockView> {
    // What sharing claims agreed on ends with the last of them that lives.
    let alive = line.parts().filter(|part| part.lapses > at.lease);
    let view = Line::from_parts(line.last_epoch(), alive).look(name, at);
    (!view.holders.is_empty() || !view.waiters.is_empty()).then_some(view)
}

/// The server's time as lines have it: leases run on it, too.
pub(super) fn store_time(micros: u64) -> StoreTime {
    StoreTime { lease: moment(micros), micros }
}

fn moment(micros: u64) -> Moment {
    Moment::from_nanos(micros.saturating_mul(1_000))
}

fn micros_of(moment: Moment) -> u64 {
    moment.as_nanos() / 1_000
}

/// What a record says, as scripts and transactions keep it.
fn part(name: &Name, id: &str, record: &str) -> Option<Part> {
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
    let claim = Claim {
        id,
        name: name.clone(),
        share,
        owner,
        ttl,
        label: label.into(),
        detached,
        auto_renew: true,
        writes: false,
    };
    let hold = (hold > 0).then(|| PartHold { epoch, since: moment(held_since), rides: hold == 2 });
    Some(Part { claim: Arc::new(claim), since: moment(since), lapses: moment(lapses), hold })
}

fn record(part: &Part) -> String {
    let (hold, epoch, held_since) = match part.hold {
        None => (0, 0, 0),
        Some(hold) => (if hold.rides { 2 } else { 1 }, hold.epoch, micros_of(hold.since)),
    };
    let (ttl, since) = (micros(part.claim.ttl), micros_of(part.since));
    let renewed = micros_of(part.lapses).saturating_sub(ttl);
    let tail = Tail(&part.claim);
    format!("{renewed:016}{ttl:016}{since:016}{hold}{epoch:016}{held_since:016}{tail}")
}

/// Between the claims of a line: no owner and no label has it.
const SEPARATOR: char = '\u{1e}';

/// A line as transactions keep it: `T<epoch>`, then each claim with its id and record. One that is
/// empty is `I<epoch>`, which scripts know as well: an idle lock may be used by either.
pub(super) fn write_line(line: &Line) -> String {
    let mut text = format!("{}{:016}", if line.is_empty() { 'I' } else { 'T' }, line.last_epoch());
    for part in line.parts() {
        text.push(SEPARATOR);
        text.push_str(&part.claim.id.to_string());
        text.push_str(&record(&part));
    }
    text
}

/// The line that transactions or scripts left at a key; nothing if it is in use by scripts, or not a line.
pub(super) fn read_line(name: &Name, text: &str) -> Option<Line> {
    let mut claims = text.split(SEPARATOR);
    let head = claims.next()?;
    let epoch = head.strip_prefix(['T', 'I'])?.parse().ok()?;
    let parts = claims.map(|claim| part(name, claim.get(..32)?, claim.get(32..)?));
    Some(Line::from_parts(epoch, parts.collect::<Option<Vec<_>>>()?))
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

/// The message to an inbox that says what [`news`] reads.
pub(super) fn message(key: &str, effect: &Effect) -> Option<String> {
    let id = effect.id;
    match &effect.what {
        What::Granted(Grant { epoch, ttl, waiting }) => {
            Some(format!("G{id}{epoch:016}{:016}{waiting}\n{key}", micros(*ttl)))
        }
        What::Evicted(reason) => Some(format!("E{id}{reason}\n{key}")),
        What::Ask => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Ask;

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
    fn what_is_told_is_what_is_heard() {
        let (space, name) = (Space::new("t:"), Name::new("a{b").unwrap());
        let grant = Grant { epoch: 1_700_000_000_000_007, ttl: Duration::from_micros(123_456), waiting: 12 };
        for what in [What::Granted(grant), What::Evicted("two\nlines".into())] {
            let effect = Effect { id: ClaimId::from_u128(7 << 100), what: what.clone() };
            let text = message(&space.key(&name), &effect).unwrap();
            let heard = news(&space, text.as_bytes()).unwrap();
            assert_eq!(heard, News { name: name.clone(), id: effect.id, what });
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let name = Name::new("a").unwrap();
        let (mut line, mut effects) = (Line::default(), Vec::new());
        let shares = [
            Share::Permits { n: 2, of: 3 },
            Share::Permits { n: 1, of: 3 },
            Share::Exclusive,
            Share::Exclusive,
        ];
        for (serial, share) in (1..).zip(shares) {
            let claim = Claim {
                id: ClaimId::new(ClientId::from_u64(1), serial),
                name: name.clone(),
                share,
                owner: (serial < 3).then(|| Owner::new("ann").unwrap()),
                ttl: Duration::from_secs(30),
                label: "one, two 🔒".into(),
                detached: serial == 2,
                writes: false,
                auto_renew: true,
            };
            line.enter(&claim.into(), Ask::Queue, store_time(1_700_000_000_000_000 + serial), &mut effects);
        }
        let again = read_line(&name, &write_line(&line)).unwrap();
        assert_eq!((again.last_epoch(), again.holders()), (line.last_epoch(), 2));
        assert!(again.parts().eq(line.parts()) && line.len() == 4);
        assert!(
            read_line(&name, "I0000000000000017")
                .is_some_and(|idle| idle.last_epoch() == 17 && idle.is_empty())
        );
        for other in ["", "T", "S1", "L1,2", "hello", "T1\u{1e}x"] {
            assert!(read_line(&name, other).is_none(), "{other}");
        }
    }
}
