//! What goes wrong, and how often.

/// How often what goes wrong, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Answers that come at once, without travelling.
    pub instant: u64,
    /// The usual longest journey, in ms.
    pub delay_ms: u64,
    /// Journeys that take up to `long_ms`.
    pub long: u64,
    /// How long those take at most, in ms.
    pub long_ms: u64,
    /// Questions that are lost.
    pub lost_question: u64,
    /// Answers that are lost.
    pub lost_answer: u64,
    /// Calls that are done twice.
    pub doubled: u64,
    /// Pushes that are lost.
    pub lost_push: u64,
    /// Pushes that come twice.
    pub doubled_push: u64,
}
