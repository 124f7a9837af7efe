//! The backend interface of stock: what a store must do so that it can keep stock.
//!
//! A store keeps *plans* (which segments an item has) and *segments* (a counter, and the orders that were
//! taken from it). Each of the three methods is one atomic step on one server. [`Ledger`](super::Ledger)
//! defines what a step means: follow it, and the shared test cases compare your store with it.
//!
//! 1. A step may arrive twice, late, or after its caller gave up. Orders and transfers have ids, and a step
//!    that is repeated with the same id takes effect once, for as long as the segment exists.
//! 2. Everything that was answered is kept. A store that may lose it says so on its page.
//! 3. When you cannot know whether a change happened, you return
//!    [`Unknown`](crate::backend::FailureKind::Unknown).
//! 4. Time is the store's, in microseconds, and continues across restarts: reservations expire by it.
//! 5. Every step names its sale, which is compared before anything else is read or changed: a step of another
//!    sale is answered with [`OtherSale`](Answer::OtherSale) and changes nothing.

use std::{fmt, sync::Arc, time::Duration};

use crate::{backend::Call, model::name::Name};

/// A store that keeps plans and segments.
///
/// This one is a store in memory that writes down every step:
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use std::{sync::Arc, time::Duration};
/// use tidelock::{
///     Name,
///     backend::Call,
///     backends::memory::MemoryStock,
///     stock::{Answer, SegmentId, Step, StockStore, Stocks},
/// };
///
/// #[derive(Debug)]
/// struct Logged(MemoryStock);
///
/// impl StockStore for Logged {
///     fn name(&self) -> &'static str {
///         "logged"
///     }
///
///     fn plan(&self, item: &Name) -> Call<Option<String>> {
///         self.0.plan(item)
///     }
///
///     fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
///         self.0.replan(item, before, text, keep)
///     }
///
///     fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
///         println!("{segment:?}: {step:?}");
///         self.0.apply(segment, sale, step)
///     }
/// }
///
/// let stocks = Stocks::with_stores(vec![Arc::new(Logged(MemoryStock::new()))])?;
/// assert!(stocks.open("10001", 10).await?.take("order-1", 1).await?.is_taken());
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
pub trait StockStore: fmt::Debug + Send + Sync {
    /// Returns the store's name in messages.
    fn name(&self) -> &'static str;

    /// Returns the plan of an item: a text that means nothing to the store.
    fn plan(&self, item: &Name) -> Call<Option<String>>;

    /// Writes a plan in place of `before`, or where there is none, and returns whether it was written.
    ///
    /// It is not written if another text is there. No text is ever written twice, because it contains the
    /// number of its sale and a version that grows; so a plan of a closed sale never replaces one of the next
    /// sale. A plan with `keep` is forgotten after that time.
    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool>;

    /// Applies a step to a segment of a sale.
    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer>;
}

/// Identifies a segment of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId {
    /// The item.
    pub item: Name,
    /// The number of the segment.
    pub number: u32,
}

/// The id of an order: any text of 1 to 128 bytes without control characters.
pub type OrderId = Arc<str>;

/// The id of stock that moves from one segment to another, or into the first: 120 bits, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u128);

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The fence of a closed segment: no mapping has that number.
pub const CLOSED: u64 = (1 << 53) - 1;

/// A step on a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates the segment with its share of the stock. Does nothing if it exists for the same sale.
    Fill {
        /// The number of the mapping that is in force.
        fence: u64,
        /// How many.
        n: u64,
    },
    /// Takes from the segment for an order, all or nothing; 0 only asks for the order's standing. A caller
    /// with an older mapping than the segment has seen is rejected, and a newer mapping is recorded. So an
    /// order that was not found here by a newer mapping is never taken here by an older one.
    Take {
        /// The number of the caller's mapping, or [`CLOSED`]: then the segment must be closed; otherwise the
        /// caller is rejected and nothing is taken. A take never closes a segment: only
        /// [`Close`](Step::Close) does.
        fence: u64,
        /// The order.
        order: OrderId,
        /// How many.
        n: u64,
        /// For a reservation: how long it lasts unless it is confirmed.
        hold: Option<Duration>,
        /// Stock that is brought in, as by [`Bring`](Step::Bring), before anything else.
        brings: Option<(TransferId, u64)>,
    },
    /// Ends an order. Fenced like [`Take`](Step::Take).
    End {
        /// The number of the caller's mapping, or [`CLOSED`].
        fence: u64,
        /// The order.
        order: OrderId,
        /// How it ends.
        how: End,
    },
    /// Takes out up to `n`, to be brought to another segment. A repetition returns the same answer.
    Lend {
        /// Its id.
        transfer: TransferId,
        /// The largest number to take out.
        n: u64,
        /// The number of the destination segment. The stock may not be brought to any other.
        to: u32,
    },
    /// Brings stock in, once. With 0, it only asks whether the transfer was brought.
    Bring {
        /// Its id.
        transfer: TransferId,
        /// How many.
        n: u64,
    },
    /// Records that what was lent has been brought. It is remembered, so that a late repetition lends
    /// nothing.
    Settle {
        /// Its id.
        transfer: TransferId,
    },
    /// Counts the segment.
    Look,
    /// Closes the segment: every take is rejected. The segment is forgotten after `keep`.
    Close {
        /// How long orders remain known.
        keep: Duration,
    },
}

/// How an order ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The items return. An unknown order is never taken from then on.
    GiveBack,
    /// A reservation becomes a sale, unless it has expired.
    Confirm,
    /// An unknown order is never taken from then on. A known order stays as it is.
    Void,
}

/// The standing of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It took this number of items.
    Taken(u64),
    /// It has reserved this number of items.
    Held(u64),
    /// It took this number of items, and they were returned.
    Returned(u64),
    /// It was refused permanently.
    Void,
    /// It is unknown.
    Unknown,
}

/// The answer of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, now or before.
    Done,
    /// The standing of the order.
    Order(Standing),
    /// There is not enough stock for the order.
    Short {
        /// The number of items in the segment.
        remaining: u64,
        /// How many transfers that were lent are not settled.
        pending: u64,
    },
    /// The caller has an old mapping: this is the number of the current one, or [`CLOSED`].
    Stale(u64),
    /// There is no such segment.
    Absent,
    /// The segment belongs to another sale. Nothing was changed.
    OtherSale,
    /// The number that was lent.
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

/// The counts of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items that can be taken.
    pub remaining: u64,
    /// Items that are sold, without those returned or reserved.
    pub sold: u64,
    /// Items that are reserved.
    pub held: u64,
    /// Items that orders returned, by a call or because a reservation expired.
    pub returned: u64,
    /// Transfers that were lent and are not settled.
    pub lent: Vec<Lent>,
}

/// Stock that moves to another segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lent {
    /// Its id.
    pub transfer: TransferId,
    /// How many.
    pub n: u64,
    /// The number of the destination segment.
    pub to: u32,
    /// The time since it was lent.
    pub age: Duration,
}
