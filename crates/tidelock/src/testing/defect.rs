//! Seeded defects: mistakes that lock libraries really make, kept here so that our own tests can
//! be tested. Each is switched on by name in a simulation, and a test says who catches it.
//!
//! Where one is made, a hook of a `Flaws` says so: `engine/flaws.rs`, `model/line/flaws.rs` and
//! `testing/faulty/flaws.rs`. Without feature `testing` those are empty.

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
    /// Engine: a lock is handed on though its lease has expired.
    HandOffOfLost,
    /// Engine: a release that finds nothing to release is a success.
    AbsentIgnored,
    /// Engine: a waiter whose place was lost gives up after three tries, patient or not.
    PatienceIgnored,
    /// Store: leave frees the lock without looking at the id.
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
    /// Store: a claim that expired is still found by its record, and can be renewed and left.
    RecordOutlives,
    /// Store: after a restore of an older state, locks are granted at once.
    NoRestoreRule,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 24] = [
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
        Self::AbsentIgnored,
        Self::PatienceIgnored,
        Self::LeaveWithoutId,
        Self::EnterTwice,
        Self::Overtaking,
        Self::EpochFromZero,
        Self::NoRestartRule,
        Self::WeightsIgnored,
        Self::ReadersPassWriters,
        Self::RecordOutlives,
        Self::NoRestoreRule,
    ];
}

/// Which mistakes are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects(u32);

impl Defects {
    /// None, as it should be.
    pub const NONE: Self = Self(0);

    /// This one.
    pub fn only(defect: Defect) -> Self {
        Self(1 << defect as u8)
    }

    /// Whether this one is made.
    #[inline]
    pub fn has(self, defect: Defect) -> bool {
        self.0 & 1 << defect as u8 != 0
    }
}
