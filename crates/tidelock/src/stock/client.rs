//! Connecting to stores, and asking them about the stock of an item.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Handle;

use super::{
    bounds::Unanswered,
    opening::Opening,
    plan::{Plan, Stage},
    store::{Answer, CLOSED, SegmentId, Step, StockStore, TransferId},
};
use crate::{
    backend::{Failure, FailureKind},
    backends::{registry, shared::mutex::lock},
    clock::{Clock, Moment},
    engine::{attended, runtime},
    error::{Error, Result},
    model::name::Name,
};

/// The most that there can be of an item: scripts count exactly up to a little more than that.
pub(super) const MOST: u64 = 1_000_000_000_000;
const MOST_SEGMENTS: u32 = 1_024;
/// Segments of an item when nothing is said.
pub(super) const SEGMENTS: u32 = 8;
/// How long a step may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The pauses before a step is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(150)];
/// For how long a segment that was found empty is believed to be.
const EMPTY_FOR: Duration = Duration::from_millis(100);

/// A connection to one or more stores that keep stock.
#[derive(Clone, Debug)]
pub struct Stocks {
    pub(super) places: Arc<[Arc<dyn StockStore>]>,
}

impl Stocks {
    /// Connects to the store that the URL names. Must be called within a tokio runtime.
    ///
    /// | URL | where the stock is |
    /// |---|---|
    /// | `file:`, `file:/path`, a path | this machine, for all processes of this user (feature `file`) |
    /// | `memory:`, `memory:NAME` | this process |
    /// | `mysql://HOST/DATABASE` | rows of MySQL or MariaDB (feature `mysql`) |
    /// | `postgres://HOST` | rows of PostgreSQL (feature `postgres`) |
    /// | `redis://HOST` and the like | Redis; in a cluster, each segment has its own slot (feature `redis`) |
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl) when no store of this build has that scheme, or the store
    /// does not keep stock; [`Unavailable`](crate::ErrorKind::Unavailable) and
    /// [`Denied`](crate::ErrorKind::Denied) from the store.
    ///
    /// # Cancel safety
    /// Dropping the future drops an unfinished connection.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let stocks = tidelock::stock::Stocks::connect("memory:").await?;
    /// let stock = stocks.open("10001", 1000).segments(5).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_all([url]).await
    }

    /// Connects to several independent stores, over which the segments are distributed in turn.
    ///
    /// All clients must name the same stores in the same order. The plan of an item is kept in the first
    /// store.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); every store has to answer.
    ///
    /// # Cancel safety
    /// Dropping the future drops unfinished connections.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let stocks = tidelock::stock::Stocks::connect_all(["memory:one", "memory:two"]).await?;
    /// let stock = stocks.open("10001", 1000).segments(6).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect_all<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        let urls: Vec<_> = urls.into_iter().map(|url| url.as_ref().to_owned()).collect();
        runtime::connecting(async {
            let mut places = Vec::new();
            for url in &urls {
                places.push(registry::stock(url).await?);
            }
            Self::with_stores(places)
        })
        .await
    }

    /// Creates a client for stores of your own.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when `places` is empty.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// # use std::sync::Arc;
    /// use tidelock::{backends::memory::MemoryStock, stock::Stocks};
    ///
    /// let stocks = Stocks::with_stores(vec![Arc::new(MemoryStock::new()), Arc::new(MemoryStock::new())])?;
    /// let stock = stocks.open("10001", 1000).await?;
    /// assert_eq!(stock.remaining().await?, 1000);
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub fn with_stores(places: Vec<Arc<dyn StockStore>>) -> Result<Self> {
        if places.is_empty() {
            return Err(Error::invalid_option("stock needs a store: name at least one"));
        }
        Ok(Self { places: places.into() })
    }

    /// Returns the stores, in the order in which they were named.
    pub fn stores(&self) -> &[Arc<dyn StockStore>] {
        &self.places
    }

    /// Opens the stock of an item, creating it with `initial` items if it does not exist. Await the result.
    ///
    /// Stock that exists already is returned as it is.
    ///
    /// # Errors
    /// [`InvalidName`](crate::ErrorKind::InvalidName); [`InvalidOption`](crate::ErrorKind::InvalidOption)
    /// when it was opened with another number before, for this sale;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Denied`](crate::ErrorKind::Denied) from the store.
    ///
    /// # Cancel safety
    /// If the future is dropped, the stock may be partly created; the next client that opens it completes it.
    pub fn open(&self, item: impl AsRef<str>, initial: u64) -> Opening {
        Opening {
            stocks: self.clone(),
            item: item.as_ref().to_owned(),
            initial: Some(initial),
            segments: None,
        }
    }

    /// Finds the stock of an item that was opened before. Await the result.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`NoSuchStock`](crate::ErrorKind::NoSuchStock) when it was not opened.
    pub fn find(&self, item: impl AsRef<str>) -> Opening {
        Opening { stocks: self.clone(), item: item.as_ref().to_owned(), initial: None, segments: None }
    }
}

pub(super) fn check_segments(segments: u32) -> Result<()> {
    if (1..=MOST_SEGMENTS).contains(&segments) {
        return Ok(());
    }
    Err(Error::invalid_option(format!("stock has 1 to {MOST_SEGMENTS} segments, not {segments}")))
}

pub(super) fn check_amount(n: u64) -> Result<()> {
    match n {
        0 => Err(Error::invalid_option("an order for 0 would take nothing: ask for at least 1")),
        1..=MOST => Ok(()),
        _ => Err(Error::invalid_option(format!("there can be at most {MOST} of an item"))),
    }
}

/// The stock of one item in one sale. Cheap to clone; all clones share their state.
///
/// It belongs to the sale for which it was opened. When that sale is closed and the item is opened again,
/// every call fails with [`OtherSale`](crate::ErrorKind::OtherSale) and changes nothing: open the item again.
///
/// ```
/// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # rt.block_on(async {
/// use tidelock::stock::{Sale, Stocks};
///
/// let stock = Stocks::connect("memory:").await?.open("10001", 10).segments(2).await?;
/// stock.take("order-1", 3).await?;
/// stock.add(5).await?;
/// stock.resize(4).await?;
///
/// let tally = stock.tally().await?;
/// assert_eq!((tally.sold, tally.remaining), (3, 12));
///
/// stock.close().await?;
/// assert_eq!(stock.take("order-2", 1).await?, Sale::Closed);
/// # Ok::<(), tidelock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Stock(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) item: Name,
    pub(super) places: Arc<[Arc<dyn StockStore>]>,
    pub(super) plan: Mutex<Arc<Plan>>,
    pub(super) clock: Clock,
    /// Until when a segment is believed to be empty, by its number.
    pub(super) empty: Mutex<Vec<Option<Moment>>>,
    pub(super) unanswered: Mutex<Unanswered>,
    /// Ids of transfers: a part that is random, and a part that is counted.
    pub(super) transfers: (u64, AtomicU64),
}

impl Stock {
    /// Returns the name of the item.
    pub fn item(&self) -> &Name {
        &self.0.item
    }

    /// Returns the number of the sale for which this was opened. It differs for every sale of an item.
    pub fn sale(&self) -> u64 {
        self.plan().sale
    }

    /// Returns how many segments are in use, as far as this client knows.
    pub fn segments(&self) -> usize {
        self.plan().active().len()
    }

    pub(super) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.0.plan))
    }

    /// A plan of this sale that was read or written.
    pub(super) fn set_plan(&self, plan: Plan) {
        let mut known = lock(&self.0.plan);
        if known.version < plan.version {
            // Stock is elsewhere, or about to be.
            lock(&self.0.empty).clear();
            *known = Arc::new(plan);
        }
    }

    /// Reads the plan again because a segment said that it goes by another.
    pub(super) async fn refresh(&self, fence: u64) -> Result<()> {
        let (known, plan) = (self.plan(), self.read_plan().await?);
        // Segments are closed before the plan says so. One that is closed while the plan says that it sells, or the other way
        // round, was left by a client that died while it closed the sale, or is at it.
        let is_half_closed =
            if fence == CLOSED { plan.stage != Stage::Closed } else { known.stage == Stage::Closed };
        if is_half_closed {
            return Box::pin(self.close()).await;
        }
        self.set_plan(plan);
        Ok(())
    }

    /// The plan of this sale.
    ///
    /// # Errors
    /// [`OtherSale`](crate::ErrorKind::OtherSale) when the item is in a new sale;
    /// [`Closed`](crate::ErrorKind::Closed) when it is no longer sold.
    pub(super) async fn read_plan(&self) -> Result<Plan> {
        let sale = self.plan().sale;
        match self.find_plan().await? {
            Some(plan) if plan.sale == sale => Ok(plan),
            Some(_) => Err(Error::other_sale(&self.0.item, sale)),
            None => Err(Error::stock_forgotten(&self.0.item)),
        }
    }

    /// The plan of the item, of whichever sale.
    pub(super) async fn find_plan(&self) -> Result<Option<Plan>> {
        let store = &self.0.places[0];
        let Some(text) = self.persist(store, || store.plan(&self.0.item), &mut false).await? else {
            return Ok(None);
        };
        match Plan::from_text(&text) {
            Some(plan) => Ok(Some(plan)),
            None => Err(self.denied(
                "its plan cannot be read: another program or another version of tidelock wrote it; close the sale with that version, or use another item",
            )),
        }
    }

    /// Writes a plan in place of the previous one. Returns whether no other client was faster.
    pub(super) async fn write_plan(
        &self,
        before: Option<&Plan>,
        plan: &Plan,
        keep: Option<Duration>,
    ) -> Result<bool> {
        let (store, before, text) = (&self.0.places[0], before.map(Plan::to_text), plan.to_text());
        let mut doubt = false;
        let write = || store.replan(&self.0.item, before.as_deref(), &text, keep);
        let written = self.persist(store, write, &mut doubt).await?;
        // It may have been written by the try before.
        Ok(written || doubt && self.find_plan().await?.as_ref() == Some(plan))
    }

    /// Makes a segment.
    pub(super) async fn fill(&self, plan: &Plan, number: u32, fill: &Step) -> Result<()> {
        match self.try_ask(plan, number, fill, &mut false).await? {
            Answer::Done => Ok(()),
            Answer::OtherSale => Err(self.denied(&format!(
                "segment {number} belongs to another sale: if that was closed, its orders are known for a day after, and the item can be opened then; else its plan was lost, or the stores are named in another order"
            ))),
            answer => Err(self.nonsense(&answer)),
        }
    }

    /// Makes a step on a segment. In doubt: a try before may have been made, or may be made later.
    pub(super) async fn ask(
        &self,
        plan: &Plan,
        number: u32,
        step: &Step,
        doubt: &mut bool,
    ) -> Result<Answer> {
        match self.try_ask(plan, number, step, doubt).await? {
            Answer::Absent => Err(self.denied(&format!(
                "segment {number} is gone: its server lost its data, or the stores are named in another order; what it had is not sold again; close the sale"
            ))),
            Answer::OtherSale => Err(Error::other_sale(&self.0.item, plan.sale)),
            answer => Ok(answer),
        }
    }

    /// The same, where a segment may be missing.
    pub(super) async fn try_ask(
        &self,
        plan: &Plan,
        number: u32,
        step: &Step,
        doubt: &mut bool,
    ) -> Result<Answer> {
        let place = plan.segments.get(number as usize).map_or(0, |segment| segment.place as usize);
        let Some(store) = self.0.places.get(place) else {
            return Err(self.denied("its segments are at more stores than this client names"));
        };
        let segment = SegmentId { item: self.0.item.clone(), number };
        self.persist(store, || store.apply(&segment, plan.sale, step), doubt).await
    }

    /// Asks again after a failure, a few times.
    async fn persist<T: Send + Unpin + 'static>(
        &self,
        store: &Arc<dyn StockStore>,
        ask: impl Fn() -> crate::backend::Call<T> + Send + Sync,
        doubt: &mut bool,
    ) -> Result<T> {
        let mut pauses = PAUSES.into_iter();
        loop {
            // A buyer that stops polling half-way must not keep the connection from all others.
            let call = attended(&Handle::current(), ask());
            let answer = tokio::time::timeout(PATIENCE, call).await;
            let failure = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::unknown(format!("no answer within {PATIENCE:?}")),
            };
            *doubt |= failure.kind == FailureKind::Unknown;
            match pauses.next().filter(|_| failure.kind != FailureKind::Denied) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(Error::stock(store.name(), &self.0.item, &failure)),
            }
        }
    }

    pub(super) fn unreachable(&self, why: &str) -> Error {
        Error::stock(self.0.places[0].name(), &self.0.item, &Failure::unreachable(why))
    }

    pub(super) fn denied(&self, why: &str) -> Error {
        Error::stock(self.0.places[0].name(), &self.0.item, &Failure::denied(why))
    }

    pub(super) fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        lock(&self.0.unanswered)
    }

    pub(super) fn transfer(&self) -> TransferId {
        let (random, count) = &self.0.transfers;
        TransferId(u128::from(*random >> 8) << 64 | u128::from(count.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns whether it is worth asking a segment. Of the clients that find that it was empty a while ago,
    /// one asks again; the others assume that it still is.
    pub(super) fn may_have(&self, plan: &Plan, number: u32) -> bool {
        if plan.stage == Stage::Moving {
            return true;
        }
        let now = self.0.clock.now();
        match lock(&self.0.empty).get_mut(number as usize) {
            Some(Some(until)) if *until > now => false,
            Some(Some(until)) => {
                *until = now + EMPTY_FOR;
                true
            }
            _ => true,
        }
    }

    /// A segment was found empty, or stock came to it.
    pub(super) fn note(&self, number: u32, is_empty: bool) {
        let until = is_empty.then(|| self.0.clock.now() + EMPTY_FOR);
        let mut empty = lock(&self.0.empty);
        if empty.len() <= number as usize {
            empty.resize(number as usize + 1, None);
        }
        empty[number as usize] = until;
    }
}

impl fmt::Debug for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stock({:?}, {} segments)", self.0.item, self.segments())
    }
}
