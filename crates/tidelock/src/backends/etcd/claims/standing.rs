//! How a claim of this client stands: from its line as it was read, and from who went away since.

use super::{Claims, OwnClaim, Phase, YOUNG};
use crate::{
    backend::{Claim, ClaimId, Grant, Place, Standing},
    backends::{
        etcd::{
            codec::{Contender, Space},
            order::{ahead_of, order},
        },
        shared::order::{Order, count},
    },
    clock::Moment,
    model::name::Name,
};

impl Claims {
    /// The line was read: notes how a claim of ours stands, and watches what it has to.
    pub(in crate::backends::etcd) fn stands(
        &mut self,
        space: &Space,
        claim: &Claim,
        (line, order): (&[Contender], &Order),
        at: i64,
        now: Moment,
    ) -> Standing {
        let (name, id) = (&claim.name, claim.id);
        let Some(index) = line.iter().position(|other| other.id == id) else {
            self.is_gone(name, id, now);
            return Standing::Gone;
        };
        let me = &line[index];
        let holds = order.holders().any(|holder| holder == index);
        let waiting = order.waiters().count();
        let Some(own) = self.get_mut(name, id) else {
            // Of somebody else, who left it to us.
            return if holds {
                held(claim, me.epoch(), waiting)
            } else {
                waits(ahead_of(index, order).count())
            };
        };
        (own.created, own.base, own.lease) = (me.created, me.base, me.lease);
        match own.phase {
            Phase::Over => return Standing::Gone,
            // A reading may be older than what was heard: who holds goes on holding.
            Phase::Held(epoch) => {
                own.known_at = own.known_at.max(at);
                self.cover(name, id, at, waiting);
                return held(claim, epoch, waiting);
            }
            Phase::Asking | Phase::Waiting(_) if holds => {
                own.known_at = at;
                own.phase = Phase::Held(me.epoch());
                self.young.push_back((now + YOUNG, name.clone(), id));
                return held(claim, me.epoch(), waiting);
            }
            Phase::Asking | Phase::Waiting(_) => {}
        }
        let ahead: Vec<_> = ahead_of(index, order).map(|index| line[index].clone()).collect();
        let standing = waits(ahead.len());
        own.known_at = at;
        own.phase = Phase::Waiting(ahead);
        if order.is_boarding {
            // That it is done is written, and only what is deleted is heard.
            self.stale.insert(name.clone());
        }
        self.watch(space, name);
        self.catch_up(name, id, now).unwrap_or(standing)
    }

    /// What was heard since the line was read, before anybody knew what to make of it.
    fn catch_up(&mut self, name: &Name, id: ClaimId, now: Moment) -> Option<Standing> {
        let line = self.lines.get_mut(name)?;
        let own = line.claims.get_mut(id)?;
        let known_at = own.known_at;
        let mut heard = Vec::new();
        for watch in line.whole.iter().chain(line.single.values()).filter_map(|id| self.watches.get(id)) {
            let Some(covers) = watch.covers else { continue };
            if covers.max(watch.forgotten) > known_at {
                self.stale.insert(name.clone());
            }
            heard.extend(watch.recent.iter().filter(|(at, _)| *at > known_at).cloned());
        }
        for (at, key) in heard {
            if *key == *own.key {
                self.is_gone(name, id, now);
                return Some(Standing::Gone);
            }
            if own.passes(&key, at) {
                let standing = held(&own.claim, own.epoch(), 1);
                self.young.push_back((now + YOUNG, name.clone(), id));
                return Some(standing);
            }
        }
        None
    }
}

impl OwnClaim {
    /// The epoch that it holds with, if it does not ride.
    pub(super) fn epoch(&self) -> i64 {
        self.base + self.created
    }

    /// Somebody ahead went away. Says whether this claim holds now, as far as that can be known from here.
    pub(super) fn passes(&mut self, key: &[u8], at: i64) -> bool {
        let Phase::Waiting(ahead) = &mut self.phase else { return false };
        if ahead.iter().any(|other| other.owner.is_some()) || self.claim.owner.is_some() {
            return false;
        }
        ahead.retain(|other| other.key != key || other.created > at);
        let holds = order(ahead).has_room_for(self.claim.share);
        if holds {
            self.phase = Phase::Held(self.epoch());
        }
        holds
    }

    /// Whether this claim may come to hold by what is not known here.
    pub(super) fn may_be_passed_unheard(&self) -> bool {
        match &self.phase {
            Phase::Waiting(ahead) => {
                self.claim.owner.is_some() || ahead.iter().any(|other| other.owner.is_some())
            }
            Phase::Asking | Phase::Held(_) | Phase::Over => false,
        }
    }
}

pub(super) fn held(claim: &Claim, epoch: i64, waiting: usize) -> Standing {
    Standing::Held(grant(claim, epoch, waiting))
}

pub(super) fn grant(claim: &Claim, epoch: i64, waiting: usize) -> Grant {
    Grant::new(epoch as u64, claim.ttl, count(waiting))
}

/// What is ahead is watched, so the claim need not be told when to look again.
fn waits(ahead: usize) -> Standing {
    Standing::Waiting(Place { ahead: count(ahead), lapse_in: None })
}
