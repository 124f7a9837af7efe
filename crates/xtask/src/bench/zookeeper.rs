//! ZooKeeper ("zookeeper") against the fewest requests that could do the same, with the same client, and
//! against Curator and kazoo on the same server.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use test_servers::{Server, Zookeeper};
use tidelock::{Locks, Name, backends::zookeeper::bare::Bare, clock::Clock};
use tokio::runtime::Runtime;

use super::{
    Effort, Threads, contend,
    duel::{Duel, Spread},
    report::{Row, Unit},
};
use crate::progress::Progress;

const PROCESSES: usize = 8;
const TTL: Duration = Duration::from_secs(30);
/// How long those who contend do so, and how long a peer is measured alone.
const TURN: Duration = Duration::from_secs(1);

/// The rows of ZooKeeper.
pub(super) fn rows(
    effort: Effort,
    progress: &Progress,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Row>, String> {
    let server = Zookeeper::new().durable().start().map_err(text)?;
    let bench = Bench::new(&server)?;
    let mut rows = Vec::new();
    if wanted("pair") {
        rows.extend(bench.pair(effort, progress)?);
    }
    if wanted("processes") {
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
    peers: Vec<Peers>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Bench {
    fn new(server: &Server) -> Result<Self, String> {
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
        let peers = [Peers::curator(&servers), Peers::kazoo(&servers)];
        let peers = peers.into_iter().filter_map(|peers| peers.map_err(|why| eprintln!("note: {why}")).ok());
        let peers = peers.collect();
        Ok(Self { runtime, url, locks, bare, parent, peers })
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

    fn pair(&self, effort: Effort, progress: &Progress) -> Result<Vec<Row>, String> {
        let label = "zookeeper, 1 thread: lock and release, nobody else".to_owned();
        let duel = Duel::fight(&label, effort, progress, |pairs| self.ours(pairs), |pairs| self.bare(pairs))?;
        let mut rows =
            vec![Row::duel(label, &duel, duel.cost(), "cost ≤ 1.2 × create + delete", |ratio| {
                ratio <= 1.2
            })];
        for peers in &self.peers {
            let label = format!("zookeeper, 1 thread: lock and release, against {}", peers.name);
            let each = |took: Duration| took.as_secs_f64() / 200.0;
            let duel = Duel::rounds(
                &label,
                (effort.rounds / 30).max(3),
                progress,
                || self.ours(200).map(each),
                || peers.run(1),
            )?;
            let bar = format!("faster than {}", peers.name);
            rows.push(Row::duel(label, &duel, duel.throughput(), &bar, |ratio| ratio > 1.0));
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
            let longest = counts.iter().map(|count| count.seconds).fold(0.0, f64::max);
            Ok::<_, String>(longest / f64::from(counts.iter().map(|count| count.pairs).sum::<u32>()))
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
        for peers in &self.peers {
            let label = format!("zookeeper, 8 processes, one name: against {}", peers.name);
            let duel = Duel::rounds(
                &label,
                rounds.min(5),
                progress,
                || ours(&mut fairness),
                || peers.run(PROCESSES),
            )?;
            let bar = format!("faster than {}", peers.name);
            rows.push(Row::duel(label, &duel, duel.throughput(), &bar, |ratio| ratio > 1.0));
        }
        let label = "zookeeper, 8 processes, one name: Jain's index".to_owned();
        rows.push(Row::alone(label, Unit::Plain, Spread::of(fairness), "≥ 0.95", |jain| jain >= 0.95));
        Ok(rows)
    }
}

/// Processes of another program.
struct Peers {
    name: &'static str,
    command: Box<dyn Fn() -> Command>,
    servers: String,
    /// What is between the path and the time.
    threads: &'static [&'static str],
}

/// Where programs of others are built.
fn built(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("peers").join(name)
}

fn runs(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|done| done.success())
}

impl Peers {
    fn curator(servers: &str) -> Result<Self, String> {
        let target = std::path::absolute(built("curator")).map_err(text)?;
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f", "peers/curator/pom.xml", "package"]);
        if !runs(maven.arg(format!("-Dpeer.target={}", target.display()))) {
            return Err("Curator is not measured: mvn package in peers/curator fails".to_owned());
        }
        let path =
            format!("{}:{}", target.join("curator-peer.jar").display(), target.join("jars/*").display());
        let command = move || {
            let mut java = Command::new("java");
            java.args(["-XX:-UsePerfData", "-XX:+UseSerialGC", "-Xmx128m", "-cp"]).arg(&path).arg("Peer");
            java
        };
        Ok(Self { name: "Curator", command: Box::new(command), servers: servers.to_owned(), threads: &["1"] })
    }

    fn kazoo(servers: &str) -> Result<Self, String> {
        let environment = built("kazoo");
        let python = environment.join("bin/python");
        let made = runs(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let requirements = ["-m", "pip", "install", "-q", "-r", "peers/kazoo/requirements.txt"];
        if !made || !runs(Command::new(&python).args(requirements)) {
            return Err("kazoo is not measured: pip install -r peers/kazoo/requirements.txt fails".to_owned());
        }
        let command = move || {
            let mut command = Command::new(&python);
            command.arg(Path::new("peers/kazoo/peer.py"));
            command
        };
        Ok(Self { name: "kazoo", command: Box::new(command), servers: servers.to_owned(), threads: &[] })
    }

    /// Lets so many processes take one lock for a while. Says how long a pair took.
    fn run(&self, processes: usize) -> Result<f64, String> {
        let started: Result<Vec<_>, _> = (0..processes).map(|_| self.start()).collect();
        let mut started = started?;
        for (_, said) in &mut started {
            hear(said, "ready")?;
        }
        for (child, _) in &mut started {
            child.stdin.as_mut().ok_or("no way to tell the start")?.write_all(b"\n").map_err(text)?;
        }
        let (mut pairs, mut longest) = (0.0, 0.0_f64);
        for (mut child, mut said) in started {
            let line = hear(&mut said, "pairs")?;
            let (done, nanos) = line.split_once(" nanos ").ok_or("a peer said nonsense")?;
            pairs += done.trim().parse::<f64>().map_err(text)?;
            longest = longest.max(nanos.trim().parse::<f64>().map_err(text)? / 1e9);
            child.wait().map_err(text)?;
        }
        Ok(longest / pairs)
    }

    fn start(&self) -> Result<(Child, BufReader<ChildStdout>), String> {
        let mut command = (self.command)();
        command.args(["pairs", &self.servers, &format!("/peers/{}", self.name)]).args(self.threads);
        command.arg(TURN.as_millis().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(text)?;
        let said = child.stdout.take().ok_or("a peer says nothing")?;
        Ok((child, BufReader::new(said)))
    }
}

/// The rest of the line that begins so.
fn hear(said: &mut BufReader<ChildStdout>, beginning: &str) -> Result<String, String> {
    let mut line = String::new();
    while said.read_line(&mut line).map_err(text)? > 0 {
        if let Some(rest) = line.trim().strip_prefix('@').and_then(|line| line.strip_prefix(beginning)) {
            return Ok(rest.trim().to_owned());
        }
        line.clear();
    }
    Err(format!("a peer ended without saying {beginning:?}"))
}
