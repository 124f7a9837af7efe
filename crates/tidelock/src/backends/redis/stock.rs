//! Stock in Redis: a hash and an agenda for each segment, in a slot of its own, and one script for each step. Plain takes
//! from one segment go together while a call is under way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use redis::{Cmd, Value};

use super::{
    RedisConfig,
    codec::{Text, text},
    commands::name_of,
    errors::classify,
    link::{Common, Form, Link},
    scripts::{
        STOCK, STOCK_BRING, STOCK_CLOSE, STOCK_END, STOCK_FILL, STOCK_LEND, STOCK_LOOK, STOCK_PLAN,
        STOCK_SETTLE, STOCK_TAKE, STOCK_TAKES, Verb,
    },
    settings::Scripting,
    store::RedisStore,
    wake::Wake,
};
use crate::{
    backend::{Call, ClientId, Failure},
    backends::shared::{failures::in_doubt, mutex::lock},
    model::name::Name,
    stock::{
        Answer, End, SegmentId, Standing, Step, StockStore, micros, reply,
        together::{OrderStep, Together},
    },
};

/// How many segments a client remembers that it took from.
const SEGMENTS: usize = 1_024;

/// How often a step is asked for again while half of its segment is at another member, and the pause before each.
const HALVES: usize = 100;
const BETWEEN_HALVES: Duration = Duration::from_millis(20);

/// A client of Redis that keeps stock there.
///
/// [`Stocks::connect`](crate::stock::Stocks::connect) is the usual way to use it. To wrap it or to mix stores, connect
/// it yourself:
///
/// ```no_run
/// # use std::sync::Arc;
/// use tidelock::{
///     backends::redis::{RedisConfig, RedisStock},
///     stock::Stocks,
/// };
///
/// # async fn connect() -> tidelock::Result<()> {
/// let store = RedisStock::connect(RedisConfig::from_url("redis://127.0.0.1:6379")?).await?;
/// let stocks = Stocks::with_stores(vec![Arc::new(store)])?;
/// # drop(stocks);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RedisStock {
    store: Arc<RedisStore>,
    /// Of each segment and sale apart: another segment may be on a server that is away.
    takes: Mutex<HashMap<(SegmentId, u64), Together>>,
}

impl RedisStock {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login or may drop keys, and with
    /// `scripting=off`.
    pub async fn connect(config: RedisConfig) -> Result<Self, Failure> {
        let config = config.settings()?;
        if config.scripting == Scripting::Off {
            return Err(Failure::denied(
                "stock needs scripts or functions, and the URL says scripting=off: use scripting=functions",
            ));
        }
        // Stock is told nothing unasked.
        let (tell, _) = Wake::new();
        let common = Common::new(&config, &STOCK, ClientId::random(), tell);
        let store = Arc::new(RedisStore::new(config, common)?);
        for server in store.link.all().await? {
            server.connection().await?;
        }
        Ok(Self { store, takes: Mutex::default() })
    }

    fn key(&self, segment: &SegmentId) -> String {
        self.store.common.space.segment(&segment.item, segment.number)
    }

    /// The takes from a segment that may go together.
    fn takes_from(&self, segment: &SegmentId, sale: u64) -> Together {
        let mut takes = lock(&self.takes);
        let place = (segment.clone(), sale);
        if let Some(together) = takes.get(&place) {
            return together.clone();
        }
        if takes.len() >= SEGMENTS {
            takes.retain(|_, together| together.is_in_use());
        }
        let (store, key) = (Arc::clone(&self.store), self.key(segment));
        let together = Together::new(move |steps| take_together(&store, &key, steps));
        takes.insert(place, together.clone());
        together
    }
}

/// Calls a script, in place if there is nothing in the way of asking at once.
fn call<T: Send + 'static>(
    store: &Arc<RedisStore>,
    verb: &'static Verb,
    key: String,
    args: impl Fn(&mut Cmd) + Send + Sync + 'static,
    read: fn(&Value) -> Result<T, Failure>,
) -> Call<T> {
    let store = Arc::clone(store);
    let make = move |form: Form<'_>, key: &str| {
        let mut command = name_of(verb, form);
        // The agenda is not named: in a slot that is being moved a command that names two keys waits until both are in one
        // place, and most steps need only the segment. Scripts ask whether it is there before they write.
        command.arg(1).arg(key);
        args(&mut command);
        command
    };
    Call::later(async move {
        match store.ask_at_hand(|form| make(form, &key)).await {
            Some(Ok(answer)) if !is_half(&answer) => read(&answer),
            Some(Err(failure)) => Err(named(&store.link, failure)),
            _ => Box::pin(ask(&store, verb, &key, &make, read)).await,
        }
    })
}

fn take(store: &Arc<RedisStore>, key: &str, step: &OrderStep) -> Call<Answer> {
    debug_assert_eq!(step.how, "t", "only takes go together");
    let OrderStep { sale, fence, ref order, n, hold, brings, .. } = *step;
    let step = Step::Take { fence, order: Arc::clone(order), n, hold, brings };
    call(store, &STOCK_TAKE, key.to_owned(), move |command| add_arguments(command, sale, &step), answer)
}

/// Takes for several orders. What is not as simple as that is asked for alone.
fn take_together(store: &Arc<RedisStore>, key: &str, steps: &[OrderStep]) -> Call<Vec<Answer>> {
    if let [step] = steps {
        let take = take(store, key, step);
        return Call::later(async move { Ok(vec![take.await?]) });
    }
    let (store, steps): (_, Arc<[OrderStep]>) = (Arc::clone(store), steps.into());
    let args = {
        let steps = Arc::clone(&steps);
        move |command: &mut Cmd| {
            // All of them are of one sale.
            command.arg(Text(format_args!("{:016x}", steps[0].sale)));
            for step in &*steps {
                command.arg(step.fence).arg(Text(format_args!("o{}", step.order))).arg(step.n);
            }
        }
    };
    let (taken, key) = (call(&store, &STOCK_TAKES, key.to_owned(), args, numbers), key.to_owned());
    Call::later(async move {
        let taken = taken.await?;
        if taken.len() != steps.len() {
            return Err(strange("a segment"));
        }
        let answers = steps.iter().zip(taken).map(async |(step, taken)| match taken {
            0 => take(&store, &key, step).await,
            taken => Ok(Answer::Order(Standing::Taken(taken))),
        });
        join_all(answers).await.into_iter().collect()
    })
}

/// Says which server it was, where there is one.
fn named(link: &Link, failure: Failure) -> Failure {
    match link {
        Link::One(server) => server.named(failure),
        _ => failure,
    }
}

async fn ask<T>(
    store: &RedisStore,
    verb: &'static Verb,
    key: &str,
    make: &(dyn Fn(Form<'_>, &str) -> Cmd + Send + Sync),
    read: fn(&Value) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let before = store.connection_to(key).await;
    let mut answer = store.ask(verb, key, &|form| make(form, key)).await;
    for _ in 0..HALVES {
        if !is_moving(&answer) {
            break;
        }
        // The other half follows in a moment.
        tokio::time::sleep(BETWEEN_HALVES).await;
        answer = store.ask(verb, key, &|form| make(form, key)).await;
    }
    if is_moving(&answer) {
        return Err(Failure::unreachable(
            "half of a segment is missing: its slot is being moved to another member, or its agenda was deleted",
        ));
    }
    let answer = answer?;
    // Not confirmed means that it happened and may be forgotten: asked again, it says what it is.
    let confirmed = store.confirmed_by_replicas(key, before).await;
    confirmed.map_err(in_doubt)?;
    read(&answer)
}

/// Whether a script found that the agenda of its segment is not there, and did nothing.
fn is_half(answer: &Value) -> bool {
    matches!(answer, Value::Array(values) if matches!(**values, [Value::Int(8), _]))
}

/// The same, or the member that it was at says so.
fn is_moving(answer: &Result<Value, Failure>) -> bool {
    match answer {
        Ok(answer) => is_half(answer),
        Err(failure) => failure.reason.contains("non local key"),
    }
}

impl StockStore for RedisStock {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn plan(&self, item: &Name) -> Call<Option<String>> {
        let (store, key) = (Arc::clone(&self.store), self.store.common.space.plan(item));
        Call::later(async move {
            let get = |_: Form<'_>| {
                let mut get = redis::cmd("GET");
                get.arg(&key);
                get
            };
            let answer = store.link.ask(&key, &get).await?.map_err(|error| classify(&error))?;
            if answer == Value::Nil {
                return Ok(None);
            }
            text(&answer).map(|text| Some(text.to_owned())).ok_or_else(|| strange("a plan"))
        })
    }

    fn replan(&self, item: &Name, before: Option<&str>, text: &str, keep: Option<Duration>) -> Call<bool> {
        let (before, text) = (before.unwrap_or_default().to_owned(), text.to_owned());
        let key = self.store.common.space.plan(item);
        let args = move |command: &mut Cmd| {
            command.arg(&before).arg(&text);
            if let Some(keep) = keep {
                command.arg(millis(keep));
            }
        };
        call(&self.store, &STOCK_PLAN, key, args, |value| match *numbers(value)? {
            [5, written] => Ok(written == 1),
            _ => Err(strange("a plan")),
        })
    }

    fn apply(&self, segment: &SegmentId, sale: u64, step: &Step) -> Call<Answer> {
        if let Step::Take { n: 1.., hold: None, brings: None, .. } = step {
            return self.takes_from(segment, sale).apply(segment, sale, step);
        }
        let verb = match step {
            Step::Fill { .. } => &STOCK_FILL,
            Step::Take { .. } => &STOCK_TAKE,
            Step::End { .. } => &STOCK_END,
            Step::Lend { .. } => &STOCK_LEND,
            Step::Bring { .. } => &STOCK_BRING,
            Step::Settle { .. } => &STOCK_SETTLE,
            Step::Look => &STOCK_LOOK,
            Step::Close { .. } => &STOCK_CLOSE,
        };
        let step = step.clone();
        call(&self.store, verb, self.key(segment), move |command| add_arguments(command, sale, &step), answer)
    }
}

fn add_arguments(command: &mut Cmd, sale: u64, step: &Step) {
    match step {
        // Both in one word: of a plain take they are one comparison.
        Step::Take { fence, .. } | Step::End { fence, .. } => {
            command.arg(Text(format_args!("{sale:016x} {fence}")));
        }
        _ => {
            command.arg(Text(format_args!("{sale:016x}")));
        }
    }
    match step {
        Step::Fill { fence, n } => {
            command.arg(fence).arg(n);
        }
        Step::Take { order, n, hold, brings, .. } => {
            command.arg(Text(format_args!("o{order}"))).arg(n);
            match hold {
                Some(hold) => {
                    command.arg(micros(*hold));
                }
                None if brings.is_some() => {
                    command.arg("");
                }
                None => {}
            }
            if let Some((transfer, n)) = brings {
                command.arg(Text(transfer)).arg(n);
            }
        }
        Step::End { order, how, .. } => {
            let how = match how {
                End::GiveBack => "g",
                End::Confirm => "c",
                End::Void => "v",
            };
            command.arg(Text(format_args!("o{order}"))).arg(how);
        }
        Step::Lend { transfer, n, to } => {
            command.arg(Text(transfer)).arg(n).arg(to);
        }
        Step::Bring { transfer, n } => {
            command.arg(Text(transfer)).arg(n);
        }
        Step::Settle { transfer } => {
            command.arg(Text(transfer));
        }
        Step::Look => {}
        Step::Close { keep } => {
            command.arg(millis(*keep));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn strange(what: &str) -> Failure {
    Failure::denied(format!(
        "it answered what is not {what}: something else is kept under its key; use another ?prefix= in the URL"
    ))
}

fn answer(value: &Value) -> Result<Answer, Failure> {
    if let Value::Int(taken @ ..=-1) = value {
        return Ok(Answer::Order(Standing::Taken(taken.unsigned_abs())));
    }
    reply::read(&numbers(value)?).ok_or_else(|| strange("a segment"))
}

/// The numbers of a reply: ids of transfers count as two.
fn numbers(value: &Value) -> Result<Vec<u64>, Failure> {
    let Value::Array(values) = value else { return Err(strange("a segment")) };
    let mut numbers = Vec::with_capacity(values.len());
    for value in values {
        let id = text(value).and_then(|id| u128::from_str_radix(id, 16).ok());
        match (value, id) {
            (Value::Int(n), _) => numbers.push(u64::try_from(*n).map_err(|_| strange("a segment"))?),
            (_, Some(id)) => numbers.extend([(id >> 64) as u64, id as u64]),
            _ => return Err(strange("a segment")),
        }
    }
    Ok(numbers)
}
