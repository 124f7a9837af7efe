//! Limited stock, sold to many buyers.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tidelock::{
    ErrorKind, Name, Result,
    stock::{Sale, Stock, Stocks},
};
use tokio::sync::OnceCell;

use super::{
    Server,
    answer::{self, Answer},
    asked::{Asked, time, whole},
    problem::Problem,
};

/// For how many items it is remembered what was learnt about them.
const REMEMBERED: usize = 1_024;

/// The stock in the server's store, which is connected to when somebody first asks.
#[derive(Debug)]
pub(super) struct Items {
    url: String,
    stocks: OnceCell<Stocks>,
    open: Mutex<HashMap<Name, Stock>>,
}

impl Items {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), stocks: OnceCell::new(), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Name, Stock>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stocks(&self) -> Result<&Stocks> {
        self.stocks.get_or_try_init(|| Stocks::connect(&self.url)).await
    }

    /// The stock of an item that was opened, here or by another program.
    async fn find(&self, item: &Name) -> Result<Stock, Problem> {
        if let Some(stock) = self.open().get(item) {
            return Ok(stock.clone());
        }
        let stock = self.stocks().await?.find(item.as_str()).await?;
        self.keep(&stock);
        Ok(stock)
    }

    fn keep(&self, stock: &Stock) {
        let mut open = self.open();
        if open.len() >= REMEMBERED {
            open.clear();
        }
        open.insert(stock.item().clone(), stock.clone());
    }

    /// Asks the stock of an item; once more if it is in another sale by now.
    async fn ask<T: Send, W>(
        &self,
        asked: &Asked,
        work: impl Fn(Stock) -> W + Send + Sync,
    ) -> Result<T, Problem>
    where
        W: Future<Output = Result<T>> + Send,
    {
        let item = Name::new(&asked.parts[0])?;
        match work(self.find(&item).await?).await {
            Err(error) if error.is_other_sale() || error.is_closed() => {
                self.open().remove(&item);
                Ok(work(self.find(&item).await?).await?)
            }
            done => Ok(done?),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    #[serde(default, deserialize_with = "whole")]
    amount: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    segments: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order: String,
    #[serde(default, deserialize_with = "whole")]
    amount: Option<u64>,
    #[serde(default, deserialize_with = "time")]
    ttl: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ending {
    order: String,
}

/// `POST /v1/stock/{item}/open`: makes the stock, or finds it as it is.
pub(super) async fn open(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let body: Opening = asked.json()?;
    let amount = body.amount.ok_or_else(|| Problem::bad_request("give the amount: how many there are"))?;
    let mut opening = server.items.stocks().await?.open(&asked.parts[0], amount);
    if let Some(segments) = body.segments {
        opening = opening.segments(segments);
    }
    let stock = match opening.await {
        // It was opened with another number, or in other segments.
        Err(error)
            if error.kind() == ErrorKind::InvalidOption
                && server.items.find(&Name::new(&asked.parts[0])?).await.is_ok() =>
        {
            return Err(Problem::new(StatusCode::CONFLICT, "opened_otherwise", error.to_string()));
        }
        stock => stock?,
    };
    server.items.keep(&stock);
    Ok(answer::ok(&json!({"item": stock.item(), "segments": stock.segments()})))
}

/// `GET /v1/stock/{item}`: how much is left, reserved and sold.
pub(super) async fn tally(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let tally = server.items.ask(asked, |stock| async move { stock.tally().await }).await?;
    Ok(answer::ok(&json!({
        "remaining": tally.remaining,
        "reserved": tally.reserved,
        "sold": tally.sold,
        "returned": tally.returned,
    })))
}

/// `POST /v1/stock/{item}/take`: sells, once for each order.
pub(super) async fn take(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let Order { order, amount, ttl } = asked.json()?;
    if ttl.is_some() {
        return Err(Problem::bad_request("what is taken stays taken: leave out ttl, or reserve instead"));
    }
    let sale = server
        .items
        .ask(asked, |stock| {
            let order = order.clone();
            async move { stock.take(&order, amount.unwrap_or(1)).await }
        })
        .await?;
    Ok(answer::ok(&json!({"sale": word(sale)})))
}

/// `POST /v1/stock/{item}/reserve`: takes for a while.
pub(super) async fn reserve(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let Order { order, amount, ttl } = asked.json()?;
    let ttl = ttl.ok_or_else(|| Problem::bad_request("a reservation needs a ttl"))?;
    let sale = server
        .items
        .ask(asked, |stock| {
            let order = order.clone();
            async move { stock.reserve(&order, amount.unwrap_or(1), ttl).await }
        })
        .await?;
    Ok(answer::ok(&json!({"sale": word(sale)})))
}

/// `POST /v1/stock/{item}/confirm`: what was reserved is sold.
pub(super) async fn confirm(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let Ending { order } = asked.json()?;
    let confirmed = server
        .items
        .ask(asked, |stock| {
            let order = order.clone();
            async move { stock.confirm(&order).await }
        })
        .await?;
    Ok(answer::ok(&json!({"confirmed": confirmed})))
}

/// `POST /v1/stock/{item}/give_back`: what was taken or reserved can be sold again.
pub(super) async fn give_back(asked: &Asked, server: &Server) -> Result<Answer, Problem> {
    let Ending { order } = asked.json()?;
    let given_back = server
        .items
        .ask(asked, |stock| {
            let order = order.clone();
            async move { stock.give_back(&order).await }
        })
        .await?;
    Ok(answer::ok(&json!({"given_back": given_back})))
}

fn word(sale: Sale) -> &'static str {
    match sale {
        Sale::Taken => "taken",
        Sale::Reserved => "reserved",
        Sale::SoldOut => "sold_out",
        Sale::Closed => "closed",
        Sale::Returned => "returned",
    }
}
