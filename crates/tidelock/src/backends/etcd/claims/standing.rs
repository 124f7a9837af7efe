//! How a claim of this client stands: from its line as it was read, and from who went away since.

use super::{Ahead, Claims, OwnClaim, Phase, YOUNG};
use crate::{
    backend::{Claim, ClaimId, Grant, Place, Standing},
    backends::{
        etcd::{
            codec::Contender,
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
        let waiting = count(order.waiters().count());
        let Some(own) = self.get_mut(name, id) else {
            // Of somebody else, who left it to us.
            return if holds {
                held(claim, me.epoch(), waiting)
            } else {
                waits(ahead_of(index, order).count())
            };
        };
        if own.came_back(me) {
            // Others may have held in between, and may be ahead of it now.
            self.vanishes(name, id, now);
            return Standing::Gone;
        }
        // A release must not find a copy of a claim that is over, and take it for the claim.
        if !matches!(own.phase, Phase::Over) {
            (own.created, own.base, own.lease) = (me.created, me.base, me.lease);
        }
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
        own.phase = Phase::Waiting(Box::new(Ahead(ahead)));
        if order.is_boarding {
            // That it is done is written, and only what is deleted is heard.
            self.stale.insert(name.clone());
        }
        self.watch(name);
        self.catch_up(name, id, now).unwrap_or(standing)
    }

    /// What was heard since the line was read, before anybody knew what to make of it.
    fn catch_up(&mut self, name: &Name, id: ClaimId, now: Moment) -> Option<Standing> {
        let line = self.lines.get_mut(name)?;
        let known_at = line.claims.get(id)?.known_at;
        let mut heard = Vec::new();
        for watch in line.watches().filter_map(|id| self.watches.get(&id)) {
            let Some(covers) = watch.covers() else { continue };
            let more = watch.more.as_ref();
            if covers.max(more.map_or(0, |more| more.forgotten)) > known_at {
                self.stale.insert(name.clone());
            }
            let recent = more.into_iter().flat_map(|more| &more.recent);
            heard.extend(recent.filter(|(at, _)| *at > known_at).cloned());
        }
        let own = line.claims.get_mut(id)?;
        for (at, key) in heard {
            if self.space.is_key(&key, &own.claim, own.number) {
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
        if ahead.has_owners() || self.claim.owner.is_some() {
            return false;
        }
        ahead.0.retain(|other| other.key != key || other.created > at);
        let holds = order(&ahead.0).has_room_for(self.claim.share);
        if holds {
            self.phase = Phase::Held(self.epoch());
        }
        holds
    }

    /// Whether this claim may come to hold by what is not known here.
    pub(super) fn may_be_passed_unheard(&self) -> bool {
        match &self.phase {
            Phase::Waiting(ahead) => self.claim.owner.is_some() || ahead.has_owners(),
            Phase::Asking | Phase::Held(_) | Phase::Over => false,
        }
    }
}

impl Ahead {
    fn has_owners(&self) -> bool {
        self.0.iter().any(|other| other.owner.is_some())
    }
}

pub(super) fn held(claim: &Claim, epoch: i64, waiting: u32) -> Standing {
    Standing::Held(grant(claim, epoch, waiting))
}

pub(super) fn grant(claim: &Claim, epoch: i64, waiting: u32) -> Grant {
    Grant::new(epoch as u64, claim.ttl, waiting)
}

/// What is ahead is watched, so the claim need not be told when to look again.
pub(super) fn waits(ahead: usize) -> Standing {
    Standing::Waiting(Place { ahead: count(ahead), lapse_in: None })
}
