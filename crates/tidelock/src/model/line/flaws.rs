//! The mistakes that a line makes on purpose: see [`model::flaws`](crate::model::flaws).

use std::sync::Arc;

use super::{Line, StoreTime, places::Hold};
use crate::{
    backend::{Claim, Entered},
    model::flaws::flaws,
};

flaws! {
    /// A newcomer may overtake those who wait.
    allow_overtaking => Overtaking,
    /// Readers do not wait for a writer that holds.
    let_readers_pass => ReadersPassWriters,
    /// Permits are counted without their weights.
    ignore_weights => WeightsIgnored,
}

impl Line {
    /// Lets a claim hold ahead of those who wait, if it fits and the line is flawed in that way.
    #[inline]
    pub(super) fn overtake(&mut self, claim: &Arc<Claim>, at: StoreTime) -> Option<Entered> {
        let overtakes = self.flaws.allow_overtaking();
        if !overtakes || !self.fits(claim.share) || self.held == self.places.len() {
            return None;
        }
        self.last_epoch = at.micros.max(self.last_epoch + 1);
        self.admit(claim, at, Some(Hold { epoch: self.last_epoch, since: at.lease, rides: false }));
        self.count_base(claim.share);
        Some(Entered::Held(self.grant(claim, self.last_epoch)))
    }
}
