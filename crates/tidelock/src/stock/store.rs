//! The waist of stock: what a store must do so that stock can be kept in it.
//!
//! A store keeps *plans* (which segments an item has) and *segments* (a counter, and the orders that were taken from
//! it). Each of the three methods is one atomic step on one server. What a step means is [`Ledger`](super::Ledger):
//! keep to it, and the shared cases compare you with it.
//!
//! 1. A step may arrive twice, late, or after its caller gave up. Orders and transfers have ids, and the same id means
//!    the same once, for as long as the segment is there.
//! 2. Whatever was answered is kept. A store that may lose it says so on its page.
//! 3. When you cannot know whether a change happened you say [`Unknown`](crate::backend::FailureKind::Unknown).
//! 4. Time is the store's, in microseconds, and goes on over restarts: reservations end by it.

use std::{fmt, sync::Arc, time::Duration};

use crate::{backend::Call, name::Name};

/// A store of plans and segments.
pub trait StockStore: fmt::Debug + Send + Sync {
    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// The plan of an item: its version and its text, which means nothing to the store.
    fn plan(&self, item: &Name) -> Call<Option<(u64, String)>>;

    /// Writes a plan if the one that is there has the version before, or, for version 1, if there is none. Says whether
    /// it was written. A plan with `keep` is forgotten that long after.
    fn replan(&self, item: &Name, version: u64, text: &str, keep: Option<Duration>) -> Call<bool>;

    /// Makes a step on a segment.
    fn apply(&self, segment: &SegmentId, step: &Step) -> Call<Answer>;
}

/// Which segment of which item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    /// The item.
    pub item: Name,
    /// The number of the segment.
    pub number: u32,
}

/// The id of an order: any text of 1 to 128 bytes without control characters.
pub type OrderId = Arc<str>;

/// The id of stock on its way from one segment to another, or into the first: 120 bits, never used for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u128);

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The fence of a segment that was closed: no plan has it.
pub const CLOSED: u64 = (1 << 53) - 1;

/// What can be asked of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the segment, with its share of the stock. If it is there for the same sale nothing happens.
    Fill {
        /// The sale: another one with the same name is not this one.
        sale: u64,
        /// The number of the mapping that is in force.
        fence: u64,
        /// How many.
        n: u64,
    },
    /// Takes from the segment for an order, all or nothing; 0 only asks how the order stands. Whoever goes by an older
    /// mapping than the segment has seen is turned away, and a newer one is noted: so an order that was not found here
    /// by a newer mapping is never taken here by an older.
    Take {
        /// The number of the mapping that the caller goes by.
        fence: u64,
        /// For whom.
        order: OrderId,
        /// How many.
        n: u64,
        /// For how long only, unless it is confirmed.
        hold: Option<Duration>,
        /// What is brought along, as by [`Bring`](Step::Bring), before anything else.
        brings: Option<(TransferId, u64)>,
    },
    /// Ends an order. Fenced as [`Take`](Step::Take).
    End {
        /// The number of the mapping that the caller goes by.
        fence: u64,
        /// Which.
        order: OrderId,
        /// How.
        how: End,
    },
    /// Takes stock out, as much as there is up to `n`, to be brought to another segment. Repeated, it says what it said.
    Lend {
        /// Its id.
        transfer: TransferId,
        /// How many at most.
        n: u64,
        /// The number of the segment it goes to. It may be brought nowhere else.
        to: u32,
    },
    /// Brings stock in, once. Of 0 it only asks whether the transfer was brought.
    Bring {
        /// Its id.
        transfer: TransferId,
        /// How many.
        n: u64,
    },
    /// What was lent has been brought. It is remembered, so that a late repetition lends nothing.
    Settle {
        /// Its id.
        transfer: TransferId,
    },
    /// Counts.
    Look,
    /// Turns away whoever wants to take. Forgotten after `keep`.
    Close {
        /// For how long orders are still known.
        keep: Duration,
    },
}

/// How an order ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What it took comes back. An order that is not known is never taken from then on.
    GiveBack,
    /// A reservation becomes a sale, unless it is over.
    Confirm,
    /// An order that is not known is never taken from then on. One that is known stays as it is.
    Void,
}

/// How an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It took so many.
    Taken(u64),
    /// It holds so many for a while.
    Held(u64),
    /// It took so many, and they came back.
    Returned(u64),
    /// It was refused for good.
    Void,
    /// It is not known.
    Unknown,
}

/// What a segment answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, now or before.
    Done,
    /// How the order stands.
    Order(Standing),
    /// There is not enough for the order.
    Short {
        /// What there is.
        remaining: u64,
        /// How many transfers that were lent are not settled.
        pending: u64,
    },
    /// The caller goes by an old mapping: this is the number of the one in force, or [`CLOSED`].
    Stale(u64),
    /// There is no such segment.
    Absent,
    /// The segment belongs to another sale.
    OtherSale,
    /// So many were lent.
    Lent {
        /// How many.
        n: u64,
        /// How many transfers that were lent are not settled.
        pending: u64,
    },
    /// Whether a transfer was brought before.
    Brought(bool),
    /// The numbers.
    Counts(Counts),
}

/// What is in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What there is to be taken.
    pub remaining: u64,
    /// Sold, without what was returned and what is held.
    pub sold: u64,
    /// Held by reservations.
    pub held: u64,
    /// Came back from orders, by hand or by the end of a reservation.
    pub returned: u64,
    /// Lent and not settled.
    pub lent: Vec<Lent>,
}

/// Stock on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lent {
    /// Its id.
    pub transfer: TransferId,
    /// How many.
    pub n: u64,
    /// Where to.
    pub to: u32,
    /// For how long.
    pub age: Duration,
}
