//! The mistakes that the engine makes on purpose, each a hook that reads as a sentence.
//!
//! Nothing here happens outside of a simulation: see [`model::flaws`](crate::model::flaws).

use super::{lease::State, leased::LeasedClaim};
use crate::{
    backend::{ClaimId, Grant},
    clock::Moment,
    error::LossReason,
    model::{flaws::flaws, token::Token},
};

flaws! {
    /// A lease counts from when the answer came.
    count_leases_from_replies => LeaseFromReply,
    /// A lease that was pushed counts from when the push came.
    count_pushes_from_arrival => PushFromArrival,
    /// Nobody looks whether the deadline has passed.
    ignore_deadlines => DeadlineIgnored,
    /// A renewal that says "gone" is treated as one without an answer.
    ignore_gone => GoneIgnored,
    /// A grant that comes after everybody went away is kept.
    keep_late_grants => LateGrantKept,
    /// The place of a caller that went away is kept and renewed.
    keep_abandoned_places => PlaceKeptAfterCancel,
    /// A question without an answer is asked again with another id.
    change_ids_on_retry => NewIdOnRetry,
    /// A question that is given up takes along a claim that a push granted meanwhile.
    give_back_claims_in_use => UsedClaimGivenBack,
    /// Nobody asks in case a push was lost.
    rely_on_pushes => NoFallback,
    /// A hand-off inside the process keeps the token.
    keep_token_on_hand_off => TokenKeptOnHandOff,
    /// Tokens come from a counter of the client.
    count_tokens_locally => TokenFromCounter,
    /// A lock is handed on inside the process without end.
    hand_on_for_ever => HandOffForEver,
    /// A lock is handed on though its lease has expired.
    hand_on_lost_locks => HandOffOfLost,
    /// A release that finds nothing to release is a success.
    ignore_absence => AbsentIgnored,
    /// Nobody is patient: the third failure is the last.
    ignore_patience => PatienceIgnored,
}

impl Flaws {
    /// From when a lease counts that was asked for at `asked`.
    #[inline]
    pub(super) fn lease_start(self, asked: Moment, now: Moment) -> Moment {
        if self.count_leases_from_replies() { now } else { asked }
    }

    /// From when a lease counts that nobody may have asked for.
    #[inline]
    pub(super) fn granted_lease_start(self, asked: Option<Moment>, now: Moment) -> Option<Moment> {
        if asked.is_none() && self.count_pushes_from_arrival() { Some(now) } else { asked }
    }

    /// What a holder sees of its claim's state.
    #[inline]
    pub(super) fn seen_state(self, state: State) -> State {
        let is_hidden = state == State::Lost(LossReason::Expired) && self.ignore_deadlines();
        if is_hidden { State::Held } else { state }
    }

    /// Whether the push of a grant gets lost here.
    #[inline]
    pub(super) fn miss_push(self, id: ClaimId) -> bool {
        self.rely_on_pushes() && id.serial().is_multiple_of(8)
    }

    /// The number that a hand-off gets.
    #[inline]
    pub(super) fn hand_off_number(self, number: u32) -> u32 {
        if self.keep_token_on_hand_off() { 0 } else { number }
    }

    /// The token that a holder gets.
    #[inline]
    pub(super) fn token(self, token: Token, next_serial: impl FnOnce() -> u64) -> Token {
        if self.count_tokens_locally() { Token::new(next_serial(), 0) } else { token }
    }

    /// The grant that is handed on, if any is.
    #[inline]
    pub(super) fn grant_to_hand_on(
        self,
        healthy: Option<(Grant, Moment)>,
        leased: &LeasedClaim,
        now: Moment,
    ) -> Option<(Grant, Moment)> {
        if healthy.is_none() && self.hand_on_lost_locks() {
            // As if it were new: one that was granted long ago is not handed on anyway.
            return leased.grant().map(|(grant, _)| (grant, now));
        }
        healthy
    }
}
