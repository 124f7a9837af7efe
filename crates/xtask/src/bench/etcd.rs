//! etcd ("etcd") against a bare put and delete by the same client, and against its peers. The
//! server writes every change to the disk.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use test_servers::{Etcd, Server};
use tidelock::{Guard, Locks, backends::etcd::bare::Bare, clock::Clock};
use tokio::runtime::Runtime;

use super::{
    Effort, Threads, Wanted, contend,
    duel::{Duel, Spread},
    peers::{self, Asked},
    report::{Row, Unit},
};
use crate::progress::Progress;

const PROCESSES: usize = 8;
const HELD: u32 = 10_000;
const TTL: Duration = Duration::from_secs(30);
/// How long those who contend do so, and how long a peer is measured alone.
const TURN: Duration = Duration::from_secs(1);

/// The rows of etcd.
pub(super) fn rows(effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Result<Vec<Row>, String> {
    let server = Etcd::new().durable().start().map_err(text)?;
    let bench = Bench::new(&server)?;
    let mut rows = Vec::new();
    if wanted.scenario("pair") {
        rows.push(bench.pair(effort, progress)?);
    }
    if wanted.peers {
        rows.extend(bench.against_peers(effort, progress, wanted));
    }
    if wanted.scenario("held") {
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
        let label = "etcd, 1 thread: lock and release, nobody else".to_owned();
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

    /// Lock and release, and processes on one name, against the peers.
    fn against_peers(&self, effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Vec<Row> {
        let (servers, rounds) = (self.addr.to_string(), (effort.rounds / 20).max(3));
        let asked = Asked { servers: &servers, name: "peer", processes: 1, tasks: 1, time: TURN };
        let mut rows = Vec::new();
        for peer in peers::ETCD {
            if wanted.scenario("pair") {
                let ours = || self.ours(500).map(|took| took.as_secs_f64() / 500.0);
                rows.push(peer.against("etcd: lock and release", asked, rounds, progress, ours));
            }
            if wanted.scenario("processes") {
                let many = Asked { processes: PROCESSES, ..asked };
                let ours = || Ok(contend::each(&contend::run_all(&self.url, PROCESSES, TURN)?));
                let scenario = "etcd, 8 processes, one name: a hand-over";
                rows.push(peer.against(scenario, many, rounds, progress, ours));
            }
        }
        rows
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
