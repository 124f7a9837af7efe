//! ZooKeeper ("zookeeper") against the fewest requests that could do the same, with the same client, and
//! against Curator and kazoo on the same server.

use std::time::Duration;

use test_servers::{Server, Zookeeper};
use tidelock::{Locks, Name, backends::zookeeper::bare::Bare, clock::Clock};
use tokio::runtime::Runtime;

use super::{
    Effort, Threads, Wanted, contend,
    duel::{Duel, Spread},
    peers::{self, Asked, Peer},
    report::{Row, Unit},
};
use crate::progress::Progress;

const PROCESSES: usize = 8;
const TTL: Duration = Duration::from_secs(30);
/// How long those who contend do so, and how long a peer is measured alone.
const TURN: Duration = Duration::from_secs(1);

/// The rows of ZooKeeper.
pub(super) fn rows(effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Result<Vec<Row>, String> {
    let server = Zookeeper::new().durable().start().map_err(text)?;
    let bench = Bench::new(&server, if wanted.peers { peers::ZOOKEEPER } else { &[] })?;
    let mut rows = Vec::new();
    if wanted.scenario("pair") {
        rows.extend(bench.pair(effort, progress)?);
    }
    if wanted.scenario("processes") {
        rows.extend(bench.processes(effort, progress)?);
    }
    Ok(rows)
}

struct Bench {
    runtime: Runtime,
    url: String,
    locks: Locks,
    bare: Bare,
    /// Below which the bare nodes are made.
    parent: String,
    servers: String,
    peers: &'static [Peer],
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Bench {
    fn new(server: &Server, peers: &'static [Peer]) -> Result<Self, String> {
        let runtime = Threads::One.runtime()?;
        let url = server.url().to_owned();
        let locks = runtime.block_on(Locks::connect(&url)).map_err(text)?;
        let bare = runtime.block_on(Bare::connect(&url)).map_err(text)?;
        let parent = bare.path(&Name::new("bare").map_err(text)?);
        // The first lock makes what is above.
        runtime
            .block_on(async { locks.mutex("pair").ttl(TTL).lock().await?.release().await })
            .map_err(text)?;
        let servers = server.addr().to_string();
        Ok(Self { runtime, url, locks, bare, parent, servers, peers })
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

    fn bare(&self, pairs: u32) -> Result<Duration, String> {
        let clock = Clock::machine();
        let front = format!("{}/node-", self.parent);
        self.runtime.block_on(async {
            // The server removes it when it was empty for a while.
            self.bare.create_container(&self.parent).await.map_err(text)?;
            let start = clock.now();
            for _ in 0..pairs {
                let node = self.bare.create(&front).await.map_err(text)?;
                self.bare.delete(&node).await.map_err(text)?;
            }
            Ok(clock.now().since(start))
        })
    }

    fn asked(&self, processes: usize) -> Asked<'_> {
        Asked { servers: &self.servers, name: "peer", processes, tasks: 1, time: TURN }
    }

    fn pair(&self, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
        let label = "zookeeper, 1 thread: lock and release, nobody else".to_owned();
        let duel = Duel::fight(&label, effort, progress, |pairs| self.ours(pairs), |pairs| self.bare(pairs))?;
        let mut rows =
            vec![Row::duel(label, &duel, duel.cost(), "cost ≤ 1.2 × create + delete", |ratio| {
                ratio <= 1.2
            })];
        for peer in self.peers {
            let ours = || self.ours(200).map(|took| took.as_secs_f64() / 200.0);
            let scenario = "zookeeper, 1 thread: lock and release";
            rows.push(peer.against(scenario, self.asked(1), (effort.rounds / 30).max(3), progress, ours));
        }
        Ok(rows)
    }

    /// Processes on one name: hand-overs for each bare pair, and for each of a peer; and who got how many.
    fn processes(&self, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
        let rounds = (effort.rounds / 20).max(3);
        let mut fairness = Vec::new();
        let ours = |fairness: &mut Vec<f64>| {
            let counts = contend::run_all(&self.url, PROCESSES, TURN)?;
            fairness.push(super::redis::jain(
                &counts.iter().map(|count| f64::from(count.pairs)).collect::<Vec<_>>(),
            ));
            Ok::<_, String>(contend::each(&counts))
        };
        let label = "zookeeper, 8 processes, one name: a hand-over".to_owned();
        let duel = Duel::rounds(
            &label,
            rounds,
            progress,
            || ours(&mut fairness),
            || self.bare(400).map(|took| took.as_secs_f64() / 400.0),
        )?;
        let bar = "≥ 0.4 for each create + delete";
        let mut rows = vec![Row::duel(label, &duel, duel.throughput(), bar, |ratio| ratio >= 0.4)];
        for peer in self.peers {
            let scenario = "zookeeper, 8 processes, one name: a hand-over";
            let ours = || ours(&mut fairness);
            rows.push(peer.against(scenario, self.asked(PROCESSES), rounds.min(5), progress, ours));
        }
        let label = "zookeeper, 8 processes, one name: Jain's index".to_owned();
        rows.push(Row::alone(label, Unit::Plain, Spread::of(fairness), "≥ 0.95", |jain| jain >= 0.95));
        Ok(rows)
    }
}
