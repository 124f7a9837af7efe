//! Connecting to stores, and opening the stock of an item.

use std::{
    collections::HashSet,
    fmt,
    future::IntoFuture,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    plan::{Plan, Stage},
    store::{Answer, CLOSED, OrderId, SegmentId, Step, StockStore, TransferId},
};
use crate::{
    backend::{Failure, FailureKind},
    claim::random_u64,
    clock::{Clock, Moment},
    connect,
    error::{Error, Result},
    name::Name,
};

/// The most that there can be of an item: scripts count exactly up to a little more than that.
const MOST: u64 = 1_000_000_000_000;
const MOST_SEGMENTS: u32 = 1_024;
/// Segments of an item when nothing is said.
const SEGMENTS: u32 = 8;
/// How long a step may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The pauses before a step is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(150)];
/// For how long a segment that was found empty is believed to be.
const EMPTY_FOR: Duration = Duration::from_millis(100);

/// A connection to one store or several that keep stock.
#[derive(Clone, Debug)]
pub struct Stocks {
    places: Arc<[Arc<dyn StockStore>]>,
}

impl Stocks {
    /// Connects to the store that a URL names. Must be called within a tokio runtime.
    ///
    /// | URL | where the stock is |
    /// |---|---|
    /// | `file:`, `file:/path`, a path | files of this machine, for all processes of this user (feature `file`) |
    /// | `memory:`, `memory:NAME` | this process |
    /// | `mysql://HOST/DATABASE` | rows of MySQL or MariaDB (feature `mysql`) |
    /// | `postgres://HOST` | rows of PostgreSQL (feature `postgres`) |
    /// | `redis://HOST` and the like | Redis; in a cluster each segment has a slot of its own (feature `redis`) |
    ///
    /// # Errors
    /// [`InvalidUrl`](crate::ErrorKind::InvalidUrl) when no store of this build has that scheme or keeps stock;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and [`Denied`](crate::ErrorKind::Denied) by the store.
    ///
    /// # Cancel safety
    /// A connection that is not finished is dropped.
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

    /// Connects to several stores that know nothing of each other: segments are dealt out to them in turn. All clients
    /// name the same stores in the same order; the plan of an item is kept in the first.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); each of them has to answer.
    ///
    /// # Cancel safety
    /// Connections that are not finished are dropped.
    ///
    /// ```
    /// # let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # rt.block_on(async {
    /// let stocks = tidelock::stock::Stocks::connect_all(["memory:one", "memory:two"]).await?;
    /// let stock = stocks.open("10001", 1000).segments(6).await?;
    /// # Ok::<(), tidelock::Error>(()) }).unwrap();
    /// ```
    pub async fn connect_all<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        let mut places = Vec::new();
        for url in urls.into_iter().map(|url| url.as_ref().to_owned()).collect::<Vec<_>>() {
            places.push(connect::stock(&url).await?);
        }
        Self::with_stores(places)
    }

    /// Stock in stores of your own.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) when there is none.
    pub fn with_stores(places: Vec<Arc<dyn StockStore>>) -> Result<Self> {
        if places.is_empty() {
            return Err(Error::invalid_option("stock needs a store: name at least one"));
        }
        Ok(Self { places: places.into() })
    }

    /// The stores, in the order in which they were named.
    pub fn stores(&self) -> &[Arc<dyn StockStore>] {
        &self.places
    }

    /// The stock of an item: made with so many if there is none, else found as it is. Await it.
    ///
    /// # Errors
    /// [`InvalidName`](crate::ErrorKind::InvalidName); [`InvalidOption`](crate::ErrorKind::InvalidOption) when it was
    /// opened with another number before; [`Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`Denied`](crate::ErrorKind::Denied) by the store.
    ///
    /// # Cancel safety
    /// It may be half made; whoever opens it next finishes it.
    pub fn open(&self, item: impl AsRef<str>, initial: u64) -> Opening {
        Opening {
            stocks: self.clone(),
            item: item.as_ref().to_owned(),
            initial: Some(initial),
            segments: None,
        }
    }

    /// The stock of an item that was opened before. Await it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Denied`](crate::ErrorKind::Denied) when there is none.
    pub fn find(&self, item: impl AsRef<str>) -> Opening {
        Opening { stocks: self.clone(), item: item.as_ref().to_owned(), initial: None, segments: None }
    }
}

/// The stock of an item about to be opened: await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before it is awaited"]
pub struct Opening {
    stocks: Stocks,
    item: String,
    initial: Option<u64>,
    segments: Option<u32>,
}

impl Opening {
    /// How many segments a new one is cut into. Default: 8, or two for each store if that is more. One that exists
    /// has as many as it has: see [`Stock::resize`].
    pub fn segments(mut self, segments: u32) -> Self {
        self.segments = Some(segments);
        self
    }

    async fn open(self) -> Result<Stock> {
        let places = self.stocks.places;
        let item = Name::new(&self.item)?;
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let segments = self.segments.unwrap_or_else(|| SEGMENTS.max(count.saturating_mul(2)));
        check_segments(segments)?;
        if self.initial.is_some_and(|initial| initial > MOST) {
            return Err(Error::invalid_option(format!("there can be at most {MOST} of an item")));
        }
        let stock = Stock(Arc::new(Inner {
            plan: Mutex::new(Arc::new(Plan::new(random_u64(), self.initial.unwrap_or(0), segments, count))),
            item,
            places,
            clock: Clock::machine(),
            empty: Mutex::default(),
            unanswered: Mutex::default(),
            transfers: (random_u64(), AtomicU64::new(0)),
        }));
        let mine = stock.plan();
        loop {
            let Some(found) = stock.read_plan().await? else {
                if self.initial.is_none() {
                    return Err(stock.denied("there is no such stock: open it with a number first"));
                }
                // Whoever is first: all others find it.
                stock.write_plan(&mine, None).await?;
                continue;
            };
            if found.stage == Stage::Filling {
                for (number, segment) in (0_u32..).zip(&found.segments) {
                    let fill = Step::Fill { sale: found.sale, fence: found.fence(), n: segment.share };
                    match stock.ask(&found, number, &fill, &mut false).await? {
                        Answer::Done => {}
                        _ => return Err(stock.denied(&format!("segment {number} belongs to another sale: its plan was lost, or the stores are named in another order"))),
                    }
                }
                stock.write_plan(&found.at(Stage::Selling), None).await?;
                continue;
            }
            if let Some(initial) = self.initial.filter(|initial| *initial != found.initial) {
                return Err(Error::invalid_option(format!(
                    "stock {:?} was opened with {} and not with {initial}: use find, or add what came later",
                    stock.item(),
                    found.initial
                )));
            }
            if found.places != count {
                return Err(Error::invalid_option(format!(
                    "stock {:?} is spread over {} stores and this client names {count}: name all of them, in the same order",
                    stock.item(),
                    found.places
                )));
            }
            stock.set_plan(found);
            return Ok(stock);
        }
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

impl IntoFuture for Opening {
    type Output = Result<Stock>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Stock>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

/// The stock of one item. Cheap to clone; all clones share what they know.
#[derive(Clone)]
pub struct Stock(pub(super) Arc<Inner>);

pub(super) struct Inner {
    item: Name,
    places: Arc<[Arc<dyn StockStore>]>,
    plan: Mutex<Arc<Plan>>,
    clock: Clock,
    /// Until when a segment is believed to be empty, by its number.
    empty: Mutex<Vec<Option<Moment>>>,
    /// Orders that were asked for and not answered.
    unanswered: Mutex<HashSet<OrderId>>,
    /// Ids of transfers: a part that is random, and a part that is counted.
    transfers: (u64, AtomicU64),
}

impl Stock {
    /// The name of the item.
    pub fn item(&self) -> &Name {
        &self.0.item
    }

    /// How many segments are in use, as far as this client knows.
    pub fn segments(&self) -> usize {
        self.plan().active().len()
    }

    pub(super) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.0.plan))
    }

    fn set_plan(&self, plan: Plan) {
        let mut known = lock(&self.0.plan);
        if known.sale != plan.sale || known.version <= plan.version {
            if known.version != plan.version {
                // Stock is elsewhere, or about to be.
                lock(&self.0.empty).clear();
            }
            *known = Arc::new(plan);
        }
    }

    /// Reads the plan again because a segment said that it goes by another.
    pub(super) async fn refresh(&self, fence: u64) -> Result<()> {
        let Some(mut plan) = self.read_plan().await? else {
            return Err(self.denied("the sale is over and forgotten"));
        };
        if fence == CLOSED {
            // Segments are closed before the plan says so.
            plan.stage = Stage::Closed;
        }
        self.set_plan(plan);
        Ok(())
    }

    pub(super) async fn read_plan(&self) -> Result<Option<Plan>> {
        let store = &self.0.places[0];
        let found = self.persist(store, || store.plan(&self.0.item), &mut false).await?;
        match found {
            None => Ok(None),
            Some((version, text)) => match Plan::from_text(version, &text) {
                Some(plan) => Ok(Some(plan)),
                None => Err(self.denied("its plan cannot be read: another program or version wrote it")),
            },
        }
    }

    /// Writes a plan in the place of the one before. Says whether nobody else was faster.
    pub(super) async fn write_plan(&self, plan: &Plan, keep: Option<Duration>) -> Result<bool> {
        let (store, text) = (&self.0.places[0], plan.to_text());
        let mut doubt = false;
        let write = || store.replan(&self.0.item, plan.version, &text, keep);
        let written = self.persist(store, write, &mut doubt).await?;
        // It may have been written by the try before.
        Ok(written || doubt && self.read_plan().await?.as_ref() == Some(plan))
    }

    /// Makes a step on a segment. In doubt: a try before may have been made, or may be made later.
    pub(super) async fn ask(
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
        match self.persist(store, || store.apply(&segment, step), doubt).await? {
            Answer::Absent => Err(self.denied(&format!(
                "segment {number} is gone: its server lost its data, or the stores are named in another order; what it had is not sold again"
            ))),
            answer => Ok(answer),
        }
    }

    /// Asks again after a failure, a few times.
    async fn persist<T: Unpin>(
        &self,
        store: &Arc<dyn StockStore>,
        ask: impl Fn() -> crate::backend::Call<T> + Send + Sync,
        doubt: &mut bool,
    ) -> Result<T> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let answer = tokio::time::timeout(PATIENCE, ask()).await;
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

    pub(super) fn denied(&self, why: &str) -> Error {
        Error::stock(self.0.places[0].name(), &self.0.item, &Failure::denied(why))
    }

    pub(super) fn unanswered(&self) -> MutexGuard<'_, HashSet<OrderId>> {
        lock(&self.0.unanswered)
    }

    pub(super) fn transfer(&self) -> TransferId {
        let (random, count) = &self.0.transfers;
        TransferId(u128::from(*random >> 8) << 64 | u128::from(count.fetch_add(1, Ordering::Relaxed)))
    }

    /// Whether it is worth asking a segment. Of those who find that it was empty a while ago one asks again; the
    /// others believe it.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
