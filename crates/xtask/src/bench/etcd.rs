//! etcd ("etcd") against a bare put and delete by the same client, and against Go's concurrency package. The
//! server writes every change to the disk.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use test_servers::{Etcd, Server};
use tidelock::{Guard, Locks, backends::etcd::bare::Bare, clock::Clock};
use tokio::runtime::Runtime;

use super::{
    Effort, Threads, contend,
    duel::{Duel, Spread},
    report::{Row, Unit},
};
use crate::progress::Progress;

const PROCESSES: usize = 8;
const HELD: u32 = 10_000;
const TTL: Duration = Duration::from_secs(30);

/// The rows of etcd.
pub(super) fn rows(
    effort: Effort,
    progress: &Progress,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Row>, String> {
    let server = Etcd::new().durable().start().map_err(text)?;
    let bench = Bench::new(&server)?;
    let mut rows = Vec::new();
    if wanted("pair") {
        rows.push(bench.pair(effort, progress)?);
    }
    if wanted("processes") {
        rows.push(bench.processes(effort, progress)?);
    }
    if wanted("held") {
        rows.push(bench.held(progress)?);
    }
    Ok(rows)
}

struct Bench {
    runtime: Runtime,
    url: String,
    addr: SocketAddr,
    locks: Locks,
    bare: Bare,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Bench {
    fn new(server: &Server) -> Result<Self, String> {
        let runtime = Threads::One.runtime()?;
        let (url, addr) = (server.url().to_owned(), server.addr());
        let locks = runtime.block_on(Locks::connect(&url)).map_err(text)?;
        let bare = runtime.block_on(Bare::connect(&url)).map_err(text)?;
        Ok(Self { runtime, url, addr, locks, bare })
    }

    fn pair(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "etcd, 1 thread: lock and release, nobody else".to_owned();
        let clock = Clock::machine();
        let mutex = self.locks.mutex("pair").ttl(TTL);
        let duel = Duel::fight(
            &label,
            effort,
            progress,
            |pairs| {
                self.runtime.block_on(async {
                    let start = clock.now();
                    for _ in 0..pairs {
                        mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
                    }
                    Ok(clock.now().since(start))
                })
            },
            |pairs| {
                self.runtime.block_on(async {
                    let start = clock.now();
                    for _ in 0..pairs {
                        self.bare.put("bare").await.map_err(text)?;
                        self.bare.delete("bare").await.map_err(text)?;
                    }
                    Ok(clock.now().since(start))
                })
            },
        )?;
        Ok(Row::duel(label, &duel, duel.cost(), "cost ≤ 1.15 × a bare put + delete", |ratio| {
            ratio <= 1.15
        }))
    }

    /// Processes on one name, against as many of Go's.
    fn processes(&self, effort: Effort, progress: &Progress) -> Result<Row, String> {
        let label = "etcd, 8 processes, one name: a hand-over, against Go's concurrency package".to_owned();
        progress.show("etcd: building the Go program");
        let program = go_program()?;
        let time = Duration::from_secs(2);
        let each = |counts: Vec<contend::Count>| {
            counts.iter().map(|count| count.seconds).fold(0.0, f64::max)
                / f64::from(counts.iter().map(|count| count.pairs).sum::<u32>().max(1))
        };
        let duel = Duel::rounds(
            &label,
            (effort.rounds / 20).max(3),
            progress,
            || contend::run_all(&self.url, PROCESSES, time).map(each),
            || {
                let theirs = || {
                    let mut command = Command::new(&program);
                    let (addr, millis) = (self.addr.to_string(), time.as_millis().to_string());
                    command.args(["contend", &addr, "go/contend", &millis]);
                    command
                };
                contend::run_programs(PROCESSES, theirs).map(each)
            },
        )?;
        Ok(Row::duel(label, &duel, duel.throughput(), "≥ 1.5 × theirs", |ratio| ratio >= 1.5))
    }

    /// Many held locks: how many keep-alives the server hears.
    fn held(&self, progress: &Progress) -> Result<Row, String> {
        progress.show("etcd: 10,000 held locks");
        self.runtime.block_on(async {
            let mut guards: Vec<Guard> = Vec::new();
            for n in 0..HELD {
                guards.push(self.locks.mutex(format!("orders/{n}")).ttl(TTL).lock().await.map_err(text)?);
            }
            let start = self.keep_alives()?;
            tokio::time::sleep(Duration::from_secs(20)).await;
            let sent = (self.keep_alives()? - start) / 20.0;
            if !guards.iter().all(|guard| guard.is_held()) {
                return Err("a lock was lost while it was measured".to_owned());
            }
            drop(guards);
            Ok(Row::alone(
                "etcd: 10,000 held with ttl 30 s, keep-alives a second".to_owned(),
                Unit::Plain,
                Spread::of(vec![sent]),
                "≤ 1: one lease for all",
                |sent| sent <= 1.0,
            ))
        })
    }

    fn keep_alives(&self) -> Result<f64, String> {
        let mut stream = TcpStream::connect(self.addr).map_err(text)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").map_err(text)?;
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).map_err(text)?;
        let is_it = |line: &&str| {
            line.starts_with("grpc_server_msg_received_total")
                && line.contains("grpc_method=\"LeaseKeepAlive\"")
        };
        let line = metrics.lines().find(is_it).ok_or("no count of keep-alives")?;
        line.rsplit(' ').next().unwrap_or_default().parse().map_err(text)
    }
}

/// Builds the Go program, which takes locks the way etcd's own package does.
fn go_program() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/etcd-concurrency");
    let program = std::env::temp_dir().join("tidelock-bench-etcd-concurrency");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").current_dir(source);
    let built = go.status().map_err(|error| format!("this scenario needs Go to build its peer: {error}"))?;
    if built.success() { Ok(program) } else { Err("the Go program does not build".to_owned()) }
}
