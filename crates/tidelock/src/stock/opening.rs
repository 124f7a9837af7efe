//! Opening the stock of an item: the first client creates it, all others find it.

use std::{
    future::IntoFuture,
    pin::Pin,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use super::{
    bounds::Readings,
    client::{Inner, MOST, SEGMENTS, Stock, Stocks, check_segments},
    plan::{Plan, Stage},
    store::Step,
};
use crate::{
    backends::shared::mutex::lock,
    clock::Clock,
    error::{Error, Result},
    model::claim::random_u64,
    model::name::Name,
};

/// A request to open the stock of an item: await it.
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before it is awaited"]
pub struct Opening {
    pub(super) stocks: Stocks,
    pub(super) item: String,
    pub(super) initial: Option<u64>,
    pub(super) segments: Option<u32>,
}

impl Opening {
    /// Sets the number of segments of new stock. Default: 8, or two for each store if that is more.
    ///
    /// Existing stock keeps its number of segments: see [`Stock::resize`].
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
        let mine = Plan::new(new_sale(), self.initial.unwrap_or(0), segments, count);
        let stock = Stock(Arc::new(Inner {
            plan: Mutex::new(Arc::new(mine.clone())),
            item,
            places,
            clock: Clock::machine(),
            empty: Mutex::default(),
            unanswered: Mutex::default(),
            transfers: (random_u64(), AtomicU64::new(0)),
        }));
        let mut readings = Readings::default();
        loop {
            readings.next(&stock).await?;
            let Some(found) = stock.find_plan().await? else {
                if self.initial.is_none() {
                    return Err(Error::no_such_stock(stock.item()));
                }
                // The first is written; all others find it.
                stock.write_plan(None, &mine, None).await?;
                continue;
            };
            if found.stage == Stage::Filling {
                for (number, segment) in (0_u32..).zip(&found.segments) {
                    let fill = Step::Fill { fence: found.fence(), n: segment.share };
                    stock.fill(&found, number, &fill).await?;
                }
                stock.write_plan(Some(&found), &found.at(Stage::Selling), None).await?;
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
            *lock(&stock.0.plan) = Arc::new(found);
            return Ok(stock);
        }
    }
}

/// The number of a new sale: never one that was used before, whatever the stores remember.
fn new_sale() -> u64 {
    random_u64().max(1)
}

impl IntoFuture for Opening {
    type Output = Result<Stock>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Stock>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}
