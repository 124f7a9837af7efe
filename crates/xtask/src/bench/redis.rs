//! Redis ("redis") against the fewest commands that could do the same, and against peers, with the
//! same driver on the same runtime and server.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{Client, Cmd, Script, Value, aio::MultiplexedConnection};
use test_servers::{Redis, Server};
use tidelock::{Guard, Locks, clock::Clock};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    Effort, Threads, Wanted, contend,
    duel::{Duel, Spread},
    peers::{self, Asked},
    report::{Row, Unit},
};
use crate::progress::Progress;

const TASKS: u32 = 64;
const PROCESSES: usize = 8;
const HELD: u32 = 10_000;
const TTL: Duration = Duration::from_secs(30);
/// How long those who contend do so, and how long a peer is measured alone.
const TURN: Duration = Duration::from_secs(1);

/// The rows of Redis.
pub(super) fn rows(effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Result<Vec<Row>, String> {
    let server = Redis::new().start().map_err(|error| error.to_string())?;
    let bench = Bench::new(&server)?;
    let mut rows = Vec::new();
    if wanted.scenario("pair") {
        rows.push(bench.pair(effort, progress)?);
    }
    if wanted.scenario("distinct") {
        rows.push(bench.distinct(effort, progress)?);
    }
    if wanted.scenario("crowd") {
        rows.extend(bench.crowd(effort, progress)?);
    }
    if wanted.scenario("processes") {
        rows.extend(bench.processes(effort, progress)?);
    }
    if wanted.scenario("held") {
        rows.extend(bench.held(progress)?);
    }
    if wanted.peers {
        rows.extend(bench.against_peers(effort, progress, wanted));
    }
    Ok(rows)
}

struct Bench {
    runtime: Runtime,
    url: String,
    addr: SocketAddr,
    locks: Locks,
    bare: Bare,
    peer: rslock::LockManager,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Bench {
    fn new(server: &Server) -> Result<Self, String> {
        let runtime = Threads::One.runtime()?;
        let url = server.url().to_owned();
        let locks = runtime.block_on(Locks::connect(&url)).map_err(text)?;
        let bare = runtime.block_on(Bare::connect(&url))?;
        let peer = rslock::LockManager::new(vec![url.clone()]);
        Ok(Self { runtime, url, addr: server.addr(), locks, bare, peer })
    }

    fn ours(&self, pairs: u32) -> Result<Duration, String> {
        let (clock, mutex) = (Clock::machine(), self.locks.mutex("pair").ttl(TTL));
        self.runtime.block_on(async {
            let start = clock.now();
            for _ in 0..pairs {
                mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
            }
            Ok(clock.now().since(start))
        })
    }

    /// Lock and release, and processes on one name, against the peers.
    fn against_peers(&self, effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Vec<Row> {
        let (servers, rounds) = (self.addr.to_string(), (effort.rounds / 30).max(3));
        let asked = Asked { servers: &servers, name: "peer", processes: 1, tasks: 1, time: TURN };
        let mut rows = Vec::new();
        for peer in peers::REDIS {
            if wanted.scenario("pair") {
                let ours = || self.ours(2_000).map(|took| took.as_secs_f64() / 2_000.0);
                rows.push(peer.against("redis: lock and release", asked, rounds, progress, ours));
            }
            if wanted.scenario("processes") {
                let many = Asked { processes: PROCESSES, ..asked };
                let ours = || Ok(contend::each(&contend::run_all(&self.url, PROCESSES, TURN)?));
                let scenario = "redis, 8 processes, one name: a hand-over";
                rows.push(peer.against(scenario, many, rounds, progress, ours));
            }
        }
        rows
    }

    fn pair(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "redis, 1 thread: lock and release, nobody else".to_owned();
        let clock = Clock::machine();
        let duel = Duel::fight(
            &label,
            effort,
            progress,
            |pairs| self.ours(pairs),
            |pairs| {
                self.runtime.block_on(async {
                    let start = clock.now();
                    for _ in 0..pairs {
                        self.bare.clone().pair("bare").await?;
                    }
                    Ok(clock.now().since(start))
                })
            },
        )?;
        Ok(Row::duel(label, &duel, duel.cost(), "cost ≤ 1.3 × SET NX PX + compare-and-delete", |ratio| {
            ratio <= 1.3
        }))
    }

    /// Tasks that do not meet: what counts is how many pairs the server and the driver can carry.
    fn distinct(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "redis, 1 thread: 64 tasks, 64 names".to_owned();
        let duel = Duel::fight(
            &label,
            effort,
            progress,
            |pairs| {
                self.together(|task| {
                    let mutex = self.locks.mutex(format!("distinct/{task}")).ttl(TTL);
                    async move {
                        for _ in 0..pairs / TASKS {
                            mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
                        }
                        Ok(())
                    }
                })
            },
            |pairs| {
                self.together(|task| {
                    let (mut bare, key) = (self.bare.clone(), format!("bare/{task}"));
                    async move {
                        for _ in 0..pairs / TASKS {
                            bare.pair(&key).await?;
                        }
                        Ok(())
                    }
                })
            },
        )?;
        Ok(Row::duel(label, &duel, duel.throughput(), "throughput ≥ 0.7 × the bare pairs", |ratio| {
            ratio >= 0.7
        }))
    }

    /// Tasks of one process on one name, against a lock that polls and against a peer.
    fn crowd(&self, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
        // Those who poll are so slow that a turn of theirs has few pairs.
        let rounds = (effort.rounds / 10).max(3);
        let ours = |pairs: u32| {
            self.together(|_| {
                let mutex = self.locks.mutex("crowd").ttl(TTL);
                async move {
                    for _ in 0..pairs / TASKS {
                        mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
                    }
                    Ok(())
                }
            })
        };
        let polling = |pairs: u32| {
            self.together(|_| {
                let mut bare = self.bare.clone();
                async move {
                    for _ in 0..pairs / TASKS {
                        bare.poll("bare crowd").await?;
                    }
                    Ok(())
                }
            })
        };
        let peer = |pairs: u32| {
            self.together(|_| {
                let manager = self.peer.clone();
                async move {
                    for _ in 0..pairs / TASKS {
                        let lock = manager.acquire(b"peer crowd", TTL).await.map_err(text)?;
                        manager.unlock(&lock.lock).await;
                    }
                    Ok(())
                }
            })
        };
        let each = |turn: &dyn Fn(u32) -> Result<Duration, String>, pairs: u32| {
            turn(pairs).map(|took| took.as_secs_f64() / f64::from(pairs))
        };
        let mut rows = Vec::new();
        type Turn<'a> = &'a dyn Fn(u32) -> Result<Duration, String>;
        let contestants: [(&str, Turn<'_>); 2] = [("SET NX in a loop", &polling), ("rslock", &peer)];
        for (name, theirs) in contestants {
            let label = format!("redis, 1 thread: 64 tasks, one name, against {name}");
            let duel = Duel::rounds(
                &label,
                rounds,
                progress,
                || each(&ours, TASKS * 256),
                || each(theirs, TASKS * 4),
            )?;
            let bar = format!("throughput ≥ 10 × {name}");
            rows.push(Row::duel(label, &duel, duel.throughput(), &bar, |ratio| ratio >= 10.0));
        }
        Ok(rows)
    }

    /// Processes on one name: hand-overs for each round trip of a bare command, and who got how many.
    fn processes(&self, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
        let label = "redis, 8 processes, one name: a hand-over".to_owned();
        let rounds = (effort.rounds / 10).max(3);
        let mut fairness = Vec::new();
        let duel = Duel::rounds(
            &label,
            rounds,
            progress,
            || {
                let counts = contend::run_all(&self.url, PROCESSES, TURN)?;
                fairness.push(jain(&counts.iter().map(|count| f64::from(count.pairs)).collect::<Vec<_>>()));
                Ok(contend::each(&counts))
            },
            || {
                self.runtime.block_on(async {
                    let (mut bare, clock) = (self.bare.clone(), Clock::machine());
                    let start = clock.now();
                    for _ in 0..4_000 {
                        bare.set("round trip").await?;
                    }
                    Ok(clock.now().since(start).as_secs_f64() / 4_000.0)
                })
            },
        )?;
        let jain = Spread::of(fairness);
        Ok(vec![
            Row::duel(label, &duel, duel.throughput(), "≥ 0.7 for each bare round trip", |ratio| {
                ratio >= 0.7
            }),
            Row::alone(
                "redis, 8 processes, one name: Jain's index".to_owned(),
                Unit::Plain,
                jain,
                "≥ 0.95",
                |jain| jain >= 0.95,
            ),
        ])
    }

    /// Many held locks: what renewing them costs the server, and what each takes there.
    fn held(&self, progress: &Progress) -> Result<Vec<Row>, String> {
        progress.show("redis: 10,000 held locks");
        self.runtime.block_on(async {
            let mut bare = self.bare.clone();
            let before = bare.info("used_memory:").await?;
            let mut guards: Vec<Guard> = Vec::new();
            for n in 0..HELD {
                guards.push(self.locks.mutex(format!("orders/{n}")).ttl(TTL).lock().await.map_err(text)?);
            }
            let memory = (bare.info("used_memory:").await? - before) / f64::from(HELD);
            tokio::time::sleep(Duration::from_secs(5)).await;
            // Not all commands: those that a script calls are counted as well.
            let start = bare.scripts_run().await?;
            tokio::time::sleep(Duration::from_secs(10)).await;
            let commands = (bare.scripts_run().await? - start) / 10.0;
            if !guards.iter().all(|guard| guard.is_held()) {
                return Err("a lock was lost while it was measured".to_owned());
            }
            drop(guards);
            Ok(vec![
                Row::alone(
                    "redis: 10,000 held, memory of each on the server".to_owned(),
                    Unit::Bytes,
                    Spread::of(vec![memory]),
                    "≤ 400 B",
                    |bytes| bytes <= 400.0,
                ),
                Row::alone(
                    "redis: 10,000 held with ttl 30 s, commands a second".to_owned(),
                    Unit::Plain,
                    Spread::of(vec![commands]),
                    "≤ 20",
                    |commands| commands <= 20.0,
                ),
            ])
        })
    }

    /// Lets 64 tasks share a turn.
    fn together<W: Future<Output = Result<(), String>> + Send + 'static>(
        &self,
        work: impl Fn(u32) -> W,
    ) -> Result<Duration, String> {
        let clock = Clock::machine();
        self.runtime.block_on(async {
            let start = clock.now();
            let mut tasks = JoinSet::new();
            for task in 0..TASKS {
                tasks.spawn(work(task));
            }
            while let Some(done) = tasks.join_next().await {
                done.map_err(text)??;
            }
            Ok(clock.now().since(start))
        })
    }
}

/// Jain's index: 1 if all got the same, 1/n if one got all.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// The bare commands.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    release: String,
}

/// Values that nobody else uses.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Bare {
    async fn connect(url: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(text)?;
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(text)?;
        let script = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
        );
        script.prepare_invoke().load_async(&mut connection).await.map_err(text)?;
        Ok(Self { connection, release: script.get_hash().to_owned() })
    }

    fn token() -> String {
        format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    async fn take(&mut self, key: &str, token: &str) -> Result<bool, String> {
        let mut set = Cmd::new();
        set.arg("SET").arg(key).arg(token).arg("NX").arg("PX").arg(30_000);
        let answer: Value = set.query_async(&mut self.connection).await.map_err(text)?;
        Ok(answer == Value::Okay)
    }

    async fn give_back(&mut self, key: &str, token: &str) -> Result<(), String> {
        let mut release = Cmd::new();
        release.arg("EVALSHA").arg(&self.release).arg(1).arg(key).arg(token);
        release.query_async(&mut self.connection).await.map_err(text)
    }

    async fn pair(&mut self, key: &str) -> Result<(), String> {
        let token = Self::token();
        if !self.take(key, &token).await? {
            return Err("the bare lock is taken".to_owned());
        }
        self.give_back(key, &token).await
    }

    async fn poll(&mut self, key: &str) -> Result<(), String> {
        let token = Self::token();
        while !self.take(key, &token).await? {}
        self.give_back(key, &token).await
    }

    async fn set(&mut self, key: &str) -> Result<(), String> {
        let mut set = Cmd::new();
        set.arg("SET").arg(key).arg("value").arg("PX").arg(30_000);
        set.query_async(&mut self.connection).await.map_err(text)
    }

    async fn info(&mut self, field: &str) -> Result<f64, String> {
        let info: String = redis::cmd("INFO").query_async(&mut self.connection).await.map_err(text)?;
        let value = info.lines().find_map(|line| line.strip_prefix(field)).ok_or("INFO lacks a field")?;
        value.trim().parse().map_err(text)
    }

    /// How many scripts the server has run.
    async fn scripts_run(&mut self) -> Result<f64, String> {
        let info: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut self.connection).await.map_err(text)?;
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()).ok_or("no scripts were run")?.parse().map_err(text)
    }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jains_index_is_one_for_equal_shares() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-9);
    }
}
