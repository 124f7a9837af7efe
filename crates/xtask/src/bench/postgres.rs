//! PostgreSQL ("postgres") against two bare function calls that update one row with asynchronous commits, by the same driver; against
//! a row that is polled; and against sqlx's advisory locks. The server writes to the disk what it has to.

use std::{sync::Arc, time::Duration};

use test_servers::{Postgres, Server};
use tidelock::{Locks, clock::Clock};
use tokio::{runtime::Runtime, task::JoinSet};
use tokio_postgres::{Client, NoTls, Statement};

use super::{
    Effort, Threads, Wanted, contend,
    duel::Duel,
    peers::{self, Asked},
    report::Row,
};
use crate::progress::Progress;

const PROCESSES: usize = 8;
const TASKS: u32 = 64;
const TTL: Duration = Duration::from_secs(30);
const TURN: Duration = Duration::from_secs(2);

/// The rows of PostgreSQL.
pub(super) fn rows(effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Result<Vec<Row>, String> {
    let server = Postgres::new().durable().start().map_err(text)?;
    let bench = Bench::new(&server)?;
    let mut rows = Vec::new();
    if wanted.scenario("pair") {
        rows.push(bench.pair(effort, progress)?);
    }
    if wanted.scenario("crowd") {
        rows.push(bench.crowd(effort, progress)?);
    }
    if wanted.scenario("processes") {
        rows.push(bench.against_polling(effort, progress)?);
    }
    if wanted.peers {
        rows.extend(bench.against_peers(effort, progress, wanted));
    }
    Ok(rows)
}

struct Bench {
    runtime: Runtime,
    url: String,
    locks: Locks,
    bare: Client,
    call: Statement,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The least that could do: a function that changes one row, found by its name.
const BARE: &str =
    "CREATE TABLE bare (name text PRIMARY KEY, number bigint NOT NULL, holder uuid) WITH (fillfactor = 50);
INSERT INTO bare VALUES ('bare', 0, NULL);
CREATE TABLE polled (name text PRIMARY KEY, lock_until timestamptz NOT NULL);
CREATE FUNCTION bare(p_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  given bigint;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  UPDATE bare SET number = number + 1 WHERE name = p_name RETURNING number INTO given;
  RETURN given;
END $$";

impl Bench {
    fn new(server: &Server) -> Result<Self, String> {
        let runtime = Threads::One.runtime()?;
        let url = server.url().to_owned();
        let locks = runtime.block_on(Locks::connect(&url)).map_err(text)?;
        let (bare, call) = runtime.block_on(async {
            let client = connect(&url).await?;
            client.batch_execute(BARE).await.map_err(text)?;
            let call = client.prepare("SELECT bare($1)").await.map_err(text)?;
            Ok::<_, String>((client, call))
        })?;
        Ok(Self { runtime, url, locks, bare, call })
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

    fn pair(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "postgres, 1 thread: lock and release, nobody else".to_owned();
        let clock = Clock::machine();
        let duel = Duel::fight(
            &label,
            effort,
            progress,
            |pairs| self.ours(pairs),
            |pairs| {
                self.runtime.block_on(async {
                    let start = clock.now();
                    for _ in 0..2 * pairs {
                        self.bare.query_one(&self.call, &[&"bare"]).await.map_err(text)?;
                    }
                    Ok(clock.now().since(start))
                })
            },
        )?;
        Ok(Row::duel(label, &duel, duel.cost(), "cost ≤ 1.6 × two bare calls", |ratio| ratio <= 1.6))
    }

    /// Tasks of one process on one name, against one that has it alone.
    fn crowd(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "postgres, 1 thread: 64 tasks, one name, against lock and release by one".to_owned();
        let pairs = TASKS * 256;
        let duel = Duel::rounds(
            &label,
            (effort.rounds / 10).max(3),
            progress,
            || {
                let clock = Clock::machine();
                self.runtime.block_on(async {
                    let (start, mut tasks) = (clock.now(), JoinSet::new());
                    for _ in 0..TASKS {
                        let mutex = self.locks.mutex("crowd").ttl(TTL);
                        tasks.spawn(async move {
                            for _ in 0..pairs / TASKS {
                                mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
                            }
                            Ok::<_, String>(())
                        });
                    }
                    while let Some(done) = tasks.join_next().await {
                        done.map_err(text)??;
                    }
                    Ok(clock.now().since(start).as_secs_f64() / f64::from(pairs))
                })
            },
            || self.ours(200).map(|took| took.as_secs_f64() / 200.0),
        )?;
        Ok(Row::duel(label, &duel, duel.throughput(), "throughput ≥ 20 × a pair", |ratio| ratio >= 20.0))
    }

    /// Processes on one name, against as many clients of a row that each asks for every 100 ms, as ShedLock and its kind do.
    fn against_polling(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label =
            "postgres, 8 processes, one name: a hand-over, against a row polled every 100 ms".to_owned();
        let clients: Vec<Arc<Polling>> = (0..PROCESSES)
            .map(|_| self.runtime.block_on(Polling::connect(&self.url)).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let duel = Duel::rounds(
            &label,
            (effort.rounds / 20).max(3),
            progress,
            || Ok(contend::each(&contend::run_all(&self.url, PROCESSES, TURN)?)),
            || {
                let clock = Clock::machine();
                self.runtime.block_on(async {
                    let (start, mut tasks) = (clock.now(), JoinSet::new());
                    for client in &clients {
                        let (client, clock) = (Arc::clone(client), clock.clone());
                        tasks.spawn(async move {
                            let mut pairs = 0_u32;
                            while clock.now().since(start) < TURN {
                                client.pair().await?;
                                pairs += 1;
                            }
                            Ok::<_, String>(pairs)
                        });
                    }
                    let mut pairs = 0;
                    while let Some(done) = tasks.join_next().await {
                        pairs += done.map_err(text)??;
                    }
                    Ok(clock.now().since(start).as_secs_f64() / f64::from(pairs.max(1)))
                })
            },
        )?;
        Ok(Row::duel(label, &duel, duel.throughput(), "≥ 5 × theirs", |ratio| ratio >= 5.0))
    }

    /// Lock and release, and processes on one name, against the peers.
    fn against_peers(&self, effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Vec<Row> {
        let rounds = (effort.rounds / 20).max(3);
        let asked = Asked { servers: &self.url, name: "peer", processes: 1, tasks: 1, time: TURN };
        let mut rows = Vec::new();
        for peer in peers::POSTGRES {
            if wanted.scenario("pair") {
                let ours = || self.ours(500).map(|took| took.as_secs_f64() / 500.0);
                rows.push(peer.against("postgres: lock and release", asked, rounds, progress, ours));
            }
            if wanted.scenario("processes") {
                let many = Asked { processes: PROCESSES, ..asked };
                let ours = || Ok(contend::each(&contend::run_all(&self.url, PROCESSES, TURN)?));
                let scenario = "postgres, 8 processes, one name: a hand-over";
                rows.push(peer.against(scenario, many, rounds, progress, ours));
            }
        }
        rows
    }
}

/// A client of a row that is taken if its time is over.
struct Polling {
    client: Client,
    take: Statement,
    give_back: Statement,
}

impl Polling {
    async fn connect(url: &str) -> Result<Self, String> {
        let client = connect(url).await?;
        let take = client.prepare(
            "INSERT INTO polled VALUES ('polled', now() + interval '30 s') ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until WHERE polled.lock_until <= now()",
        );
        let take = take.await.map_err(text)?;
        let give_back = client.prepare("UPDATE polled SET lock_until = now() WHERE name = 'polled'").await;
        Ok(Self { take, give_back: give_back.map_err(text)?, client })
    }

    async fn pair(&self) -> Result<(), String> {
        while self.client.execute(&self.take, &[]).await.map_err(text)? == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.client.execute(&self.give_back, &[]).await.map(drop).map_err(text)
    }
}

async fn connect(url: &str) -> Result<Client, String> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
    drop(tokio::runtime::Handle::current().spawn(connection));
    Ok(client)
}
