//! Keys and values.
//!
//! | key | what |
//! |---|---|
//! | `<prefix><name>/<client>-<number>` | an exclusive claim; clients of other makes have the hexadecimal id of their lease there |
//! | `<prefix><name>/~r/<client>-<number>` | a reader |
//! | `<prefix><name>/~<N>/<client>-<number>` | some of N permits |
//! | `<prefix>%evicted/<claim id>` | why a claim was put out of line, until its client has read it |
//! | `<prefix>%left/<claim id>` | a claim that must not enter any more: its question may still be under way |
//! | `<prefix>%epoch` | the base of epochs |
//!
//! Which claim it is stands in the value. A client uses its keys again: etcd remembers each key that was ever
//! deleted until it is compacted, and reading a line walks over them.
//!
//! The claims of one capacity have a range of their own, so that a transaction can ask whether there is one of
//! another. Within a name `/` is written as `%2F` and `%` as `%25`: no lock has keys within the range of another.

use std::{sync::Arc, time::Duration};

use super::proto::KeyValue;
use crate::{
    backend::{Capacity, Claim, ClaimId, Share},
    clock::wall_micros,
    model::escape::unescape,
    model::name::Name,
    model::owner::Owner,
};

/// What values of this form begin with.
const VERSION: &str = "tl1";

/// From a key up to this.
pub(super) type Range = (Vec<u8>, Vec<u8>);

/// The keys of an installation.
#[derive(Debug)]
pub(super) struct Space {
    prefix: String,
}

impl Space {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// What the keys of a lock begin with, without the slash at the end.
    fn line(&self, name: &Name) -> String {
        let mut line = String::with_capacity(self.prefix.len() + name.as_str().len() + 40);
        line.push_str(&self.prefix);
        for c in name.as_str().chars() {
            match c {
                '/' => line.push_str("%2F"),
                '%' => line.push_str("%25"),
                c => line.push(c),
            }
        }
        line
    }

    /// All keys of a lock.
    pub(super) fn range(&self, name: &Name) -> Range {
        let line = self.line(name);
        // The character after the slash.
        (format!("{line}/").into_bytes(), format!("{line}0").into_bytes())
    }

    /// The keys of a lock on both sides of those of one capacity.
    pub(super) fn others(&self, name: &Name, capacity: Capacity) -> [Range; 2] {
        let (line, own) = (self.line(name), shelf(capacity));
        let bytes = |end: String| end.into_bytes();
        [
            (bytes(format!("{line}/")), bytes(format!("{line}/~{own}/"))),
            (bytes(format!("{line}/~{own}0")), bytes(format!("{line}0"))),
        ]
    }

    /// The keys of sharing claims of other capacities.
    pub(super) fn other_capacities(&self, name: &Name, capacity: Capacity) -> [Range; 2] {
        let [(_, before), (after, end)] = self.others(name, capacity);
        [(format!("{}/~", self.line(name)).into_bytes(), before), (after, end)]
    }

    /// All keys of all locks.
    pub(super) fn all(&self) -> Range {
        let mut end = self.prefix.clone().into_bytes();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return (self.prefix.clone().into_bytes(), end);
            }
        }
        // Everything from the first key on.
        (vec![0], vec![0])
    }

    /// The key of a claim: the one of its client with this number.
    pub(super) fn key(&self, claim: &Claim, number: u32) -> Vec<u8> {
        let (line, client) = (self.line(&claim.name), claim.id.client().get());
        match claim.share.capacity() {
            None => format!("{line}/{client:016x}-{number}"),
            Some(capacity) => format!("{line}/~{}/{client:016x}-{number}", shelf(capacity)),
        }
        .into_bytes()
    }

    /// Whether this is the key of a claim. Mostly it is of another client, which is seen at its end.
    pub(super) fn is_key(&self, key: &[u8], claim: &Claim, number: u32) -> bool {
        let end = key.rsplit(|byte| *byte == b'-').next();
        end == Some(number.to_string().as_bytes()) && key == self.key(claim, number)
    }

    /// Where the reason is for which a claim was put out of line.
    pub(super) fn reason(&self, id: ClaimId) -> Vec<u8> {
        format!("{}%evicted/{id}", self.prefix).into_bytes()
    }

    /// The claim for whose eviction a key has the reason.
    pub(super) fn evicted(&self, key: &[u8]) -> Option<ClaimId> {
        let text = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        claim_id(text.strip_prefix("%evicted/")?)
    }

    /// What says that a claim was left.
    pub(super) fn left(&self, id: ClaimId) -> Vec<u8> {
        format!("{}%left/{id}", self.prefix).into_bytes()
    }

    /// Where the base of epochs is.
    pub(super) fn epoch(&self) -> Vec<u8> {
        format!("{}%epoch", self.prefix).into_bytes()
    }

    /// A key that is never written.
    pub(super) fn nothing(&self) -> Vec<u8> {
        format!("{}%nothing", self.prefix).into_bytes()
    }

    /// The name of the lock that a key belongs to, and what follows it.
    pub(super) fn name<'a>(&self, key: &'a [u8]) -> Option<(Name, &'a str)> {
        let text = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (line, rest) = text.split_once('/')?;
        let name = unescape(line)?;
        Some((Name::new(&name).ok()?, rest))
    }

    /// The claims of a line, in order of arrival.
    pub(super) fn contenders(&self, name: &Name, kvs: Vec<KeyValue>) -> Vec<Contender> {
        let skipped = self.line(name).len() + 1;
        let mut line: Vec<_> = kvs.into_iter().filter_map(|kv| contender(kv, skipped)).collect();
        line.sort_by_key(|claim| claim.created);
        line
    }
}

/// A claim by its text.
fn claim_id(text: &str) -> Option<ClaimId> {
    let id = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
    id.map(ClaimId::from_u128)
}

/// The directory of the claims of one capacity.
fn shelf(capacity: Capacity) -> String {
    match capacity {
        Capacity::Unbounded => "r".to_owned(),
        Capacity::Of(permits) => permits.to_string(),
    }
}

/// A claim in line, as its key and value say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) key: Vec<u8>,
    pub(super) id: ClaimId,
    /// The revision at which it came.
    pub(super) created: i64,
    pub(super) lease: i64,
    pub(super) share: Share,
    pub(super) owner: Option<Owner>,
    pub(super) ttl: Duration,
    pub(super) label: Arc<str>,
    /// Whether the lease belongs to this claim alone.
    pub(super) own_lease: bool,
    /// When it came by its client's wall clock in µs: for people.
    pub(super) since: u64,
    /// On which hold of the same owner it rides.
    pub(super) rides: Option<i64>,
    /// What is added to the revision of its hold; 0 for other clients of etcd, and for earlier versions of this one.
    pub(super) base: i64,
}

impl Contender {
    /// A claim as it would be, behind all others.
    pub(super) fn last(claim: &Claim) -> Self {
        Self {
            key: Vec::new(),
            id: claim.id,
            created: i64::MAX,
            lease: 0,
            share: claim.share,
            owner: claim.owner.clone(),
            ttl: claim.ttl,
            label: Arc::clone(&claim.label),
            own_lease: has_own_lease(claim),
            since: 0,
            rides: None,
            base: 0,
        }
    }

    /// As people see it.
    pub(super) fn claim(&self, name: &Name) -> Claim {
        Claim {
            id: self.id,
            name: name.clone(),
            share: self.share,
            owner: self.owner.clone(),
            ttl: self.ttl,
            label: Arc::clone(&self.label),
            detached: false,
            auto_renew: !self.own_lease,
            writes: false,
        }
    }

    /// Of what hold it is a part, or would be: the revision at which that came.
    pub(super) fn hold(&self) -> i64 {
        self.rides.unwrap_or(self.created)
    }

    /// The epoch that it holds with, or would.
    pub(super) fn epoch(&self) -> i64 {
        self.base + self.hold()
    }
}

/// Whether a claim ends with a lease of its own: nobody renews it for as long as others are held, or it
/// outlives its client.
pub(super) fn has_own_lease(claim: &Claim) -> bool {
    claim.detached || !claim.auto_renew
}

/// What is written for a claim: with the base of the hold that it rides on, or else with its own.
pub(super) fn value(claim: &Claim, rides: Option<i64>, base: i64) -> Vec<u8> {
    let (n, of) = match claim.share {
        Share::Permits { n, of } => (n, of),
        Share::Exclusive | Share::Shared => (0, 0),
    };
    let owner = claim.owner.as_ref().map_or("", |owner| owner.as_str());
    let (ttl, own_lease) = (claim.ttl.as_millis(), u8::from(has_own_lease(claim)));
    let (since, rides) = (wall_micros(), rides.unwrap_or(0));
    let id = claim.id;
    format!("{VERSION} {id} {n} {of} {ttl} {own_lease} {rides} {since} {base}\n{owner}\n{}", claim.label)
        .into_bytes()
}

/// The claim that a key is; nothing if it is none. `skipped` bytes of it are the lock's.
fn contender(kv: KeyValue, skipped: usize) -> Option<Contender> {
    let rest = std::str::from_utf8(kv.key.get(skipped..)?).ok()?;
    let (shelf, last) = match rest.strip_prefix('~').and_then(|rest| rest.split_once('/')) {
        Some((shelf, last)) => (Some(shelf), last),
        None => (None, rest),
    };
    if last.contains('/') {
        // Another client's lock whose name begins like this one's.
        return None;
    }
    let text = std::str::from_utf8(&kv.value).ok();
    let ours = text.and_then(|text| read(text, shelf)).unwrap_or_else(|| Fields {
        // Known by its lease.
        id: ClaimId::from_u128(u128::from(kv.lease as u64)),
        share: Share::Exclusive,
        owner: None,
        ttl: Duration::ZERO,
        label: format!("another client of etcd (lease {:x})", kv.lease).into(),
        own_lease: false,
        since: wall_micros(),
        rides: None,
        base: 0,
    });
    let Fields { id, share, owner, ttl, label, own_lease, since, rides, base } = ours;
    let (created, lease) = (kv.create_revision, kv.lease);
    Some(Contender {
        key: kv.key,
        id,
        created,
        lease,
        share,
        owner,
        ttl,
        label,
        own_lease,
        since,
        rides,
        base,
    })
}

struct Fields {
    id: ClaimId,
    share: Share,
    owner: Option<Owner>,
    ttl: Duration,
    label: Arc<str>,
    own_lease: bool,
    since: u64,
    rides: Option<i64>,
    base: i64,
}

/// What a value of ours says.
fn read(text: &str, shelf: Option<&str>) -> Option<Fields> {
    let mut lines = text.splitn(3, '\n');
    let mut head = lines.next()?.split(' ');
    if head.next()? != VERSION {
        return None;
    }
    let id = claim_id(head.next()?)?;
    let mut number = || head.next()?.parse::<u64>().ok();
    let (n, of, ttl, own_lease) = (number()?, number()?, number()?, number()? == 1);
    let (rides, since) = (number()?, number()?);
    // Earlier versions wrote none.
    let base = number().and_then(|base| i64::try_from(base).ok()).unwrap_or(0);
    let share = match shelf {
        None => Share::Exclusive,
        Some("r") => Share::Shared,
        Some(_) => Share::Permits { n: u32::try_from(n).ok()?, of: u32::try_from(of).ok()? },
    };
    let owner = lines.next().filter(|owner| !owner.is_empty());
    let owner = owner.map(|owner| Owner::new(owner).ok()).map_or(Some(None), |owner| owner.map(Some))?;
    let label = lines.next()?.into();
    let rides = i64::try_from(rides).ok().filter(|rides| *rides > 0);
    Some(Fields { id, share, owner, ttl: Duration::from_millis(ttl), label, own_lease, since, rides, base })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ClientId;

    fn claim(name: &str, share: Share) -> Claim {
        Claim {
            id: ClaimId::new(ClientId::from_u64(7), 9),
            name: Name::new(name).unwrap(),
            share,
            owner: Some(Owner::new("ann 🔒").unwrap()),
            ttl: Duration::from_millis(1_500),
            label: "one, two".into(),
            detached: true,
            auto_renew: true,
            writes: false,
        }
    }

    fn kv(key: Vec<u8>, value: Vec<u8>) -> KeyValue {
        KeyValue { key, value, create_revision: 5, lease: 0x1f, ..KeyValue::default() }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written_and_its_name_found_in_its_key() {
        let space = Space::new("t/");
        for (name, share) in [
            ("a", Share::Exclusive),
            ("a/b", Share::Shared),
            ("%2F /~5/", Share::Permits { n: 2, of: 5 }),
            ("🔒", Share::Permits { n: u32::MAX, of: u32::MAX }),
        ] {
            let claim = claim(name, share);
            let key = space.key(&claim, 3);
            assert_eq!(space.name(&key).unwrap().0, claim.name);
            let (from, to) = space.range(&claim.name);
            assert!(from <= key && key < to);
            let read =
                space.contenders(&claim.name, vec![kv(key, value(&claim, Some(3), 40))]).pop().unwrap();
            assert_eq!((read.id, read.share, read.owner.as_ref()), (claim.id, share, claim.owner.as_ref()));
            assert_eq!((read.ttl, &read.label, read.own_lease), (claim.ttl, &claim.label, true));
            assert_eq!((read.created, read.hold(), read.epoch(), read.lease), (5, 3, 43, 0x1f));
        }
    }

    #[test]
    fn the_reason_of_an_eviction_belongs_to_its_claim_and_to_no_lock() {
        let (space, id) = (Space::new("t/"), ClaimId::new(ClientId::from_u64(7), 9));
        let key = space.reason(id);
        assert_eq!((space.evicted(&key), space.name(&key)), (Some(id), None));
        assert_eq!(space.evicted(&space.key(&claim("a", Share::Exclusive), 0)), None);
        assert_eq!(space.evicted(b"t/%evicted/7"), None);
    }

    #[test]
    fn no_lock_has_keys_within_the_range_of_another() {
        let space = Space::new("");
        let names = ["a", "a/", "a/b", "a0", "a%2Fb", "a%", "/", "//", "~r", "a/~r"];
        for one in names {
            let (from, to) = space.range(&Name::new(one).unwrap());
            for other in names.into_iter().filter(|other| *other != one) {
                for share in [Share::Exclusive, Share::Shared, Share::Permits { n: 1, of: 5 }] {
                    let key = space.key(&claim(other, share), 0);
                    assert!(key < from || key >= to, "{other} in {one}");
                }
            }
        }
    }

    #[test]
    fn claims_of_other_makes_are_exclusive_and_their_nested_locks_are_none() {
        let (space, name) = (Space::new("t/"), Name::new("a").unwrap());
        let line = space.contenders(
            &name,
            vec![kv(b"t/a/1f".to_vec(), Vec::new()), kv(b"t/a/b/1f".to_vec(), Vec::new())],
        );
        assert_eq!(line.len(), 1);
        assert_eq!((line[0].id.get(), line[0].share), (0x1f, Share::Exclusive));
        // Nor does what somebody else wrote there make it less.
        let odd = space.contenders(&name, vec![kv(b"t/a/x".to_vec(), b"tl1 odd".to_vec())]);
        assert_eq!(odd[0].share, Share::Exclusive);
    }

    #[test]
    fn the_claims_of_other_capacities_are_on_both_sides_of_ones_own() {
        let (space, name) = (Space::new("t/"), Name::new("a").unwrap());
        let permits = |of| space.key(&claim("a", Share::Permits { n: 1, of }), 0);
        let keys =
            [permits(5), permits(50), permits(6), permits(4), space.key(&claim("a", Share::Shared), 0)];
        let ranges = space.other_capacities(&name, Capacity::Of(5));
        let is_other = |key: &Vec<u8>| ranges.iter().any(|(from, to)| from <= key && key < to);
        assert_eq!(keys.iter().map(is_other).collect::<Vec<_>>(), [false, true, true, true, true]);
        let exclusive = space.key(&claim("a", Share::Exclusive), 0);
        assert!(!is_other(&exclusive));
        assert!(
            space
                .others(&name, Capacity::Of(5))
                .iter()
                .any(|(from, to)| *from <= exclusive && exclusive < *to)
        );
        assert_eq!(Space::new("").all(), (vec![0], vec![0]));
        assert_eq!(Space::new("t/").all(), (b"t/".to_vec(), b"t0".to_vec()));
    }
}
