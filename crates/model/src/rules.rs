//! What is modelled: the rules of the algorithm, the naive ones that must fail, and how far the search goes.

/// A promise, by the name under which the checker reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Never two holders inside their windows.
    OneHolder,
    /// Every guard that is returned has a larger token than all that were returned before.
    OrderedTokens,
    /// A client that still wants the lock can acquire it once the faults stop.
    NoDeadlock,
}

impl Promise {
    /// The name of the property.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneHolder => "no two holders inside their windows",
            Self::OrderedTokens => "a later guard has a larger token",
            Self::NoDeadlock => "a client that wants the lock can still acquire it",
        }
    }
}

/// How votes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Majority {
    /// More than half of all servers.
    OfAll,
    /// More than half of the servers that answered.
    OfAnswered,
}

/// From when on a server that restarted votes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// At once.
    AtOnce,
    /// A tick too soon: say, after the ttl of the client that asks, though another has a longer lease.
    TooSoon,
    /// When it has been up for as long as the longest lease lasts.
    AfterTtl,
    /// Never.
    Never,
}

/// What an epoch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epochs {
    /// The last one plus one, or the server's wall clock if that is more.
    Timed,
    /// The last one plus one.
    Counted,
    /// Not looked at, in a search for two holders: fewer states.
    Ignored,
}

/// From which moment a window is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Before the question was sent.
    Question,
    /// When the majority had answered.
    Answer,
}

/// What clients make of a server whose wall clock steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Its clock is compared with those of the others: it has no vote while it differs, nor until leases from before
    /// have ended.
    Seen,
    /// They do not notice.
    Unseen,
    /// They do not notice, and take it for older than it is: its uptime is the difference of two readings of its clock.
    Age,
}

/// The rules of clients and servers.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How votes are counted.
    pub majority: Majority,
    /// When a server that restarted grants votes again.
    pub rejoin: Rejoin,
    /// Whether a token that not all voters know is written back to a majority.
    pub write_back: bool,
    /// What an epoch is.
    pub epochs: Epochs,
    /// From when on the window of a new hold is counted.
    pub window_from: From,
    /// From when on the window of a renewed hold is counted.
    pub renewed_from: From,
    /// Whether windows are shorter than leases by what clocks may differ.
    pub drift_margin: bool,
    /// Whether a renewal takes the place again where it is gone and nobody else has it.
    pub renewal_recreates: bool,
    /// Whether a server that does not vote yet still confirms renewals of holds that it knows.
    pub young_confirm_known: bool,
    /// Whether a server that does not vote yet confirms every renewal, also of what it forgot.
    pub young_confirm_all: bool,
    /// Whether a confirmation that comes after the window's end opens the window again.
    pub late_yes_revives: bool,
    /// Whether a release frees the name even if another client holds it.
    pub leave_by_name: bool,
    /// What becomes of a server whose clock steps.
    pub steps: Steps,
}

impl Rules {
    /// The rules that tidelock keeps.
    pub const OURS: Self = Self {
        majority: Majority::OfAll,
        rejoin: Rejoin::AfterTtl,
        write_back: true,
        epochs: Epochs::Timed,
        window_from: From::Question,
        renewed_from: From::Question,
        drift_margin: true,
        renewal_recreates: true,
        young_confirm_known: false,
        young_confirm_all: false,
        late_yes_revives: false,
        leave_by_name: false,
        steps: Steps::Seen,
    };

    /// The same without tokens, for searches for two holders.
    pub const UNNUMBERED: Self = Self { epochs: Epochs::Ignored, ..Self::OURS };
}

/// How far the search goes. Within these bounds it is complete.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Ticks that a lease lasts by the server's clock.
    pub ttl: u8,
    /// Ticks by which the clocks of a client and a server may differ over one lease.
    pub drift: u8,
    /// Ticks by which the wall clocks of two servers may differ.
    pub skew: u8,
    /// Renewals, over all claims.
    pub renewals: u8,
    /// Restarts without memory, over all servers.
    pub forgets: u8,
    /// Restarts with memory, over all servers.
    pub restarts: u8,
    /// Questions that arrive twice, over all links.
    pub doubles: u8,
    /// Wall clocks that step, over all servers.
    pub jumps: u8,
    /// Times that a holder is put on a server which did not have it, because it was away.
    pub puts: u8,
}

impl Bounds {
    /// Where there is no time and nothing is counted.
    pub(crate) const NONE: Self = Self {
        ttl: 0,
        drift: 0,
        skew: 0,
        renewals: 0,
        forgets: 0,
        restarts: 0,
        doubles: 0,
        jumps: 0,
        puts: 0,
    };

    /// No faults but messages that are lost, late and out of order, clocks that drift, and clients that pause.
    pub const CALM: Self = Self {
        ttl: 3,
        drift: 1,
        skew: 0,
        renewals: 0,
        forgets: 0,
        restarts: 0,
        doubles: 0,
        jumps: 0,
        puts: 0,
    };
}
