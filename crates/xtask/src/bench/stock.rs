//! Stock on Redis, against the least script that could sell, and against the same sale under one lock.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{Client, Script, aio::MultiplexedConnection};
use test_servers::Redis;
use tidelock::{
    clock::Clock,
    stock::{Sale, Stock, Stocks},
};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    Effort, Threads, contend,
    duel::{Duel, Spread},
    report::{Row, Unit},
};
use crate::progress::Progress;

const TASKS: u32 = 64;
const SEGMENTS: u32 = 8;
const PROCESSES: usize = 8;
const REFUSED: u32 = 20_000;

/// Sells if there is one left. Knows no orders.
const LEAST: &str =
    "if tonumber(redis.call('GET', KEYS[1])) >= 1 then return redis.call('DECRBY', KEYS[1], 1) end return -1";

/// The rows of stock.
pub(super) fn rows(effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
    let server = Redis::new().start().map_err(text)?;
    let runtime = Threads::One.runtime()?;
    // A million takes in all, and as many as that in stock for turns that do not count.
    let (rounds, turn) = if effort.children > 1 { (25, 40_000) } else { (7, 8_000) };
    let bench = runtime.block_on(Bench::connect(server.url()))?;
    let label = format!("redis, 1 thread: {} takes by 64 tasks", u64::from(turn) * rounds);
    let takes = Duel::rounds(
        &label,
        rounds as usize,
        progress,
        || bench.sell(&runtime, turn),
        || bench.call_least(&runtime, turn),
    )?;
    let mut rows = vec![Row::duel(
        label,
        &takes,
        takes.throughput(),
        "throughput ≥ 0.6 × a script that takes one off, pipelined",
        |ratio| ratio >= 0.6,
    )];
    let label = "redis: takes by 64 tasks, against one lock taken for each by 8 processes".to_owned();
    let locked = Duel::rounds(
        &label,
        3,
        progress,
        || bench.sell(&runtime, turn),
        || {
            let counts = contend::run_all(server.url(), PROCESSES, Duration::from_secs(1))?;
            let seconds = counts.iter().map(|count| count.seconds).fold(0.0, f64::max);
            Ok(seconds / f64::from(counts.iter().map(|count| count.pairs).sum::<u32>()))
        },
    )?;
    let bar = "throughput ≥ 20 × lock and release alone";
    rows.push(Row::duel(label, &locked, locked.throughput(), bar, |ratio| ratio >= 20.0));
    progress.show("redis: buyers that are refused");
    let trips = runtime.block_on(bench.refuse())?;
    let label = format!("redis: {REFUSED} buyers after the end, round trips of each");
    rows.push(Row::alone(label, Unit::Plain, Spread::of(vec![trips]), "≤ 1 (and 7 in 100 ms)", |trips| {
        trips <= 1.05
    }));
    Ok(rows)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

struct Bench {
    stocks: Stocks,
    stock: Stock,
    connection: MultiplexedConnection,
    least: String,
    next: AtomicU64,
}

impl Bench {
    async fn connect(url: &str) -> Result<Self, String> {
        let stocks = Stocks::connect(url).await.map_err(text)?;
        let stock = stocks.open("bench", 100_000_000).segments(SEGMENTS).await.map_err(text)?;
        let client = Client::open(url).map_err(text)?;
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(text)?;
        let script = Script::new(LEAST);
        script.prepare_invoke().load_async(&mut connection).await.map_err(text)?;
        let mut set = redis::cmd("SET");
        set.arg("least").arg(100_000_000).exec_async(&mut connection).await.map_err(text)?;
        Ok(Self { stocks, stock, connection, least: script.get_hash().to_owned(), next: AtomicU64::new(0) })
    }

    /// Seconds for each take.
    fn sell(&self, runtime: &Runtime, takes: u32) -> Result<f64, String> {
        together(runtime, takes, || {
            let (stock, first) =
                (self.stock.clone(), self.next.fetch_add(u64::from(takes), Ordering::Relaxed));
            async move {
                for order in first..first + u64::from(takes / TASKS) {
                    let sale = stock.take(&format!("order-{order}"), 1).await.map_err(text)?;
                    if sale != Sale::Taken {
                        return Err(format!("an order was answered with {sale:?}"));
                    }
                }
                Ok(())
            }
        })
    }

    /// Seconds for each call of the least script.
    fn call_least(&self, runtime: &Runtime, calls: u32) -> Result<f64, String> {
        together(runtime, calls, || {
            let (mut connection, hash) = (self.connection.clone(), self.least.clone());
            async move {
                for _ in 0..calls / TASKS {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(&hash).arg(1).arg("least");
                    let _: i64 = call.query_async(&mut connection).await.map_err(text)?;
                }
                Ok(())
            }
        })
    }

    /// Sells out, and says how many scripts the server runs for each buyer after that.
    async fn refuse(&self) -> Result<f64, String> {
        let stock = self.stocks.open("sold out", 100).segments(SEGMENTS).await.map_err(text)?;
        for order in 0..200 {
            let _ = stock.take(&format!("first-{order}"), 1).await.map_err(text)?;
        }
        let before = self.scripts_run().await?;
        for order in 0..REFUSED {
            if stock.take(&format!("late-{order}"), 1).await.map_err(text)? != Sale::SoldOut {
                return Err("somebody bought what was not there".to_owned());
            }
        }
        Ok((self.scripts_run().await? - before) / f64::from(REFUSED))
    }

    /// How many scripts and functions the server has run.
    async fn scripts_run(&self) -> Result<f64, String> {
        let mut connection = self.connection.clone();
        let info: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.map_err(text)?;
        let calls = |line: &str| {
            let calls = ["cmdstat_evalsha:calls=", "cmdstat_fcall:calls="];
            let rest = calls.iter().find_map(|name| line.strip_prefix(name))?;
            rest.split(',').next()?.parse::<f64>().ok()
        };
        Ok(info.lines().filter_map(calls).sum())
    }
}

/// Lets 64 tasks share a turn. Says what each of their operations took.
fn together<W: Future<Output = Result<(), String>> + Send + 'static>(
    runtime: &Runtime,
    operations: u32,
    work: impl Fn() -> W,
) -> Result<f64, String> {
    let clock = Clock::machine();
    runtime.block_on(async {
        let start = clock.now();
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            tasks.spawn(work());
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(text)??;
        }
        Ok(clock.now().since(start).as_secs_f64() / f64::from(operations))
    })
}
