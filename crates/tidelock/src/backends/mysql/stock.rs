//! Stock in MySQL and MariaDB: rows for plans, segments and orders, and one stored procedure for each step; steps on
//! orders go together.

use std::{fmt::Write, sync::Arc, time::Duration};

use mysql_async::Value;

use super::{
    MysqlConfig,
    codec::{column, unreadable},
    link::Link,
};
use crate::{
    backend::{Call, Failure},
    backends::shared::units::addable_micros,
    model::name::Name,
    stock::{
        Answer, SegmentId, Step, StockStore, TransferId, reply,
        together::{OrderStep, Together},
    },
};

/// A client of MySQL or MariaDB that keeps stock there.
///
/// [`Stocks::connect`](crate::stock::Stocks::connect) is the usual way to use it. To wrap it or to mix stores, connect
/// it yourself:
///
/// ```no_run
/// # use std::sync::Arc;
/// use tidelock::{
///     backends::mysql::{MysqlConfig, MysqlStock},
///     stock::Stocks,
/// };
///
/// # async fn connect() -> tidelock::Result<()> {
/// let store = MysqlStock::connect(MysqlConfig::from_url("mysql://shop@127.0.0.1/shop")?).await?;
/// let stocks = Stocks::with_stores(vec![Arc::new(store)])?;
/// # drop(stocks);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MysqlStock {
    link: Arc<Link>,
    orders: Together,
}

impl MysqlStock {
    /// Connects a client, and makes tables and procedures if they are not there. Must be called within a tokio runtime
    /// that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login, or that may forget what it
    /// confirmed.
    pub async fn connect(config: MysqlConfig) -> Result<Self, Failure> {
        let config = config.settings()?;
        let link = Link::new(config);
        link.call("CALL tidelock_version()", Vec::new()).await?;
        if link.forgets() {
            return Err(Failure::denied(
                "this server may forget sales that it confirmed: set innodb_flush_log_at_trx_commit = 1 (and sync_binlog = 1 where it has a binary log)",
            ));
        }
        let link = Arc::new(link);
        let orders = Together::new({
            let link = Arc::clone(&link);
            move |steps| apply_orders(&link, steps)
        });
        Ok(Self { link, orders })
    }
}

/// Makes steps on orders, in one transaction: a line for each, with tabs between what it has. Neither is in any name or id.
fn apply_orders(link: &Arc<Link>, steps: &[OrderStep]) -> Call<Vec<Answer>> {
    let (link, mut lines) = (Arc::clone(link), String::new());
    for OrderStep { segment, sale, fence, order, how, n, hold, brings } in steps {
        let (item, number) = (segment.item.as_str(), segment.number);
        let hold = hold.map_or(String::new(), |hold| addable_micros(hold).to_string());
        let (transfer, brought) = match brings {
            Some((transfer, n)) => (transfer.to_string(), *n),
            None => (String::new(), 0),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            lines,
            "{item}\t{number}\t{how}\t{sale}\t{fence}\t{order}\t{n}\t{hold}\t{transfer}\t{brought}"
        );
    }
    Call::later(async move {
        let answers = ask(&link, "CALL tidelock_stock_order_steps(?)", vec![lines.into()]).await?;
        reply::read_orders(&answers).ok_or_else(unreadable)
    })
}

/// Calls a procedure; its answer is numbers.
async fn ask(link: &Link, text: &'static str, values: Vec<Value>) -> Result<Vec<u64>, Failure> {
    let rows = link.call(text, values).await?;
    let answer: String = column(rows.first().ok_or_else(unreadable)?, 0)?;
    answer.split(' ').map(|number| number.parse().map_err(|_| unreadable())).collect()
}

impl StockStore for MysqlStock {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        let (link, item) = (Arc::clone(&self.link), item.clone());
        Call::later(async move {
            let rows = link.call("CALL tidelock_stock_plan(?)", vec![item.as_str().into()]).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            // Before it is the version, which no client needs.
            Ok(Some(column(row, 1)?))
        })
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        let link = Arc::clone(&self.link);
        let keep = keep.map_or(Value::NULL, micros);
        let before = before.map_or(Value::NULL, Value::from);
        let values = vec![item.as_str().into(), before, text.into(), keep];
        Call::later(async move {
            Ok(ask(&link, "CALL tidelock_stock_replan(?, ?, ?, ?)", values).await? == [5, 1])
        })
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        let link = Arc::clone(&self.link);
        let mut values: Vec<Value> = vec![segment.item.as_str().into(), segment.number.into(), sale.into()];
        let (text, more): (&'static str, Vec<Value>) = match step {
            Step::Fill { fence, n } => {
                ("CALL tidelock_stock_fill(?, ?, ?, ?, ?)", vec![fence.into(), n.into()])
            }
            Step::Take { .. } | Step::End { .. } => return self.orders.apply(segment, sale, step),
            Step::Lend { transfer, n, to } => {
                ("CALL tidelock_stock_lend(?, ?, ?, ?, ?, ?)", vec![id(*transfer), n.into(), to.into()])
            }
            Step::Bring { transfer, n } => {
                ("CALL tidelock_stock_bring(?, ?, ?, ?, ?)", vec![id(*transfer), n.into()])
            }
            Step::Settle { transfer } => ("CALL tidelock_stock_settle(?, ?, ?, ?)", vec![id(*transfer)]),
            Step::Look => ("CALL tidelock_stock_look(?, ?, ?)", Vec::new()),
            Step::Close { keep } => ("CALL tidelock_stock_close(?, ?, ?, ?)", vec![micros(*keep)]),
        };
        values.extend(more);
        Call::later(async move {
            let answer = ask(&link, text, values).await?;
            reply::read(&answer).ok_or_else(unreadable)
        })
    }
}

fn id(transfer: TransferId) -> Value {
    transfer.0.to_be_bytes().to_vec().into()
}

fn micros(time: Duration) -> Value {
    addable_micros(time).into()
}
