//! Seeded defects: mistakes that lock libraries really make, kept here so that our own tests can
//! be tested. Each is switched on by name in a simulation, and a test says who catches it.
//!
//! Without feature `testing` none of them can be switched on and the compiler removes them.

/// A mistake to make on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// Engine: the lease counts from when the answer came.
    LeaseFromReply,
    /// Engine: a pushed grant counts from when the push came.
    PushFromArrival,
    /// Engine: nobody looks whether the deadline has passed.
    DeadlineIgnored,
    /// Engine: a renewal that says "gone" is taken for one that failed.
    GoneIgnored,
    /// Engine: a grant that comes after the caller went away is kept.
    LateGrantKept,
    /// Engine: a caller that goes away leaves its place in line, renewed for ever.
    PlaceKeptAfterCancel,
    /// Engine: a question without an answer is asked again with another id.
    NewIdOnRetry,
    /// Engine: a question that is given up takes the claim with it, though a push granted it meanwhile.
    UsedClaimGivenBack,
    /// Engine: a push that is lost is never made up for.
    NoFallback,
    /// Engine: a hand-off inside the process keeps the token.
    TokenKeptOnHandOff,
    /// Engine: tokens come from a counter of the client.
    TokenFromCounter,
    /// Engine: a lock is handed on inside the process for ever.
    HandOffForEver,
    /// Engine: a lock is handed on though its lease is over.
    HandOffOfLost,
    /// Store: leave frees whoever holds, without looking at the id.
    LeaveWithoutId,
    /// Store: a repeated enter takes a second place.
    EnterTwice,
    /// Store: a newcomer may overtake those who wait.
    Overtaking,
    /// Store: after a restart without memory, epochs begin anew.
    EpochFromZero,
    /// Store: after a restart without memory, locks are granted at once.
    NoRestartRule,
    /// Store: permits are counted without their weights.
    WeightsIgnored,
    /// Store: readers do not wait for a writer that holds.
    ReadersPassWriters,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::LeaseFromReply,
        Self::PushFromArrival,
        Self::DeadlineIgnored,
        Self::GoneIgnored,
        Self::LateGrantKept,
        Self::PlaceKeptAfterCancel,
        Self::NewIdOnRetry,
        Self::UsedClaimGivenBack,
        Self::NoFallback,
        Self::TokenKeptOnHandOff,
        Self::TokenFromCounter,
        Self::HandOffForEver,
        Self::HandOffOfLost,
        Self::LeaveWithoutId,
        Self::EnterTwice,
        Self::Overtaking,
        Self::EpochFromZero,
        Self::NoRestartRule,
        Self::WeightsIgnored,
        Self::ReadersPassWriters,
    ];
}

/// Which mistakes are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects(u32);

impl Defects {
    /// None, as it should be.
    pub const NONE: Self = Self(0);

    /// This one.
    #[cfg(feature = "testing")]
    pub fn only(defect: Defect) -> Self {
        Self(1 << defect as u8)
    }

    /// Whether this one is made.
    #[inline]
    pub fn has(self, defect: Defect) -> bool {
        cfg!(feature = "testing") && self.0 & 1 << defect as u8 != 0
    }
}
