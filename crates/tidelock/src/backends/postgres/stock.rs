//! Stock in PostgreSQL: rows for plans, segments and orders, and one function for each step; steps on orders go together.

use std::{sync::Arc, time::Duration};

use tokio_postgres::types::{ToSql, Type};

use super::{
    PostgresConfig,
    codec::{strange, value},
    link::{Link, Verb},
};
use crate::{
    backend::{Call, ClientId, Failure, Follows},
    backends::shared::{
        following::Following,
        news,
        units::{addable_micros, natural_or_most},
    },
    model::name::Name,
    stock::{
        Answer, SegmentId, Step, StockStore, reply,
        together::{OrderStep, Together},
    },
};

const PLAN: usize = 0;
const REPLAN: usize = 1;
const FILL: usize = 2;
const ORDERS: usize = 3;
const LEND: usize = 4;
const BRING: usize = 5;
const SETTLE: usize = 6;
const LOOK: usize = 7;
const CLOSE: usize = 8;

/// By their numbers.
static VERBS: [Verb; 9] = [
    Verb { text: "SELECT plan FROM tidelock.stock_plan_of($1)", types: &[Type::TEXT] },
    Verb {
        text: "SELECT tidelock.stock_replan($1, $2, $3, $4)",
        types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
    },
    Verb {
        text: "SELECT tidelock.stock_fill($1, $2, $3, $4, $5)",
        types: &[Type::TEXT, Type::INT4, Type::TEXT, Type::INT8, Type::INT8],
    },
    Verb {
        text: "SELECT tidelock.stock_order_steps($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        types: &[
            Type::TEXT_ARRAY,
            Type::INT4_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
        ],
    },
    Verb {
        text: "SELECT tidelock.stock_lend($1, $2, $3, $4, $5, $6)",
        types: &[Type::TEXT, Type::INT4, Type::TEXT, Type::TEXT, Type::INT8, Type::INT4],
    },
    Verb {
        text: "SELECT tidelock.stock_bring($1, $2, $3, $4, $5)",
        types: &[Type::TEXT, Type::INT4, Type::TEXT, Type::TEXT, Type::INT8],
    },
    Verb {
        text: "SELECT tidelock.stock_settle($1, $2, $3, $4)",
        types: &[Type::TEXT, Type::INT4, Type::TEXT, Type::TEXT],
    },
    Verb { text: "SELECT tidelock.stock_look($1, $2, $3)", types: &[Type::TEXT, Type::INT4, Type::TEXT] },
    Verb {
        text: "SELECT tidelock.stock_close($1, $2, $3, $4)",
        types: &[Type::TEXT, Type::INT4, Type::TEXT, Type::INT8],
    },
];

/// A client of PostgreSQL that keeps stock there.
///
/// [`Stocks::connect`](crate::stock::Stocks::connect) is the usual way to use it. To wrap it or to mix stores, connect
/// it yourself:
///
/// ```no_run
/// # use std::sync::Arc;
/// use tidelock::{
///     backends::postgres::{PostgresConfig, PostgresStock},
///     stock::Stocks,
/// };
///
/// # async fn connect() -> tidelock::Result<()> {
/// let store = PostgresStock::connect(PostgresConfig::from_url("postgres://shop@127.0.0.1/shop")?).await?;
/// let stocks = Stocks::with_stores(vec![Arc::new(store)])?;
/// # drop(stocks);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PostgresStock {
    link: Arc<Link>,
    orders: Together,
}

impl PostgresStock {
    /// Connects a client, and makes the schema if it is not there. Must be called within a tokio runtime that has I/O
    /// and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers that can be written to;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login.
    pub async fn connect(config: PostgresConfig) -> Result<Self, Failure> {
        let config = config.settings()?;
        // Nothing happens to stock unasked.
        let (tell, _) = news::channel();
        let (heard, _) = Following::new(Follows::new());
        let link = Link::new(config, ClientId::random(), &VERBS, tell, heard);
        link.connection().await?;
        let orders = Together::new({
            let link = Arc::clone(&link);
            move |steps| apply_orders(&link, steps)
        });
        Ok(Self { link, orders })
    }
}

/// What an item is called in the database.
fn key(link: &Link, item: &Name) -> String {
    [link.prefix(), item.as_str()].concat()
}

/// Makes steps on orders, in one transaction.
fn apply_orders(link: &Arc<Link>, steps: &[OrderStep]) -> Call<Vec<Answer>> {
    let link = Arc::clone(link);
    let items: Vec<_> = steps.iter().map(|step| key(&link, &step.segment.item)).collect();
    let numbers: Vec<_> = steps.iter().map(|step| step.segment.number.cast_signed()).collect();
    let sales: Vec<_> = steps.iter().map(|step| sale_text(step.sale)).collect();
    let fences: Vec<_> = steps.iter().map(|step| natural_or_most(step.fence)).collect();
    let orders: Vec<_> = steps.iter().map(|step| step.order.to_string()).collect();
    let hows: Vec<_> = steps.iter().map(|step| step.how).collect();
    let ns: Vec<_> = steps.iter().map(|step| natural_or_most(step.n)).collect();
    let holds: Vec<_> = steps.iter().map(|step| step.hold.map(addable_micros)).collect();
    let transfers: Vec<_> = steps.iter().map(|step| step.brings.map(|(id, _)| id.to_string())).collect();
    let brought: Vec<_> = steps.iter().map(|step| step.brings.map(|(_, n)| natural_or_most(n))).collect();
    Call::later(async move {
        let values: [&(dyn ToSql + Sync); 10] =
            [&items, &numbers, &sales, &fences, &orders, &hows, &ns, &holds, &transfers, &brought];
        reply::read_orders(&ask(&link, ORDERS, &values).await?).ok_or_else(strange)
    })
}

/// Runs one of the statements; its answer is numbers.
async fn ask(link: &Arc<Link>, verb: usize, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<u64>, Failure> {
    let rows = link.ask(verb, values).await?.rows;
    // Halves of ids may be what looks negative.
    Ok(value::<Vec<i64>>(&rows)?.into_iter().map(i64::cast_unsigned).collect())
}

impl StockStore for PostgresStock {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        let (link, item) = (Arc::clone(&self.link), key(&self.link, item));
        Call::later(async move {
            let rows = link.ask(PLAN, &[&item]).await?.rows;
            let Some(row) = rows.first() else { return Ok(None) };
            row.try_get(0).map(Some).map_err(|_| strange())
        })
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        let (link, item, text) = (Arc::clone(&self.link), key(&self.link, item), text.to_owned());
        let before = before.map(str::to_owned);
        Call::later(async move {
            let keep = keep.map(addable_micros);
            Ok(ask(&link, REPLAN, &[&item, &before, &text, &keep]).await? == [5, 1])
        })
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        let (link, orders) = (Arc::clone(&self.link), self.orders.clone());
        let (segment, step) = (segment.clone(), step.clone());
        Call::later(async move {
            let (item, place) = (key(&link, &segment.item), segment.number.cast_signed());
            let sale_text = sale_text(sale);
            let answer = match step {
                Step::Take { .. } | Step::End { .. } => return orders.apply(&segment, sale, &step).await,
                Step::Fill { fence, n } => {
                    let values: [&(dyn ToSql + Sync); 5] =
                        [&item, &place, &sale_text, &natural_or_most(fence), &natural_or_most(n)];
                    ask(&link, FILL, &values).await?
                }
                Step::Lend { transfer, n, to } => {
                    let (transfer, to) = (transfer.to_string(), to.cast_signed());
                    ask(&link, LEND, &[&item, &place, &sale_text, &transfer, &natural_or_most(n), &to])
                        .await?
                }
                Step::Bring { transfer, n } => {
                    ask(
                        &link,
                        BRING,
                        &[&item, &place, &sale_text, &transfer.to_string(), &natural_or_most(n)],
                    )
                    .await?
                }
                Step::Settle { transfer } => {
                    ask(&link, SETTLE, &[&item, &place, &sale_text, &transfer.to_string()]).await?
                }
                Step::Look => ask(&link, LOOK, &[&item, &place, &sale_text]).await?,
                Step::Close { keep } => {
                    ask(&link, CLOSE, &[&item, &place, &sale_text, &addable_micros(keep)]).await?
                }
            };
            reply::read(&answer).ok_or_else(strange)
        })
    }
}

/// As the database has sales.
fn sale_text(sale: u64) -> String {
    format!("{sale:016x}")
}
