//! MariaDB ("mysql") against bare updates by the same driver, and against what people do without a queue: a row that is
//! asked for every 100 ms, as ShedLock has it, and `GET_LOCK`. The server writes every commit to the disk.

use std::{fs, time::Duration};

use mysql_async::{Conn, OptsBuilder, prelude::Queryable};
use test_servers::{MariaDb, Server};
use tidelock::{Locks, clock::Clock};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    Effort, Threads, Wanted,
    contend::{self, Count, each},
    duel::{Duel, Spread},
    report::{Row, Unit},
};
use crate::progress::Progress;

const TASKS: u32 = 64;
const PROCESSES: usize = 8;
const TTL: Duration = Duration::from_secs(30);
/// Pairs in a turn: each is two commits.
const PAIRS: u32 = 200;
/// How many grants must leave small tables, on how many names.
const GRANTS: u32 = 1_000_000;
const NAMES: u32 = 1_000;
/// Asks for the row that long, which takes a quarter of an hour.
const LONG_RUN: &str = "TIDELOCK_BENCH_GRANTS";

/// The rows of MariaDB.
pub(super) fn rows(effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Result<Vec<Row>, String> {
    let server = MariaDb::new().durable().start().map_err(text)?;
    let bench = Bench::new(&server)?;
    let mut rows = Vec::new();
    if wanted.scenario("pair") {
        rows.push(bench.pair(effort, progress)?);
    }
    if wanted.scenario("crowd") {
        rows.push(bench.crowd(effort, progress)?);
    }
    if wanted.scenario("processes") {
        rows.extend(bench.processes(effort, progress)?);
    }
    if wanted.scenario("grants") && std::env::var_os(LONG_RUN).is_some() {
        rows.push(bench.grants(&server, progress)?);
    }
    Ok(rows)
}

struct Bench {
    runtime: Runtime,
    url: String,
    locks: Locks,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn connect(url: &str) -> Result<Conn, String> {
    let opts = mysql_async::Opts::from_url(url).map_err(text)?;
    Conn::new(OptsBuilder::from_opts(opts).prefer_socket(false)).await.map_err(text)
}

impl Bench {
    fn new(server: &Server) -> Result<Self, String> {
        let runtime = Threads::One.runtime()?;
        let url = server.url().to_owned();
        let locks = runtime.block_on(async {
            let mut conn = connect(&url).await?;
            for statement in [
                "CREATE TABLE bare (name VARBINARY(512) PRIMARY KEY, value BIGINT) ENGINE = InnoDB",
                "INSERT INTO bare VALUES ('bare', 0)",
                "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, locked_by BIGINT NOT NULL, handed BIGINT NOT NULL) ENGINE = InnoDB",
                "INSERT INTO shedlock VALUES ('contend', '2001-01-01', 0, 0)",
            ] {
                conn.query_drop(statement).await.map_err(text)?;
            }
            Locks::connect(&url).await.map_err(text)
        })?;
        Ok(Self { runtime, url, locks })
    }

    fn pairs(&self, mutex: &tidelock::Mutex) -> Result<f64, String> {
        let clock = Clock::machine();
        self.runtime.block_on(async {
            let start = clock.now();
            for _ in 0..PAIRS {
                mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
            }
            Ok(clock.now().since(start).as_secs_f64() / f64::from(PAIRS))
        })
    }

    fn pair(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "mysql, 1 thread: lock and release, nobody else".to_owned();
        let clock = Clock::machine();
        let mutex = self.locks.mutex("pair").ttl(TTL);
        let mut conn = self.runtime.block_on(connect(&self.url))?;
        let duel = Duel::rounds(
            &label,
            effort.rounds / 2,
            progress,
            || self.pairs(&mutex),
            || {
                self.runtime.block_on(async {
                    let start = clock.now();
                    for _ in 0..2 * PAIRS {
                        let update = "UPDATE bare SET value = value + ? WHERE name = ?";
                        conn.exec_drop(update, (1, "bare")).await.map_err(text)?;
                    }
                    Ok(clock.now().since(start).as_secs_f64() / f64::from(PAIRS))
                })
            },
        )?;
        Ok(Row::duel(label, &duel, duel.cost(), "cost ≤ 1.4 × two bare committed updates", |ratio| {
            ratio <= 1.4
        }))
    }

    /// Tasks of one process on one name, against as many pairs one after the other.
    fn crowd(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        const EACH: u32 = 200;
        let label = "mysql, 1 thread: 64 tasks, one name, for each lock".to_owned();
        let (mutex, alone) = (self.locks.mutex("crowd").ttl(TTL), self.locks.mutex("alone").ttl(TTL));
        let clock = Clock::machine();
        let crowd = || {
            self.runtime.block_on(async {
                let start = clock.now();
                let mut set = JoinSet::new();
                for _ in 0..TASKS {
                    let mutex = mutex.clone();
                    set.spawn(async move {
                        for _ in 0..EACH {
                            mutex.lock().await?.release().await?;
                        }
                        Ok::<_, tidelock::Error>(())
                    });
                }
                while let Some(done) = set.join_next().await {
                    done.map_err(text)?.map_err(text)?;
                }
                Ok(clock.now().since(start).as_secs_f64() / f64::from(TASKS * EACH))
            })
        };
        let duel = Duel::rounds(&label, effort.rounds / 4, progress, crowd, || self.pairs(&alone))?;
        Ok(Row::duel(label, &duel, duel.throughput(), "≥ 20 × a pair", |ratio| ratio >= 20.0))
    }

    /// Processes on one name, against those who ask again and again, and against `GET_LOCK`.
    fn processes(&self, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
        let time = Duration::from_secs(2);
        let mut rows = Vec::new();
        for (peer, name, bar) in [
            ("shedlock", "ShedLock's row asked for every 100 ms", 5.0),
            ("getlock", "GET_LOCK in a loop, without tokens or leases", 0.0),
        ] {
            let label = format!("mysql, 8 processes, one name: a hand-over, against {name}");
            let duel = Duel::rounds(
                &label,
                (effort.rounds / 20).max(3),
                progress,
                || contend::run_all(&self.url, PROCESSES, time).map(|counts| each(&counts)),
                || {
                    contend::run_all(&format!("{peer}+{}", self.url), PROCESSES, time)
                        .map(|counts| each(&counts))
                },
            )?;
            rows.push(if bar > 0.0 {
                Row::duel(label, &duel, duel.throughput(), "≥ 5 × theirs", |ratio| ratio >= 5.0)
            } else {
                Row::duel(label, &duel, duel.throughput(), "none: it commits nothing", |_| true)
            });
        }
        Ok(rows)
    }

    /// What a million grants leave on the disk.
    fn grants(&self, server: &Server, progress: &Progress) -> Result<Row, String> {
        self.runtime.block_on(async {
            for task in 0..GRANTS / NAMES {
                progress.show(&format!("mysql: {} of {GRANTS} grants", task * NAMES));
                let mut set = JoinSet::new();
                for part in 0..8 {
                    let locks = self.locks.clone();
                    set.spawn(async move {
                        for n in (part..NAMES).step_by(8) {
                            locks.mutex(format!("grants/{n}")).lock().await?.release().await?;
                        }
                        Ok::<_, tidelock::Error>(())
                    });
                }
                while let Some(done) = set.join_next().await {
                    done.map_err(text)?.map_err(text)?;
                }
            }
            Ok::<_, String>(())
        })?;
        let mut bytes = 0;
        for file in fs::read_dir(server.folder().join("data/test")).map_err(text)? {
            let file = file.map_err(text)?;
            if file.file_name().to_string_lossy().starts_with("tidelock_") {
                bytes += file.metadata().map_err(text)?.len();
            }
        }
        Ok(Row::alone(
            "mysql: tables after 1,000,000 grants of 1,000 names".to_owned(),
            Unit::Bytes,
            Spread::of(vec![bytes as f64]),
            "< 10 MiB",
            |bytes| bytes < 10.0 * 1_048_576.0,
        ))
    }
}

/// One process of several that contend without us, if a URL names such a peer.
pub(super) fn peer(
    url: &str,
    time: Duration,
    begin: impl FnOnce() -> Result<(), String>,
) -> Option<Result<Count, String>> {
    let (kind, url) = url.split_once('+').filter(|(kind, _)| matches!(*kind, "shedlock" | "getlock"))?;
    Some(Threads::One.runtime().and_then(|runtime| {
        runtime.block_on(async {
            let mut conn = connect(url).await?;
            begin()?;
            let clock = Clock::machine();
            let (start, mut pairs) = (clock.now(), 0);
            while clock.now().since(start) < time {
                pairs += u32::from(match kind {
                    "shedlock" => shedlock(&mut conn).await?,
                    _ => get_lock(&mut conn).await?,
                });
            }
            Ok(Count { pairs, seconds: clock.now().since(start).as_secs_f64() })
        })
    }))
}

/// As ShedLock does it: one guarded update, and a pause when somebody else has it. Whoever gives it back finds it free and
/// takes it again before others ask, so only what went from one process to another counts.
async fn shedlock(conn: &mut Conn) -> Result<bool, String> {
    let take = "UPDATE shedlock SET lock_until = TIMESTAMPADD(SECOND, 30, UTC_TIMESTAMP(3)), handed = locked_by <> CONNECTION_ID(), locked_by = CONNECTION_ID() WHERE name = ? AND lock_until <= UTC_TIMESTAMP(3)";
    conn.exec_drop(take, ("contend",)).await.map_err(text)?;
    if conn.affected_rows() == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        return Ok(false);
    }
    let handed: Option<u8> = conn.query_first("SELECT handed FROM shedlock").await.map_err(text)?;
    let give = "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = ?";
    conn.exec_drop(give, ("contend",)).await.map_err(text)?;
    Ok(handed == Some(1))
}

async fn get_lock(conn: &mut Conn) -> Result<bool, String> {
    let got: Option<Option<u8>> =
        conn.exec_first("SELECT GET_LOCK(?, 10)", ("contend",)).await.map_err(text)?;
    if got.flatten() != Some(1) {
        return Ok(false);
    }
    conn.exec_drop("DO RELEASE_LOCK(?)", ("contend",)).await.map_err(text)?;
    Ok(true)
}
