//! Who holds and who waits, from the names of the nodes in a line, and which of them a claim watches.
//!
//! The rules are those of [`order`](crate::backends::shared::order). Nodes with one number are one hold: a claim that
//! rides took over the number of the hold it rides on.

use std::{collections::HashSet, time::Duration};

use super::codec::nodes::Contender;
use crate::{
    backend::{Capacity, Claim, ClaimId, Refusal, Share},
    backends::shared::order::{self, Hold, InLine, Ride, count, mismatch, size},
};

/// How many nodes one claim watches at most; where more matter it watches the whole line.
const MAX_WATCHES: usize = 16;

/// Everybody in line, in order.
#[derive(Debug)]
pub(super) struct Order {
    line: Vec<Contender>,
    order: order::Order,
    /// What sharing claims agreed on.
    pub(super) capacity: Option<Capacity>,
}

/// How a claim stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Position {
    Holds {
        /// The epoch that its node says, if it took over a place.
        epoch: Option<u64>,
        behind: u32,
    },
    Waits(Wait),
    /// It can join a hold of its owner.
    Rides(Contender),
    /// It never can hold as it is.
    Refused(Refusal),
    Absent,
}

/// What a claim waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) ahead: u32,
    /// As long as all these nodes are there, it waits. Nothing: any change of the line may matter.
    pub(super) watch: Option<Vec<String>>,
    /// Whether it holds as soon as the one node is gone, without another look.
    pub(super) last: bool,
    /// Holds ahead that outlive their clients, and the shortest of their leases.
    pub(super) left: Vec<(String, Duration)>,
}

impl InLine for Contender {
    const RIDES_FIRST: bool = false;

    fn share(&self) -> Share {
        self.share
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn rides(&self) -> bool {
        // Only what holds takes over a place.
        self.epoch.is_some()
    }
}

impl Order {
    /// Reads the children of a lock's node.
    pub(super) fn read(children: &[String]) -> Self {
        let mut line: Vec<_> = children.iter().filter_map(|child| Contender::read(child)).collect();
        let least = line.iter().map(|contender| contender.number).min().unwrap_or(0);
        let most = line.iter().map(|contender| contender.number).max().unwrap_or(0);
        // The counter ran over: what is negative came later.
        let ran_over = i64::from(most) - i64::from(least) > i64::from(i32::MAX);
        let rank = |contender: &Contender| {
            let number = i64::from(contender.number);
            if ran_over && number < 0 { number + (1 << 32) } else { number }
        };
        line.sort_by_key(rank);
        // Of a claim with two nodes the first counts.
        let mut seen = HashSet::new();
        line.retain(|contender| contender.id.is_none_or(|id| seen.insert(id)));
        let capacity = order::capacity(&line);
        // A claim that assumes another capacity is about to be refused, and in nobody's way.
        line.retain(|contender| mismatch(contender.share, capacity).is_none());
        Self { order: order::Order::of(&line, rank), line, capacity }
    }

    fn members<'a>(&'a self, holds: &'a [Hold]) -> impl Iterator<Item = &'a Contender> {
        holds.iter().flat_map(|hold| &hold.claims).map(|index| &self.line[*index])
    }

    /// Who holds, in order.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.order.holders().map(|index| &self.line[index])
    }

    /// Who waits, in order.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.order.waiters().map(|index| &self.line[index])
    }

    /// How a claim stands whose first node has this name.
    pub(super) fn position(&self, claim: &Claim, node: &str) -> Position {
        let found = self.line.iter().position(|contender| contender.node == node);
        let Some((found, hold)) = found.and_then(|found| Some((found, self.order.hold_of(found)?))) else {
            // Left out because it assumes another capacity, or not there.
            return Position::Absent;
        };
        let mine = &self.line[found];
        // One that has not joined the hold of its owner yet does, though it may fit beside it.
        if mine.epoch.is_none()
            && let Ride::On(on) = self.order.ride(&self.line, claim, hold)
        {
            return Position::Rides(self.line[on].clone());
        }
        if self.order.holds[hold].is_held {
            let behind = self.members(&self.order.holds[hold + 1..]).count();
            return Position::Holds { epoch: mine.epoch, behind: count(behind) };
        }
        Position::Waits(self.wait(claim, hold))
    }

    /// How a claim would stand that comes now.
    pub(super) fn position_of_new(&self, claim: &Claim) -> Position {
        if let Some(refusal) = self.refusal(claim) {
            return Position::Refused(refusal);
        }
        if let Ride::On(on) = self.order.ride(&self.line, claim, usize::MAX) {
            return Position::Rides(self.line[on].clone());
        }
        if self.order.has_room_for(claim.share) {
            return Position::Holds { epoch: None, behind: 0 };
        }
        Position::Waits(self.wait(claim, self.order.holds.len()))
    }

    /// Why a claim that just came must not stay: it never could hold, or it would wait for itself.
    pub(super) fn refusal(&self, claim: &Claim) -> Option<Refusal> {
        let other = mismatch(claim.share, self.capacity);
        if other.is_some() {
            return other;
        }
        let own = self.line.iter().position(|contender| contender.id == Some(claim.id));
        let own = own.and_then(|index| self.order.hold_of(index));
        match self.order.ride(&self.line, claim, own.unwrap_or(usize::MAX)) {
            Ride::TooSmall(held) => Some(Refusal::Upgrade(held)),
            Ride::None | Ride::On(_) => None,
        }
    }

    fn wait(&self, claim: &Claim, hold: usize) -> Wait {
        let ahead = &self.order.holds[..hold];
        let left = self.members(ahead).filter(|member| member.stays());
        let left = left.filter_map(|member| Some((member.node.clone(), member.lease?))).collect();
        let watch = self.watched(claim, ahead);
        let last = match ahead {
            [Hold { claims, .. }] => {
                matches!(claims[..], [only] if self.line[only].is_plain()) && watch.is_some()
            }
            _ => false,
        };
        Wait { ahead: count(self.members(ahead).count()), watch, last, left }
    }

    /// The nodes of which one has to go before the claim can hold.
    fn watched(&self, claim: &Claim, ahead: &[Hold]) -> Option<Vec<String>> {
        // One that waits for its own owner comes along when that gets the lock, which no node tells.
        let owner = claim.owner.as_ref().map(|owner| owner.as_str());
        if owner.is_some() && self.members(ahead).any(|member| member.owner.as_deref() == owner) {
            return None;
        }
        // Of those with one number the largest says how much is taken: without it there may be room beside the
        // others.
        let one_of = |hold: &Hold| {
            let members = hold.claims.iter().map(|index| &self.line[*index]);
            let largest = members.max_by_key(|member| size(member.share));
            largest.map_or_else(String::new, |member| member.node.clone())
        };
        if let Some(exclusive) = ahead.iter().rev().find(|hold| hold.share == Share::Exclusive)
            && claim.share != Share::Exclusive
        {
            return Some(vec![one_of(exclusive)]);
        }
        match claim.share {
            Share::Exclusive => ahead.last().map(|hold| vec![one_of(hold)]),
            // No writer is ahead: it holds, or what is in the way is of a kind that is not known.
            Share::Shared => None,
            Share::Permits { n, of } => {
                let taken: u64 = ahead.iter().map(|hold| u64::from(hold.share.weight())).sum();
                let too_many = (taken + u64::from(n)).saturating_sub(u64::from(of));
                // If only the first ones went, too little would be free: watch all the others.
                let mut first = 0;
                let others = ahead.iter().position(|hold| {
                    first += u64::from(hold.share.weight());
                    first >= too_many
                });
                let others = self.members(&ahead[others.unwrap_or(ahead.len())..]);
                let watch: Vec<_> = others.map(|member| member.node.clone()).collect();
                (watch.len() <= MAX_WATCHES).then_some(watch)
            }
        }
    }

    /// The nodes of a claim.
    pub(super) fn nodes_of(children: &[String], id: ClaimId) -> Vec<Contender> {
        let read = children.iter().filter_map(|child| Contender::read(child));
        let mut nodes: Vec<_> = read.filter(|contender| contender.id == Some(id)).collect();
        nodes.sort_by_key(|contender| contender.number);
        nodes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Name, backend::ClientId};

    fn node(id: u64, ending: &str, number: i32) -> String {
        format!("_c_00000000-0000-0000-0000-{id:012x}{ending}{number:010}")
    }

    fn claim(id: u64, share: Share) -> Claim {
        Claim {
            id: ClaimId::new(ClientId::from_u64(0), id),
            name: Name::new("a").unwrap(),
            share,
            owner: None,
            ttl: Duration::from_secs(1),
            label: Arc::from("x"),
            detached: false,
            auto_renew: true,
            writes: false,
        }
    }

    fn waits(children: &[String], claim: &Claim, node: &str) -> Wait {
        match Order::read(children).position(claim, node) {
            Position::Waits(wait) => wait,
            other => panic!("it should wait, and {other:?}"),
        }
    }

    #[test]
    fn a_claim_that_waits_watches_the_one_node_that_matters() {
        let line = [
            node(1, "-__READ__", 1),
            node(2, "-lock-", 2),
            node(3, "-__READ__", 3),
            node(4, "-__READ__", 4),
            node(5, "-__WRIT__", 5),
        ];
        let wait = waits(&line, &claim(2, Share::Exclusive), &line[1]);
        assert_eq!((wait.ahead, wait.watch, wait.last), (1, Some(vec![line[0].clone()]), true));
        let wait = waits(&line, &claim(4, Share::Shared), &line[3]);
        assert_eq!((wait.ahead, wait.watch, wait.last), (3, Some(vec![line[1].clone()]), false));
        let wait = waits(&line, &claim(5, Share::Exclusive), &line[4]);
        assert_eq!((wait.ahead, wait.watch), (4, Some(vec![line[3].clone()])));
    }

    #[test]
    fn permits_watch_only_those_of_whom_one_has_to_go() {
        let line: Vec<_> = (1..=7).map(|id| node(id, "-1of3-lock-", id as i32)).collect();
        // Three hold. The fifth needs two to go: without the fourth, third or second that is one at most.
        let wait = waits(&line, &claim(5, Share::Permits { n: 1, of: 3 }), &line[4]);
        assert_eq!(wait.watch, Some(line[1..4].to_vec()));
        let wait = waits(&line, &claim(4, Share::Permits { n: 1, of: 3 }), &line[3]);
        assert_eq!(wait.watch, Some(line[..3].to_vec()));
    }

    #[test]
    fn order_survives_a_counter_that_runs_over() {
        let line =
            [node(3, "-lock-", i32::MIN), node(1, "-lock-", i32::MAX - 1), node(2, "-lock-", i32::MAX)];
        let order = Order::read(&line);
        assert_eq!(order.holders().map(|c| c.number).collect::<Vec<_>>(), [i32::MAX - 1]);
        assert_eq!(order.waiters().map(|c| c.number).collect::<Vec<_>>(), [i32::MAX, i32::MIN]);
        // Far from where it runs over, negative numbers come first.
        let line = [node(1, "-lock-", 0), node(2, "-lock-", -1)];
        assert_eq!(Order::read(&line).holders().next().unwrap().number, -1);
    }

    #[test]
    fn those_with_one_number_are_one_hold() {
        // As Curator writes it when a writer goes on reading.
        let line = [node(1, "-__WRIT__", 4), node(2, "-__READ__", 4), node(3, "-__READ__", 5)];
        let order = Order::read(&line);
        assert_eq!((order.holders().count(), order.waiters().count()), (2, 1));
        assert_eq!(Order::read(&line[1..]).holders().count(), 2);
    }

    #[test]
    fn of_a_hold_that_may_shrink_the_largest_is_watched() {
        let line = [node(1, "-__READ__", 4), node(2, "-__WRIT__", 4), node(3, "-__READ__", 5)];
        for line in [&line, &[line[1].clone(), line[0].clone(), line[2].clone()]] {
            let wait = waits(line, &claim(3, Share::Shared), &node(3, "-__READ__", 5));
            assert_eq!(wait.watch, Some(vec![node(2, "-__WRIT__", 4)]));
        }
    }

    #[test]
    fn another_capacity_is_refused_and_in_nobodys_way() {
        let line = [node(1, "-1of3-lock-", 1), node(2, "-1of4-lock-", 2), node(3, "-1of3-lock-", 3)];
        let order = Order::read(&line);
        assert_eq!(order.holders().count(), 2);
        let refusal = order.refusal(&claim(2, Share::Permits { n: 1, of: 4 }));
        assert_eq!(refusal, Some(Refusal::Capacity(Capacity::Of(3))));
    }
}
