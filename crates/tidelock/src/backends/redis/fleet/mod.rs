//! `?mode=redisson` and `?mode=setnx`: locks that other programs take as well, on top of our line.
//!
//! A claim that is first in our line makes its entry at the key of those programs in the script that makes it a holder.
//! While one of them is in the way it waits. Scripts do all of that (`scripts/fleet.lua`); here is what this client
//! knows of its claims, so that an entry which was taken away and made again is not taken for the one it relies on.
//!
//! | file | what |
//! |---|---|
//! | `claims` | the claims of this client: who may make an entry, and which entry a holder relies on |
//! | `commands` | the commands that call the scripts |
//! | `codec` | their replies |
//! | `ears` | hearing that another program gave a lock back |
//! | `view` | what people see of other programs, and how their entries are taken away |
//! | `votes` | what `redlock` asks one server of several that vote |

mod claims;
mod codec;
mod commands;
mod ears;
mod view;
mod votes;

pub(in crate::backends) use self::view::is_stranger;
use self::{claims::Claims, ears::Ears};
use super::{
    link::Common,
    scripts::{self, Verb},
    settings::{Address, RedisSettings},
};
use crate::{
    backend::{Claim, ClaimId, Failure, Share},
    model::name::Name,
};

/// The letter of an `RFencedLock`.
const FENCED: &str = "f";

/// Other programs that take the same locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Redisson: a hash for each lock.
    Redisson,
    /// All libraries that take a lock with `SET key value NX PX`, and compare before they delete.
    SetNx,
}

impl Dialect {
    /// Returns its name in a URL.
    pub(in crate::backends) fn as_str(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::SetNx => "setnx",
        }
    }
}

/// What those programs call a lock: a text around its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::backends) struct Template {
    before: Box<str>,
    after: Box<str>,
}

impl Template {
    const NAME: &str = "{name}";

    /// Nothing if the name does not stand in it exactly once.
    pub(super) fn new(text: &str) -> Option<Self> {
        let (before, after) = text.split_once(Self::NAME)?;
        let is_once = !after.contains(Self::NAME) && !text.chars().any(char::is_control);
        is_once.then(|| Self { before: before.into(), after: after.into() })
    }

    /// Whether a lock is called by its name.
    pub(super) fn is_name(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    fn key(&self, name: &Name) -> String {
        [&*self.before, name.as_str(), &*self.after].concat()
    }
}

/// The verbs of locks, with other programs or without.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) enter: &'static Verb,
    pub(super) renew: &'static Verb,
    pub(super) leave: &'static Verb,
}

pub(super) static ALONE: Verbs =
    Verbs { enter: &scripts::ENTER, renew: &scripts::RENEW, leave: &scripts::LEAVE };
pub(super) static TOGETHER: Verbs =
    Verbs { enter: &scripts::FLEET_ENTER, renew: &scripts::FLEET_RENEW, leave: &scripts::FLEET_LEAVE };

/// The other programs, as one client sees them.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) dialect: Dialect,
    template: Template,
    is_cluster: bool,
    /// Whether each lock raises the counter of an `RFencedLock`.
    is_fenced: bool,
    /// Whether the server is one of several that vote.
    votes: bool,
    pub(super) claims: Claims,
    pub(super) ears: Ears,
}

impl Fleet {
    pub(super) fn new(config: &RedisSettings, common: &Common) -> Option<Self> {
        let (dialect, template) = config.mode.clone()?;
        Some(Self {
            dialect,
            template,
            is_cluster: matches!(config.address, Address::Cluster(_)),
            is_fenced: config.fenced,
            votes: common.wary,
            claims: Claims::new(common.clock.clone()),
            ears: Ears::new(common.tell.clone(), common.clock.clone()),
        })
    }

    /// The key of the other programs for a lock.
    pub(super) fn key(&self, name: &Name) -> String {
        self.template.key(name)
    }

    /// A claim is not in line any more.
    pub(super) fn forget(&self, id: ClaimId) {
        self.claims.forget(id);
        self.ears.forget(id);
    }

    /// Refuses what those programs cannot be kept out of.
    pub(super) fn check(&self, claim: &Claim, line: &str) -> Result<(), Failure> {
        if self.dialect == Dialect::SetNx && claim.share == Share::Shared {
            return Err(Failure::denied(
                "mode=setnx has no readers, because a key of SET NX has one holder: use a mutex, or mode=redisson for an RReadWriteLock",
            ));
        }
        if self.votes && matches!(self.kind(claim), "r" | "w") {
            return Err(Failure::denied(
                "on several servers that vote mode=redisson has no read-write locks, only those of a RedissonRedLock: use a mutex, or redis:// for an RReadWriteLock",
            ));
        }
        let key = self.key(&claim.name);
        if key == line {
            return Err(Failure::denied(format!(
                "lock_key makes {key:?} the key of other programs, where our own line is kept: use another lock_key or prefix in the URL"
            )));
        }
        if self.is_cluster && !super::link::in_one_slot(line, &key) {
            return Err(Failure::denied(format!(
                "in a cluster the key of other programs has to be in the slot of the lock, and {key:?} is in another: use names without braces and percent signs, and lock_key={{name}} or one with a hash tag, such as lock:{{{{name}}}}"
            )));
        }
        Ok(())
    }

    /// The letter of what a claim takes: see `scripts/fleet.lua`.
    fn kind(&self, claim: &Claim) -> &'static str {
        match (self.dialect, claim.share) {
            (Dialect::SetNx, _) => "n",
            (Dialect::Redisson, Share::Shared) => "r",
            (Dialect::Redisson, _) if claim.writes => "w",
            (Dialect::Redisson, _) if self.is_fenced => FENCED,
            (Dialect::Redisson, _) => "l",
        }
    }

    /// The letter of the form in which locks are kept.
    fn form(&self) -> &'static str {
        match self.dialect {
            Dialect::SetNx => "n",
            Dialect::Redisson => "l",
        }
    }
}

/// A name beside a lock, as Redisson makes it: in the lock's slot.
pub(super) fn beside(of: &str, key: &str) -> String {
    if key.contains('{') { format!("{of}:{key}") } else { format!("{of}:{{{key}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_called_as_the_template_says() {
        let name = Name::new("orders/42").unwrap();
        for (template, key) in [
            ("{name}", "orders/42"),
            ("lock:{name}", "lock:orders/42"),
            ("redlock:{name}", "redlock:orders/42"),
            ("lock:{{name}}", "lock:{orders/42}"),
        ] {
            assert_eq!(Template::new(template).unwrap().key(&name), key);
        }
        for bad in ["", "lock:", "{name}{name}", "a\n{name}"] {
            assert_eq!(Template::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_beside_a_lock_are_those_of_redisson() {
        assert_eq!(beside("redisson_lock__channel", "a"), "redisson_lock__channel:{a}");
        assert_eq!(beside("redisson_lock_token", "x:{a}"), "redisson_lock_token:x:{a}");
    }
}
