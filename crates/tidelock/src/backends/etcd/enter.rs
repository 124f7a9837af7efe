//! Entering a line: the question that nearly every claim is decided by, and tries that find others in line.

use std::sync::Arc;

use futures_util::future::join;

use super::{
    codec::{Contender, value},
    epochs::Base,
    link::Missed,
    order::order,
    proto::{Compare, KeyValue, RequestOp, TxnRequest, TxnResponse, revision},
    settle::Settled,
    store::{EtcdStore, TRIES},
    view::Reading,
};
use crate::{
    backend::{Ask, Claim, Entered, Failure, FailureKind, Leave, Refusal, Share, Standing},
    backends::shared::{
        failures::in_doubt,
        order::{Ride, capacity, mismatch},
    },
};

impl EtcdStore {
    /// Asks for a claim, once more if its lease, its connection or the base of epochs turned out to be another one.
    pub(super) async fn enter_line(&self, claim: &Arc<Claim>, ask: Ask) -> Result<Entered, Failure> {
        for _ in 0..TRIES {
            let (base, was_restored) = self.epochs.base().await?;
            if was_restored {
                self.begin_anew().await;
                continue;
            }
            let before = self.claims().lease_of(claim);
            let lease = match before {
                Some(lease) => lease,
                None => self.leases.for_claim(claim).await?,
            };
            // Not answered until it is: this call may be dropped at any await.
            let key = self.claims().asking(claim, lease);
            let entering = self.enter_under(claim, ask, &key, (lease, &base));
            let (mut entered, lives) = join(entering, self.epochs.still_lives(base.connection)).await;
            if matches!(entered, Ok(Entered::Held(_) | Entered::Waiting(_))) {
                match lives {
                    Ok(true) => {}
                    Ok(false) => entered = Err(Missed::Restored),
                    Err(failure) => entered = Err(in_doubt(failure).into()),
                }
            }
            let may_come = match &entered {
                Err(Missed::Failed(failure)) => failure.kind == FailureKind::Unknown,
                Err(Missed::Moved { may_repeat }) => *may_repeat,
                _ => false,
            };
            if !may_come {
                self.claims().answered(claim);
            }
            match entered {
                Err(Missed::Lease) => {
                    self.leases.forget(lease);
                    self.claims().lease_is_over(claim);
                }
                Err(Missed::Base | Missed::Moved { .. }) => {}
                Err(Missed::Restored) => self.withdraw(claim).await?,
                Err(Missed::Failed(failure)) => {
                    self.claims().forget_unasked(claim, self.clock.now());
                    return Err(failure);
                }
                Ok(entered @ (Entered::Busy | Entered::Refused(_))) => {
                    if ask == Ask::Try {
                        self.claims().tried(&claim.name, true);
                    }
                    self.withdraw(claim).await?;
                    return Ok(entered);
                }
                Ok(entered) => {
                    if ask == Ask::Try {
                        self.claims().tried(&claim.name, false);
                    }
                    return Ok(entered);
                }
            }
        }
        Err(Failure::unknown("its leases or connections end as soon as they are there"))
    }

    /// Asks for a claim under a lease and a base of epochs.
    async fn enter_under(
        &self,
        claim: &Arc<Claim>,
        ask: Ask,
        key: &[u8],
        (lease, base): (i64, &Base),
    ) -> Result<Entered, Missed> {
        if ask == Ask::Try && self.claims().is_busy(&claim.name) {
            // Most likely it still is: that costs a server no write.
            let reading = self.read_line(&claim.name).await?;
            return self.try_enter(claim, reading, key, (lease, base)).await;
        }
        let before = self.epochs.before();
        let first = self.entering(claim, ask, key, (lease, base));
        let answered = if self.leases.is_fresh(lease, claim.ttl) {
            self.link.ask_on(base.connection, first).await?
        } else {
            let (answered, kept) =
                join(self.link.ask_on(base.connection, first), self.leases.keep(lease, claim.ttl)).await;
            let answered = answered?;
            // The claim may be in line by now, whatever became of its lease.
            let kept = kept.map_err(in_doubt)?;
            if !kept {
                return Err(Missed::Lease);
            }
            answered
        };
        if answered.may_repeat {
            self.claims().may_repeat(claim);
        }
        let answer = answered.answer;
        let at = revision(answer.header.as_ref());
        let is_back = self.epochs.saw(before, at);
        let (kvs, has_base) = self.line_and_base(&answer, base);
        let mut line = self.space.contenders(&claim.name, kvs);
        if answer.succeeded {
            let me = Contender {
                key: key.to_vec(),
                created: at,
                lease,
                base: base.number,
                ..Contender::last(claim)
            };
            self.claims().is_there(claim, &me);
            if is_back {
                return Err(Missed::Restored);
            }
            line.push(me);
        }
        if is_back || !has_base && !line.iter().any(|other| other.id == claim.id) {
            return Err(Missed::Base);
        }
        self.drive_out(claim, key, &line).await?;
        if line.iter().any(|other| other.id == claim.id) {
            return self.entered(claim, (line, at), lease).await;
        }
        match ask {
            Ask::Try => self.try_enter(claim, (line, at), key, (lease, base)).await,
            Ask::Queue => match mismatch(claim.share, capacity(&line)) {
                Some(refusal) => Ok(Entered::Refused(refusal)),
                None => Err(Failure::unreachable("this claim was left before").into()),
            },
        }
    }

    /// The question that nearly every claim is decided by.
    fn entering(&self, claim: &Claim, ask: Ask, key: &[u8], (lease, base): (i64, &Base)) -> TxnRequest {
        let (from, to) = self.space.range(&claim.name);
        let mut compare = vec![Compare::absent(self.space.left(claim.id)), self.epochs.unchanged(base)];
        match (ask, claim.share) {
            (Ask::Queue, share) => {
                compare.push(Compare::absent(key.to_vec()));
                let capacity = share.capacity();
                let others = capacity.map(|capacity| self.space.other_capacities(&claim.name, capacity));
                compare.extend(others.into_iter().flatten().map(|(from, to)| Compare::none_in(from, to)));
            }
            // Readers hold together with readers.
            (Ask::Try, share @ Share::Shared) => {
                compare.push(Compare::absent(key.to_vec()));
                let others = share.capacity().map(|capacity| self.space.others(&claim.name, capacity));
                compare.extend(others.into_iter().flatten().map(|(from, to)| Compare::none_in(from, to)));
            }
            (Ask::Try, _) => compare.push(Compare::none_in(from.clone(), to.clone())),
        }
        let read = RequestOp::range(from, to);
        let put = RequestOp::put(key.to_vec(), value(claim, None, base.number), lease);
        // First the line: what is written need not be read again.
        TxnRequest { compare, success: vec![read.clone(), put], failure: vec![read, self.epochs.read()] }
    }

    /// A try that found others in line, with whom it may hold all the same.
    async fn try_enter(
        &self,
        claim: &Arc<Claim>,
        (mut line, mut at): Reading,
        key: &[u8],
        (lease, base): (i64, &Base),
    ) -> Result<Entered, Missed> {
        for _ in 0..TRIES {
            if line.iter().any(|other| other.id == claim.id) {
                return self.entered(claim, (line, at), lease).await;
            }
            self.drive_out(claim, key, &line).await?;
            if let Some(refusal) = mismatch(claim.share, capacity(&line)) {
                return Ok(Entered::Refused(refusal));
            }
            let now = order(&line);
            let (from, to) = self.space.range(&claim.name);
            let (guard, rides, number) = match now.ride(&line, claim, usize::MAX) {
                Ride::TooSmall(held) => return Ok(Entered::Refused(Refusal::Upgrade(held))),
                Ride::On(holder) => {
                    let holder = &line[holder];
                    let is_there = Compare::created_at(holder.key.clone(), holder.created);
                    (is_there, Some(holder.hold()), holder.base)
                }
                Ride::None if !now.has_room_for(claim.share) => return Ok(Entered::Busy),
                Ride::None => (Compare::unchanged_since(from.clone(), to.clone(), at), None, base.number),
            };
            let read = RequestOp::range(from, to);
            let enter = TxnRequest {
                compare: vec![
                    guard,
                    Compare::absent(key.to_vec()),
                    Compare::absent(self.space.left(claim.id)),
                    self.epochs.unchanged(base),
                ],
                success: vec![RequestOp::put(key.to_vec(), value(claim, rides, number), lease), read.clone()],
                failure: vec![read, self.epochs.read()],
            };
            let before = self.epochs.before();
            let answered = self.link.ask_on(base.connection, enter).await?;
            if answered.may_repeat {
                self.claims().may_repeat(claim);
            }
            let answer = answered.answer;
            at = revision(answer.header.as_ref());
            let is_back = self.epochs.saw(before, at);
            let (kvs, has_base) = self.line_and_base(&answer, base);
            line = self.space.contenders(&claim.name, kvs);
            if is_back && let Some(me) = line.iter().find(|other| other.id == claim.id) {
                self.claims().is_there(claim, me);
                return Err(Missed::Restored);
            }
            if is_back || !has_base && !line.iter().any(|other| other.id == claim.id) {
                return Err(Missed::Base);
            }
        }
        // Others came in between each time.
        Ok(Entered::Busy)
    }

    /// The claim is in line: how it stands.
    async fn entered(&self, claim: &Arc<Claim>, (line, at): Reading, lease: i64) -> Result<Entered, Missed> {
        // It may be there from before, under another lease.
        if let Some(me) = line.iter().find(|other| other.id == claim.id) {
            self.claims().is_there(claim, me);
            if me.lease != lease && !self.leases.keep(me.lease, claim.ttl).await? {
                return Err(Missed::Lease);
            }
        }
        let is_new = self.claims().is_asking(claim);
        match self.settle(claim, (line, at), is_new).await? {
            Settled::TooSmall(held) => Ok(Entered::Refused(Refusal::Upgrade(held))),
            Settled::Stands(Standing::Held(grant)) => {
                self.stir();
                Ok(Entered::Held(grant))
            }
            Settled::Stands(Standing::Waiting(place)) => {
                self.stir();
                Ok(Entered::Waiting(place))
            }
            Settled::Stands(Standing::Gone | Standing::Unknown) => {
                Err(Failure::unknown("its key was deleted by somebody else").into())
            }
        }
    }

    /// The keys that a transaction read, and whether the base of epochs is still this one. What it read of another
    /// is remembered.
    fn line_and_base(&self, answer: &TxnResponse, base: &Base) -> (Vec<KeyValue>, bool) {
        let mut ranges = answer.responses.iter().filter_map(|response| response.range.as_ref());
        let line = ranges.next().map(|range| range.kvs.clone()).unwrap_or_default();
        if answer.succeeded {
            return (line, true);
        }
        let found = ranges.next().and_then(|range| range.kvs.first());
        let is_same = found.is_some_and(|kv| kv.value == base.value);
        if !is_same {
            self.epochs.doubt();
        }
        (line, is_same)
    }

    /// Deletes a claim that has the key of another one of ours: a restored snapshot or a copy of its question brought it
    /// back after it was left. Then the question is asked once more.
    async fn drive_out(&self, claim: &Claim, key: &[u8], line: &[Contender]) -> Result<(), Missed> {
        let Some(stray) = line.iter().find(|other| other.key == key && other.id != claim.id) else {
            return Ok(());
        };
        self.link.ask(TxnRequest::delete_created_at(stray.key.clone(), stray.created)).await?;
        Err(Missed::Base)
    }

    /// A claim that did not stay: nothing of it may come later, either.
    async fn withdraw(&self, claim: &Arc<Claim>) -> Result<(), Failure> {
        let needed = self.claims().must_be_left(claim, self.clock.now());
        if needed {
            self.leave_line(&claim.name, claim.id, &Leave::Done).await?;
        }
        Ok(())
    }
}
