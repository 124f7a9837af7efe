//! Stock in Redis: a hash for each segment, in a slot of its own, and one script for each step. Plain takes from one
//! segment go together while a call is under way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::sync::mpsc::unbounded_channel;

use super::{
    RedisConfig,
    codec::{Text, text},
    config::Scripting,
    errors::{classify, is_unknown},
    link::{Common, Link},
    scripts::{
        STOCK_BRING, STOCK_CLOSE, STOCK_END, STOCK_FILL, STOCK_LEND, STOCK_LOOK, STOCK_PLAN, STOCK_SETTLE,
        STOCK_TAKE, STOCK_TAKES, Verb,
    },
    servers::{Form, Servers},
    store::{RedisStore, name_of},
};
use crate::{
    backend::{Call, ClientId, Failure},
    name::Name,
    stock::{
        Answer, End, SegmentId, Standing, Step, StockStore, micros, reply,
        together::{OrderStep, Together},
    },
};

/// How many segments a client remembers that it took from.
const SEGMENTS: usize = 1_024;

/// A client of Redis that keeps stock there.
#[derive(Debug)]
pub struct RedisStock {
    store: Arc<RedisStore>,
    /// Of each segment by itself: another one may be on a server that is away.
    takes: Mutex<HashMap<SegmentId, Together>>,
}

impl RedisStock {
    /// Connects a client. Must be called within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`Unreachable`](crate::backend::FailureKind::Unreachable) when no server answers;
    /// [`Denied`](crate::backend::FailureKind::Denied) by one that refuses the login or may drop keys, and with
    /// `scripting=off`.
    pub async fn connect(config: RedisConfig) -> Result<Self, Failure> {
        if config.scripting == Scripting::Off {
            return Err(Failure::denied(
                "stock needs scripts or functions, and the URL says scripting=off: use scripting=functions",
            ));
        }
        // Stock hears nothing unasked.
        let (heard, _) = unbounded_channel();
        let config = Arc::new(config);
        let common = Arc::new(Common::new(&config, ClientId::random(), heard));
        let servers = Servers::new(&config, &common)?;
        for link in servers.all().await? {
            link.connection().await?;
        }
        let store = Arc::new(RedisStore { config, common, servers });
        Ok(Self { store, takes: Mutex::default() })
    }

    fn key(&self, segment: &SegmentId) -> String {
        self.store.common.space.segment(&segment.item, segment.number)
    }

    /// The takes from a segment that may go together.
    fn takes_from(&self, segment: &SegmentId) -> Together {
        let mut takes = self.takes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(together) = takes.get(segment) {
            return together.clone();
        }
        if takes.len() >= SEGMENTS {
            takes.retain(|_, together| together.is_in_use());
        }
        let (store, key) = (Arc::clone(&self.store), self.key(segment));
        let together = Together::new(move |steps| take_together(&store, &key, steps));
        takes.insert(segment.clone(), together.clone());
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
        // Elsewhere a script may use keys that it works out itself.
        command.arg(if form.all_keys { 2 } else { 1 }).arg(key);
        if form.all_keys {
            command.arg(Text(format_args!("{key}:a")));
        }
        args(&mut command);
        command
    };
    let Some((link, live)) = store.at_hand() else {
        return Call::later(async move { ask(&store, verb, &key, &make, read).await });
    };
    let command = make(Form::plain(&link), &key);
    Call::later(async move {
        match link.ask_live(live, &command).await {
            Ok(answer) => read(&answer),
            Err(error) if is_unknown(&error) => Box::pin(ask(&store, verb, &key, &make, read)).await,
            Err(error) => Err(named(&link, &classify(&error))),
        }
    })
}

fn take(store: &Arc<RedisStore>, key: &str, step: &OrderStep) -> Call<Answer> {
    debug_assert_eq!(step.how, "t", "only takes go together");
    let OrderStep { fence, ref order, n, hold, brings, .. } = *step;
    let step = Step::Take { fence, order: Arc::clone(order), n, hold, brings };
    call(store, &STOCK_TAKE, key.to_owned(), move |command| add_arguments(command, &step), answer)
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

fn named(link: &Link, failure: &Failure) -> Failure {
    Failure { reason: format!("{}: {}", link.address(), failure.reason).into(), kind: failure.kind }
}

async fn ask<T>(
    store: &RedisStore,
    verb: &'static Verb,
    key: &str,
    make: &(dyn Fn(Form<'_>, &str) -> Cmd + Send + Sync),
    read: fn(&Value) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let before = store.connection_to(key).await;
    let answer = store.ask(verb, key, &|form| make(form, key)).await?;
    // Not confirmed means that it happened and may be forgotten: asked again, it says what it is.
    let confirmed = store.confirmed_by_replicas(key, before).await;
    confirmed.map_err(|failure| Failure::unknown(failure.reason))?;
    read(&answer)
}

impl StockStore for RedisStock {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn plan(&self, item: &Name) -> Call<Option<(u64, String)>> {
        let (store, key) = (Arc::clone(&self.store), self.store.common.space.plan(item));
        Call::later(async move {
            let get = |_: Form<'_>| {
                let mut get = redis::cmd("GET");
                get.arg(&key);
                get
            };
            let answer = store.servers.ask(&key, &get).await?.map_err(|error| classify(&error))?;
            if answer == Value::Nil {
                return Ok(None);
            }
            let plan = text(&answer).and_then(|text| text.split_once('\n'));
            let plan = plan.and_then(|(version, text)| Some((version.parse().ok()?, text.to_owned())));
            plan.map(Some).ok_or_else(|| strange("a plan"))
        })
    }

    fn replan(&self, item: &Name, version: u64, text: &str, keep: Option<Duration>) -> Call<bool> {
        let text = text.to_owned();
        let key = self.store.common.space.plan(item);
        let args = move |command: &mut Cmd| {
            command.arg(version).arg(&text);
            if let Some(keep) = keep {
                command.arg(millis(keep));
            }
        };
        call(&self.store, &STOCK_PLAN, key, args, |value| match *numbers(value)? {
            [5, written] => Ok(written == 1),
            _ => Err(strange("a plan")),
        })
    }

    fn apply(&self, segment: &SegmentId, step: &Step) -> Call<Answer> {
        if let Step::Take { n: 1.., hold: None, brings: None, .. } = step {
            return self.takes_from(segment).apply(segment, step);
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
        call(&self.store, verb, self.key(segment), move |command| add_arguments(command, &step), answer)
    }
}

fn add_arguments(command: &mut Cmd, step: &Step) {
    match step {
        Step::Fill { sale, fence, n } => {
            command.arg(Text(format_args!("{sale:016x}"))).arg(fence).arg(n);
        }
        Step::Take { fence, order, n, hold, brings } => {
            command.arg(fence).arg(Text(format_args!("o{order}"))).arg(n);
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
        Step::End { fence, order, how } => {
            let how = match how {
                End::GiveBack => "g",
                End::Confirm => "c",
                End::Void => "v",
            };
            command.arg(fence).arg(Text(format_args!("o{order}"))).arg(how);
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
