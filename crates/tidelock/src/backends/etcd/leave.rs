//! Leaving a line, and putting claims out of it that this client does not know.

use std::time::Duration;

use super::{
    codec::has_own_lease,
    link::Missed,
    proto::{RequestOp, TxnRequest, revision},
    store::EtcdStore,
};
use crate::{
    backend::{ClaimId, Failure, Leave, Left},
    model::name::Name,
};

/// For how long a question that was given up may still arrive.
pub(super) const LATEST: Duration = Duration::from_secs(300);

impl EtcdStore {
    /// Takes a claim out of line, so that nothing of it comes later.
    pub(super) async fn leave_line(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<Left, Failure> {
        let own = if *why == Leave::Done { self.claims().leaving(name, id, self.clock.now()) } else { None };
        let Some(own) = own else { return self.put_out(name, id, why).await };
        let mut leave = TxnRequest::default();
        if own.created != 0 {
            leave = TxnRequest::delete_created_at(own.key, own.created);
        }
        if own.may_repeat {
            // A question may arrive after this: then it has to find that it is too late.
            let lease = self.leases.grant(LATEST).await?;
            self.leases.forget(lease);
            let mark = RequestOp::put(self.space.left(id), Vec::new(), lease);
            leave.success.push(mark.clone());
            leave.failure.push(mark);
        }
        let mut left = Left::Absent;
        if !leave.success.is_empty() {
            let answered = self.link.ask(leave).await?;
            self.epochs.saw(0, revision(answered.answer.header.as_ref()));
            // Put twice, the first delivery may have deleted the key that the second one missed.
            let was_there = own.created != 0 && (answered.answer.succeeded || answered.may_repeat);
            left = Left::from_was_there(was_there);
        }
        if own.created == 0 || own.may_repeat && left == Left::Absent {
            // Whether it ever came, or came once more, was not said; from now on it cannot come any more.
            left = self.put_out(name, id, why).await?;
        }
        if has_own_lease(&own.claim) && own.lease != 0 {
            self.leases.revoke(own.lease).await;
        }
        self.claims().forget(name, id, self.clock.now());
        Ok(left)
    }

    /// Takes a claim out of line that is not known here, or that somebody does not want to be there.
    async fn put_out(&self, name: &Name, id: ClaimId, why: &Leave) -> Result<Left, Failure> {
        let (line, _) = self.read_line(name).await?;
        let Some(claim) = line.into_iter().find(|other| other.id == id) else { return Ok(Left::Absent) };
        let mut put_out = TxnRequest::delete_created_at(claim.key, claim.created);
        if let Leave::Evicted(reason) = why
            && claim.lease != 0
        {
            // Kept for as long as there is somebody to read it.
            let reason = RequestOp::put(self.space.reason(id), reason.as_bytes().to_vec(), claim.lease);
            put_out.success.push(reason);
        }
        let left = match self.link.ask(put_out).await {
            Ok(answered) => Left::from_was_there(answered.answer.succeeded || answered.may_repeat),
            // Its lease ended in the meantime, and so did it.
            Err(Missed::Lease) => Left::Absent,
            Err(missed) => return Err(missed.into()),
        };
        if *why == Leave::Done && claim.own_lease {
            self.leases.revoke(claim.lease).await;
        }
        Ok(left)
    }
}
