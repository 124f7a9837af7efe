//! How a claim in line stands, and riding: a claim of an owner that holds is written into that hold.

use super::{
    codec::{Contender, value},
    order::order,
    proto::{Compare, RequestOp, TxnRequest, revision},
    store::{EtcdStore, TRIES},
    view::{Reading, kvs},
};
use crate::{
    backend::{Claim, Failure, Share, Standing},
    backends::shared::order::{Order, Ride},
};

/// What becomes of a claim in line.
pub(super) enum Settled {
    Stands(Standing),
    /// Its owner holds this, which is too little for it.
    TooSmall(Share),
}

impl EtcdStore {
    /// Works out how a claim in line stands. If its owner holds, it rides on that; a new one that asks for more
    /// is refused.
    pub(super) async fn settle(
        &self,
        claim: &Claim,
        reading: Reading,
        is_new: bool,
    ) -> Result<Settled, Failure> {
        let (mut line, mut at) = reading;
        for _ in 0..TRIES {
            let now = order(&line);
            let me = line.iter().position(|other| other.id == claim.id);
            // One that holds already is as large as it is, unless it came just now.
            let may_ride = |me: &usize| {
                line[*me].rides.is_none() && (is_new || now.waiters().any(|waiter| waiter == *me))
            };
            let me = me.filter(|me| claim.owner.is_some() && may_ride(me));
            let place = me.and_then(|me| now.hold_of(me));
            let ride = place.map_or(Ride::None, |place| now.ride(&line, claim, place));
            match (me, ride) {
                (Some(me), Ride::On(holder)) => {
                    (line, at) = self.mount(claim, &line[me], &line[holder]).await?
                }
                (_, Ride::TooSmall(held)) if is_new => return Ok(Settled::TooSmall(held)),
                _ => return Ok(Settled::Stands(self.note(claim, &line, &now, at))),
            }
        }
        Err(Failure::unknown("others came in between each time"))
    }

    /// How a claim stands in a line that was read.
    pub(super) async fn stand(
        &self,
        claim: &Claim,
        line: &[Contender],
        order: &Order,
        at: i64,
    ) -> Result<Standing, Failure> {
        if claim.owner.is_none() {
            return Ok(self.note(claim, line, order, at));
        }
        match self.settle(claim, (line.to_vec(), at), false).await? {
            Settled::Stands(standing) => Ok(standing),
            Settled::TooSmall(_) => Err(Failure::unknown("a claim that is not new was refused")),
        }
    }

    /// Writes down that a claim rides on a hold of its owner, if that is still there; reads the line.
    async fn mount(&self, claim: &Claim, me: &Contender, holder: &Contender) -> Result<Reading, Failure> {
        let (from, to) = self.space.range(&claim.name);
        let read = RequestOp::range(from, to);
        let there = |other: &Contender| Compare::created_at(other.key.clone(), other.created);
        let mount = TxnRequest {
            compare: vec![there(holder), there(me)],
            success: vec![
                RequestOp::rewrite(me.key.clone(), value(claim, Some(holder.hold()), holder.base)),
                read.clone(),
            ],
            failure: vec![read],
        };
        let answer = self.link.ask(mount).await?.answer;
        let at = revision(answer.header.as_ref());
        Ok((self.space.contenders(&claim.name, kvs(answer.responses)), at))
    }

    fn note(&self, claim: &Claim, line: &[Contender], order: &Order, at: i64) -> Standing {
        self.claims().stands(claim, (line, order), at, self.clock.now())
    }
}
