//! The names of nodes in a line: whose they are, what they ask for, and where they stand.
//!
//! | call | `dialect=curator` | `dialect=kazoo` |
//! |---|---|---|
//! | mutex | `_c_<id>-lock-<number>` | `<id>__lock__<number>` |
//! | write | `_c_<id>-__WRIT__<number>` | `<id>__lock__<number>` |
//! | read | `_c_<id>-__READ__<number>` | `<id>__rlock__<number>` |
//! | permits | `_c_<id>-2of5-lock-<number>` | `<id>-2of5__lock__<number>` |
//!
//! The number is the server's. `<id>` is the id of the claim, as a UUID or as 32 digits. Before what both
//! programs look at there may be marks: `-o<owner>`, `-d<ms>` for a hold that outlives its client and its
//! lease, and `-e<epoch>` for a node that took over the place of another: it has that one's number.

use std::{fmt::Write as _, time::Duration};

use super::paths::escape;
use crate::{
    backend::{Claim, ClaimId, Share},
    model::escape::unescape,
};

/// Whose node names are written. All of them are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Those of Curator, for Java.
    Curator,
    /// Those of Kazoo, for Python.
    Kazoo,
    /// Two nodes for each claim.
    Both,
}

const ENDINGS: [(&str, bool); 5] =
    [("-lock-", false), ("-__READ__", true), ("-__WRIT__", false), ("__lock__", false), ("__rlock__", true)];

/// Somebody in line, as the name of its node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    /// The name of the node.
    pub(crate) node: String,
    /// Where it stands.
    pub(crate) number: i32,
    /// Its id, if it has one of the usual form.
    pub(crate) id: Option<ClaimId>,
    pub(crate) share: Share,
    pub(crate) owner: Option<String>,
    /// For a node that took over a place: the epoch of that place.
    pub(crate) epoch: Option<u64>,
    /// For a hold that outlives its client: its lease.
    pub(crate) lease: Option<Duration>,
    /// Whether another program may let somebody stand beside it, with the same number.
    pub(crate) lets_ride: bool,
}

impl Contender {
    /// Reads the name of a node; nothing if it stands in no line.
    pub(crate) fn read(node: &str) -> Option<Self> {
        let (front, ending, number) = ENDINGS.iter().find_map(|(ending, reads)| {
            // Curator does without the dash when it is told to do without protection.
            let bare = ending.strip_prefix('-').unwrap_or(ending);
            let at = node.rfind(bare)?;
            let front = node[..at].strip_suffix('-').filter(|_| bare != *ending).unwrap_or(&node[..at]);
            Some((front, (*ending, *reads), number(&node[at + bare.len()..])?))
        })?;
        let (id, marks) = split_id(front);
        let share = if ending.1 { Share::Shared } else { Share::Exclusive };
        let mut read = Self {
            node: node.to_owned(),
            number,
            id,
            share,
            owner: None,
            epoch: None,
            lease: None,
            lets_ride: ending.0 == "-__WRIT__",
        };
        if id.is_some() && !marks.is_empty() {
            // Marks that are not ours say nothing: then it is whatever its ending says.
            let marked = read.clone().with_marks(marks);
            read = marked.unwrap_or(read);
        }
        Some(read)
    }

    fn with_marks(mut self, marks: &str) -> Option<Self> {
        for mark in marks.strip_prefix('-')?.split('-') {
            match (mark.as_bytes().first()?, &mark[1..]) {
                (b'o', owner) => {
                    self.owner = Some(unescape(owner)?);
                    self.lets_ride = true;
                }
                (b'e', epoch) => self.epoch = Some(u64::from_str_radix(epoch, 16).ok()?),
                (b'd', ms) => self.lease = Some(Duration::from_millis(ms.parse().ok()?)),
                _ => {
                    let (n, of) = mark.split_once("of")?;
                    let (n, of) = (n.parse().ok()?, of.parse().ok()?);
                    self.share = Some(Share::Permits { n, of }).filter(|_| 0 < n && n <= of)?;
                }
            }
        }
        Some(self)
    }

    /// Whether this is all it ever will be: when it is gone, nobody else stands in its place.
    pub(crate) fn is_plain(&self) -> bool {
        !self.lets_ride && self.lease.is_none() && self.epoch.is_none()
    }

    /// Whether it outlives its client: only its lease ends it.
    pub(crate) fn stays(&self) -> bool {
        self.lease.is_some() && self.epoch.is_some()
    }
}

/// The number at the end of a node's name. The counter runs over into negative numbers.
fn number(text: &str) -> Option<i32> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let enough = text.len() >= 10 && digits.len() <= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| enough)
}

fn split_id(front: &str) -> (Option<ClaimId>, &str) {
    let bare = front.strip_prefix("_c_").unwrap_or(front);
    let uuid = bare.get(..36).filter(|uuid| uuid.bytes().filter(|byte| *byte == b'-').count() == 4);
    let length = if uuid.is_some() { 36 } else { 32 };
    let Some(text) = bare.get(..length) else { return (None, "") };
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let id = (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok()).flatten();
    (id.map(ClaimId::from_u128), &bare[length..])
}

/// The names of a claim's nodes up to their numbers, the first one first.
pub(crate) fn names(claim: &Claim, dialect: Dialect, epoch: Option<u64>) -> Vec<String> {
    let mut marks = String::new();
    if let Share::Permits { n, of } = claim.share {
        let _ = write!(marks, "-{n}of{of}");
    }
    if let Some(owner) = &claim.owner {
        marks.push_str("-o");
        for c in owner.as_str().chars() {
            if c.is_ascii_alphanumeric() { marks.push(c) } else { escape(&mut marks, c) }
        }
    }
    if claim.detached {
        let _ = write!(marks, "-d{}", claim.ttl.as_millis());
    }
    if let Some(epoch) = epoch {
        let _ = write!(marks, "-e{epoch:x}");
    }
    let hex = claim.id.to_string();
    let curator = || {
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        let ending = match claim.share {
            Share::Shared => "-__READ__",
            Share::Exclusive if claim.writes => "-__WRIT__",
            Share::Exclusive | Share::Permits { .. } => "-lock-",
        };
        format!("_c_{a}-{b}-{c}-{d}-{e}{marks}{ending}")
    };
    let reads = claim.share == Share::Shared;
    let kazoo = |front| format!("{front}{hex}{marks}{}", if reads { "__rlock__" } else { "__lock__" });
    match dialect {
        Dialect::Curator => vec![curator()],
        Dialect::Kazoo => vec![kazoo("")],
        // Curator compares what it does not know by its whole name: this one comes behind all numbers.
        Dialect::Both => vec![curator(), kazoo("_c_")],
    }
}

/// A number as the server writes it.
pub(crate) fn numbered(front: &str, number: i32) -> String {
    format!("{front}{number:010}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Name, Owner, backend::ClientId};

    fn claim(share: Share, owner: Option<&str>, detached: bool) -> Claim {
        Claim {
            id: ClaimId::new(ClientId::from_u64(0x0123_4567_89ab_cdef), 7),
            name: Name::new("a").unwrap(),
            share,
            owner: owner.map(|owner| Owner::new(owner).unwrap()),
            ttl: Duration::from_secs(3),
            label: Arc::from("x"),
            detached,
            auto_renew: true,
            writes: share == Share::Exclusive,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for share in [Share::Exclusive, Share::Shared, Share::Permits { n: 2, of: 5 }] {
            for owner in [None, Some("ann"), Some("-o%/lock-🔒 __lock__0000000001")] {
                for detached in [false, true] {
                    for epoch in [None, Some(0x1_0000_00ab)] {
                        let claim = claim(share, owner, detached);
                        for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::Both] {
                            for front in names(&claim, dialect, epoch) {
                                let read = Contender::read(&numbered(&front, 42)).unwrap();
                                assert_eq!((read.id, read.share, read.number), (Some(claim.id), share, 42));
                                assert_eq!((read.owner.as_deref(), read.epoch), (owner, epoch), "{front}");
                                assert_eq!(read.lease, detached.then_some(claim.ttl));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn nodes_of_other_programs_are_understood() {
        let uuid = "_c_9f1c3f62-0a6e-4f4d-8f4e-0d6a0c1b2a3d";
        for (node, share, number) in [
            (format!("{uuid}-lock-0000000012"), Share::Exclusive, 12),
            (format!("{uuid}-__READ__0000000003"), Share::Shared, 3),
            (format!("{uuid}-__WRIT__2147483647"), Share::Exclusive, i32::MAX),
            (format!("{uuid}-lock--2147483648"), Share::Exclusive, i32::MIN),
            (format!("{uuid}-lock--000000005"), Share::Exclusive, -5),
            ("9f1c3f620a6e4f4d8f4e0d6a0c1b2a3d__lock__0000000001".into(), Share::Exclusive, 1),
            ("9f1c3f620a6e4f4d8f4e0d6a0c1b2a3d__rlock__0000000001".into(), Share::Shared, 1),
            ("_c_9f1c3f620a6e4f4d8f4e0d6a0c1b2a3d-lock-0000000001".into(), Share::Exclusive, 1),
            ("lock-0000000009".into(), Share::Exclusive, 9),
            ("__WRIT__0000000009".into(), Share::Exclusive, 9),
            (format!("{uuid}-what-ever-lock-0000000012"), Share::Exclusive, 12),
        ] {
            let read = Contender::read(&node).unwrap_or_else(|| panic!("{node}"));
            assert_eq!((read.share, read.number), (share, number), "{node}");
        }
        for other in ["leases", "locks", "lock-", "lock-12", "a-lock-00000000x1", "x-1-0000000001", "42", ""]
        {
            assert_eq!(Contender::read(other), None, "{other}");
        }
    }
}
