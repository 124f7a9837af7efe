//! A program under test: reads steps as JSON lines, does them with the library, and answers each with a line.

use std::{
    collections::HashMap,
    fs,
    io::{self, BufRead},
    time::Duration,
};

use serde_json::{Value, json};
use tidelock::{Error, ErrorKind, Guard, Guards, Locks};
use tokio::time::Instant;

/// The store of a program.
pub(super) const URL: &str = "TIDELOCK_SCENARIO_URL";

/// Nothing that is waited for takes longer, unless it never comes.
const LIMIT: Duration = Duration::from_secs(30);

enum Held {
    One(Guard),
    All(Guards),
}

/// Runs a program, if this process is to be one.
pub(super) fn run_if_asked() -> bool {
    let Ok(url) = std::env::var(URL) else { return false };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut program = Program { locks: Locks::connect(&url).await.unwrap(), held: HashMap::new() };
        for line in io::stdin().lock().lines() {
            let step: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let answer = program.step(&step).await.unwrap_or_else(|error| failed(&error));
            println!("{answer}");
        }
    });
    true
}

fn failed(error: &Error) -> Value {
    let result = match error.kind() {
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::Lost => "lost",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::InvalidName | ErrorKind::InvalidOption => "refused",
        _ => "other",
    };
    json!({"result": result, "message": error.to_string()})
}

struct Program {
    locks: Locks,
    held: HashMap<String, Held>,
}

impl Program {
    async fn step(&mut self, step: &Value) -> Result<Value, Error> {
        let name = step["name"].as_str().unwrap_or_default();
        let held_as = step["as"].as_str().unwrap_or_default();
        Ok(match step["do"].as_str().unwrap_or_default() {
            "lock" => match self.lock(step).await? {
                Some(held) => {
                    let token = match &held {
                        Held::One(guard) => Some(guard.token().to_string()),
                        Held::All(_) => None,
                    };
                    self.held.insert(held_as.to_owned(), held);
                    json!({"result": "held", "token": token})
                }
                None if step["wait"] == 0 => json!({"result": "busy"}),
                None => json!({"result": "timed_out"}),
            },
            "release" => {
                match self.held.remove(held_as).unwrap() {
                    Held::One(guard) => guard.release().await?,
                    Held::All(guards) => guards.release().await?,
                }
                json!({"result": "released"})
            }
            "is_held" => {
                let is_held = match &self.held[held_as] {
                    Held::One(guard) => guard.is_held(),
                    Held::All(guards) => guards.is_held(),
                };
                json!({"result": if is_held { "held" } else { "not_held" }})
            }
            "lost" => match &self.held[held_as] {
                Held::One(guard) => failed(&guard.lost().await),
                Held::All(guards) => failed(&guards.lost().await),
            },
            "see" => self.see(name, step).await?,
            "evict" => {
                let views = self.locks.look([name]).await?;
                let evicted = self.locks.evict(name, views[0].holders[0].id, "test").await?;
                json!({"result": if evicted { "evicted" } else { "nobody" }})
            }
            "count" => self.count(name, step).await?,
            "total" => json!({"result": fs::read_to_string(step["file"].as_str().unwrap()).unwrap()}),
            other => panic!("there is no step {other}"),
        })
    }

    async fn lock(&self, step: &Value) -> Result<Option<Held>, Error> {
        let ttl = step["ttl"].as_f64().map_or(Duration::from_secs(30), Duration::from_secs_f64);
        let wait = step["wait"].as_f64().map(Duration::from_secs_f64);
        if let Some(names) = step["names"].as_array() {
            let lock = self.locks.multi(names.iter().filter_map(Value::as_str)).ttl(ttl);
            return Ok(match wait {
                None => Some(lock.lock().await?),
                Some(Duration::ZERO) => lock.try_lock().await?,
                Some(wait) => lock.try_lock_for(wait).await?,
            }
            .map(Held::All));
        }
        let name = step["name"].as_str().unwrap_or_default();
        let guard = if step["share"] == "shared" {
            let lock = self.locks.rw_lock(name).ttl(ttl);
            match wait {
                None => Some(lock.read().await?),
                Some(Duration::ZERO) => lock.try_read().await?,
                Some(wait) => lock.try_read_for(wait).await?,
            }
        } else if let Some(permits) = step["share"]["permits"].as_u64() {
            let of = step["share"]["of"].as_u64().unwrap();
            let (permits, of) = (u32::try_from(permits).unwrap(), u32::try_from(of).unwrap());
            let lock = self.locks.semaphore(name, of).ttl(ttl);
            match wait {
                None => Some(lock.acquire(permits).await?),
                Some(Duration::ZERO) => lock.try_acquire(permits).await?,
                Some(wait) => lock.try_acquire_for(permits, wait).await?,
            }
        } else {
            let lock = self.locks.mutex(name).ttl(ttl);
            match wait {
                None => Some(lock.lock().await?),
                Some(Duration::ZERO) => lock.try_lock().await?,
                Some(wait) => lock.try_lock_for(wait).await?,
            }
        };
        Ok(guard.map(Held::One))
    }

    async fn see(&self, name: &str, step: &Value) -> Result<Value, Error> {
        let end = Instant::now() + LIMIT;
        loop {
            let view = self.locks.look([name]).await?.into_iter().next();
            let (holders, waiters) = view.map_or((0, 0), |view| (view.holders.len(), view.waiters.len()));
            if step["holders"] == holders && step["waiters"] == waiters {
                return Ok(json!({"result": "seen"}));
            }
            if Instant::now() > end {
                return Ok(json!({"result": format!("{holders} holders, {waiters} waiters")}));
            }
        }
    }

    /// Adds to the number in a file, in two steps, which only works for one process at a time.
    async fn count(&self, name: &str, step: &Value) -> Result<Value, Error> {
        let file = step["file"].as_str().unwrap();
        for _ in 0..step["times"].as_u64().unwrap() {
            let guard = self.locks.mutex(name).lock().await?;
            let text = fs::read_to_string(file).unwrap();
            let Ok(number) = text.parse::<u64>() else {
                return Ok(json!({"result": format!("overlap with {text}")}));
            };
            fs::write(file, format!("{number} {}", std::process::id())).unwrap();
            fs::write(file, (number + 1).to_string()).unwrap();
            guard.release().await?;
        }
        Ok(json!({"result": "counted"}))
    }
}
