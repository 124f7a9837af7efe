//! One server of several that vote, whose locks other programs take as well.
//!
//! A claim has to have its entry on a majority. What it has on fewer it gives back, so that another program may get one;
//! see `redlock`, which decides that.

use super::{claims::Known, view::is_stranger};
use crate::{
    backend::{Claim, ClaimId, Failure, Left},
    backends::redis::store::RedisStore,
    model::name::Name,
};

impl RedisStore {
    /// Refuses what other programs cannot be kept out of.
    pub(crate) fn check(&self, claim: &Claim) -> Result<(), Failure> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        fleet.check(claim, &self.common.space.key(&claim.name))
    }

    /// Whether other programs keep a claim from holding here, as far as is known.
    pub(crate) fn is_blocked(&self, id: ClaimId) -> bool {
        let known = self.fleet.as_ref().map(|fleet| fleet.claims.known(id));
        matches!(known, Some(Known::Blocked | Known::Yields(_)))
    }

    /// The entry of a claim counts no more, from now on. Says when it was made, so that it can be given back.
    pub(crate) fn yields(&self, id: ClaimId) -> Option<u64> {
        self.fleet.as_ref()?.claims.yields(id)
    }

    /// Gives back the entry of a claim that was made at this time, and no other.
    pub(crate) async fn give_back(&self, name: &Name, id: ClaimId, made: u64) -> Result<Left, Failure> {
        match &self.fleet {
            Some(fleet) => self.free_own(fleet, name, id, made).await,
            None => Ok(Left::Absent),
        }
    }

    /// Takes the entry of another program away that people see under this id; nothing if that is no such id.
    pub(crate) async fn free_stranger(&self, name: &Name, id: ClaimId) -> Option<Result<Left, Failure>> {
        let fleet = self.fleet.as_ref().filter(|_| is_stranger(id))?;
        Some(Box::pin(self.free(fleet, name, id)).await)
    }
}
