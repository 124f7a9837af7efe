//! Who holds and who waits, from the names of the nodes in a line: every client comes to the same.
//!
//! These are the rules of [`line`](crate::line). Those with one number are one hold: whoever rides took
//! over the number of whoever it rides on, and the hold is as large as the largest of them.

use std::{collections::HashSet, time::Duration};

use super::nodes::Contender;
use crate::backend::{Capacity, Claim, ClaimId, Refusal, Share};

/// How many nodes one claim watches at most; where more matter it watches the whole line.
const MAX_WATCHES: usize = 16;

/// Everybody in line, in order.
#[derive(Debug)]
pub(super) struct Order {
    holds: Vec<Hold>,
    /// The first so many hold.
    held: usize,
    /// What sharing claims agreed on.
    pub(super) capacity: Option<Capacity>,
}

/// Those with one number.
#[derive(Debug)]
struct Hold {
    members: Vec<Contender>,
    share: Share,
}

/// How a claim stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stand {
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

impl Order {
    /// Reads the children of a lock's node.
    pub(super) fn read(children: &[String]) -> Self {
        let mut all: Vec<_> = children.iter().filter_map(|child| Contender::read(child)).collect();
        let least = all.iter().map(|contender| contender.number).min().unwrap_or(0);
        let most = all.iter().map(|contender| contender.number).max().unwrap_or(0);
        // The counter ran over: what is negative came later.
        let ran_over = i64::from(most) - i64::from(least) > i64::from(i32::MAX);
        let rank = |contender: &Contender| {
            let number = i64::from(contender.number);
            if ran_over && number < 0 { number + (1 << 32) } else { number }
        };
        all.sort_by_key(rank);
        // Of a claim with two nodes the first counts.
        let mut seen = HashSet::new();
        all.retain(|contender| contender.id.is_none_or(|id| seen.insert(id)));
        let mut order = Self { holds: Vec::new(), held: 0, capacity: None };
        for contender in all {
            order.add(contender);
        }
        order.count();
        order
    }

    fn add(&mut self, contender: Contender) {
        if let Some(capacity) = contender.share.capacity() {
            // Whoever assumes another capacity is about to be refused, and in nobody's way.
            if *self.capacity.get_or_insert(capacity) != capacity {
                return;
            }
        }
        match self.holds.last_mut().filter(|hold| hold.members[0].number == contender.number) {
            Some(hold) => {
                if size(contender.share) > size(hold.share) {
                    hold.share = contender.share;
                }
                hold.members.push(contender);
            }
            None => self.holds.push(Hold { share: contender.share, members: vec![contender] }),
        }
    }

    /// Counts how many hold: all from the first that fit together.
    fn count(&mut self) {
        let mut used = 0;
        self.held = 0;
        for hold in &self.holds {
            let fits = match hold.share {
                Share::Exclusive => self.held == 0,
                Share::Shared => true,
                Share::Permits { n, of } => used + u64::from(n) <= u64::from(of),
            };
            if !fits {
                return;
            }
            used += u64::from(hold.share.weight());
            self.held += 1;
            if hold.share == Share::Exclusive {
                return;
            }
        }
    }

    /// Who holds, in order.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.holds[..self.held].iter().flat_map(|hold| &hold.members)
    }

    /// Who waits, in order.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.holds[self.held..].iter().flat_map(|hold| &hold.members)
    }

    /// How a claim stands whose first node has this name.
    pub(super) fn stand(&self, claim: &Claim, node: &str) -> Stand {
        let found = self.holds.iter().position(|hold| hold.members.iter().any(|member| member.node == node));
        let Some(index) = found else {
            // Left out because it assumes another capacity, or not there.
            return Stand::Absent;
        };
        // Whoever has not joined the hold of its owner yet does, though it may fit beside it.
        let joined =
            self.holds[index].members.iter().any(|member| member.node == node && member.epoch.is_some());
        let ridden = if joined { None } else { self.ridden_by(claim, index) };
        if let Some(Ok(on)) = ridden {
            return Stand::Rides(on.clone());
        }
        if index < self.held {
            let behind: usize = self.holds[index + 1..].iter().map(|hold| hold.members.len()).sum();
            let mine = self.holds[index].members.iter().find(|member| member.node == node);
            let epoch = mine.and_then(|member| member.epoch);
            return Stand::Holds { epoch, behind: u32::try_from(behind).unwrap_or(u32::MAX) };
        }
        Stand::Waits(self.wait(claim, index))
    }

    /// How a claim would stand that comes now.
    pub(super) fn would_stand(&self, claim: &Claim) -> Stand {
        if let Some(refusal) = self.refusal(claim) {
            return Stand::Refused(refusal);
        }
        if let Some(Ok(on)) = self.ridden_by(claim, self.held) {
            return Stand::Rides(on.clone());
        }
        let used: u64 = self.holds.iter().map(|hold| u64::from(hold.share.weight())).sum();
        let exclusive = self.holds.iter().any(|hold| hold.share == Share::Exclusive);
        let fits = match claim.share {
            Share::Exclusive => self.holds.is_empty(),
            Share::Shared => !exclusive,
            Share::Permits { n, of } => !exclusive && used + u64::from(n) <= u64::from(of),
        };
        if fits {
            return Stand::Holds { epoch: None, behind: 0 };
        }
        Stand::Waits(self.wait(claim, self.holds.len()))
    }

    /// Why a claim that just came must not stay: it never could hold, or it would wait for itself.
    pub(super) fn refusal(&self, claim: &Claim) -> Option<Refusal> {
        match (claim.share.capacity(), self.capacity) {
            (Some(asked), Some(agreed)) if asked != agreed => return Some(Refusal::Capacity(agreed)),
            _ => {}
        }
        let own =
            self.holds.iter().position(|hold| hold.members.iter().any(|member| member.id == Some(claim.id)));
        match self.ridden_by(claim, own.unwrap_or(self.held)) {
            Some(Err(held)) => Some(Refusal::Upgrade(held)),
            _ => None,
        }
    }

    /// The hold before this place that a claim may join, or the one of its owner that is too small for it.
    fn ridden_by(&self, claim: &Claim, place: usize) -> Option<Result<&Contender, Share>> {
        let owner = claim.owner.as_ref()?.as_str();
        let mut too_small = None;
        for holder in self.holds[..self.held.min(place)].iter().flat_map(|hold| &hold.members) {
            if holder.owner.as_deref() == Some(owner) {
                if holder.share.covers(claim.share) {
                    return Some(Ok(holder));
                }
                too_small = Some(Err(holder.share));
            }
        }
        too_small
    }

    fn wait(&self, claim: &Claim, index: usize) -> Wait {
        let ahead = &self.holds[..index];
        let members = || ahead.iter().flat_map(|hold| &hold.members);
        let left = members().filter(|member| member.stays());
        let left = left.filter_map(|member| Some((member.node.clone(), member.lease?))).collect();
        let watch = self.watched(claim, ahead);
        let last = match ahead {
            [only] => only.members.len() == 1 && only.members[0].is_plain() && watch.is_some(),
            _ => false,
        };
        Wait { ahead: u32::try_from(members().count()).unwrap_or(u32::MAX), watch, last, left }
    }

    /// The nodes of which one has to go before the claim can hold.
    fn watched(&self, claim: &Claim, ahead: &[Hold]) -> Option<Vec<String>> {
        // Whoever waits for its own owner comes along when that gets the lock, which no node tells.
        let owner = claim.owner.as_ref().map(|owner| owner.as_str());
        let is_own = |member: &Contender| owner.is_some() && member.owner.as_deref() == owner;
        if ahead.iter().any(|hold| hold.members.iter().any(is_own)) {
            return None;
        }
        // Of those with one number the largest says how much is taken: without it there may be room beside the
        // others.
        let one_of = |hold: &Hold| {
            let largest = hold.members.iter().max_by_key(|member| size(member.share));
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
                let others = ahead.iter().skip_while(|hold| {
                    first += u64::from(hold.share.weight());
                    first < too_many
                });
                let watch: Vec<_> = others.flat_map(|hold| &hold.members).map(|m| m.node.clone()).collect();
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

/// For comparing the members of one hold.
fn size(share: Share) -> u64 {
    match share {
        Share::Exclusive => u64::MAX,
        sharing => u64::from(sharing.weight()),
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
        match Order::read(children).stand(claim, node) {
            Stand::Waits(wait) => wait,
            other => panic!("it should wait, and {other:?}"),
        }
    }

    #[test]
    fn whoever_waits_watches_the_one_node_that_matters() {
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
