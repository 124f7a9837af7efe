//! `mode=redisson` beside Redisson itself: what a pair costs, and how soon each side hears of the other.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use test_servers::Redis;
use tidelock::{Locks, testing::Clock};

use super::{limit, runtime};

const NAME: &str = "fleet";
const LEASE: Duration = Duration::from_secs(30);
/// The newest one that the trials run.
const REDISSON: &str = "4.7.0";

/// How often.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds in which all three take and give back a lock for a second each
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Releases that the other side waits for, each way
    #[arg(long, default_value_t = 200)]
    releases: usize,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let java = made()?;
    let server = Redis::new().start().map_err(|error| error.to_string())?;
    let (hosts, url) = (server.addr().to_string(), server.url().to_owned());
    let shared = format!("{url}?mode=redisson");
    let ours = |url: &str, name: &str| -> Result<Peer, String> {
        let mut command = Command::new(std::env::current_exe().map_err(said)?);
        command.args(["drive", "ours", "pairs", url, name, "1", "1000"]);
        Peer::start(&mut command)
    };
    let mut contestants = [
        ours(&url, "plain")?,
        ours(&shared, "shared")?,
        Peer::start(java().args(["pairs", &hosts, "theirs", "1", "1000"]))?,
    ];
    println!("Redis, one client and one lock, {} rounds:", args.rounds);
    let (mut costs, mut lead) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let mut rates = [0.0; 3];
        for (rate, contestant) in rates.iter_mut().zip(&mut contestants) {
            *rate = contestant.rate()?;
        }
        let [plain, shared, redisson] = rates;
        println!("  plain {plain:>8.0}/s   mode=redisson {shared:>8.0}/s   Redisson {redisson:>8.0}/s");
        costs.push(plain / shared);
        lead.push(redisson / shared);
    }
    drop(contestants);
    let cost = limit("a pair, mode=redisson ÷ plain", median(costs), 1.5, "");
    let ahead = limit("pairs of Redisson ÷ ours", median(lead), 1.0, "");
    let (theirs, we) = runtime()?.block_on(wakes(&shared, java, &hosts, args.releases))?;
    println!("Redis, a release that the other side waits for, {} each way, in the median:", args.releases);
    let they = limit("until Redisson holds after us", median(theirs), 20.0, "ms");
    Ok(limit("until we hold after Redisson", median(we), 20.0, "ms") && they && cost && ahead)
}

/// Milliseconds until they hold after our release, and we after theirs.
async fn wakes(
    url: &str,
    java: impl Fn() -> Command,
    hosts: &str,
    releases: usize,
) -> Result<(Vec<f64>, Vec<f64>), String> {
    let said = |error: tidelock::Error| error.to_string();
    let (locks, clock) = (Locks::connect(url).await.map_err(said)?, Clock::machine());
    let mut java = Peer::start(java().args(["wait", hosts, NAME]))?;
    let millis = |since| clock.now().since(since).as_secs_f64() * 1e3;
    let (mut theirs, mut we) = (Vec::new(), Vec::new());
    for _ in 0..releases {
        let guard = locks.mutex(NAME).ttl(LEASE).lock().await.map_err(said)?;
        java.tell()?;
        // So that they ask before we give it back.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let given_back = clock.now();
        guard.release().await.map_err(said)?;
        java.hear()?;
        theirs.push(millis(given_back));
        // They give it back at once.
        let waited = clock.now();
        locks.mutex(NAME).ttl(LEASE).lock().await.map_err(said)?.release().await.map_err(said)?;
        we.push(millis(waited));
    }
    Ok((theirs, we))
}

/// Makes the program of Redisson, and says how it is started.
fn made() -> Result<impl Fn() -> Command, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = root.join("target/peers/redisson-fleet");
    let mut mvn = Command::new("mvn");
    mvn.args(["-q", "-B", "-f"]).arg(root.join("peers/redisson/pom.xml"));
    mvn.arg(format!("-Dpeer.target={}", target.display()));
    mvn.arg(format!("-Dredisson.version={REDISSON}")).arg("package");
    if !mvn.status().map_err(said)?.success() {
        return Err("Redisson's program could not be built: see peers/README.md".to_owned());
    }
    Ok(move || {
        let mut java = Command::new("java");
        let (jar, jars) = (target.join("redisson-peer.jar"), target.join("jars/*"));
        java.args(["-Xmx256m", "-cp"]).arg(format!("{}:{}", jar.display(), jars.display())).arg("Peer");
        java
    })
}

fn said(error: std::io::Error) -> String {
    error.to_string()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A program as `peers/README.md` says it. It ends when it is dropped.
struct Peer {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(said)?;
        let output = child.stdout.take().ok_or("a process without output")?;
        let mut peer = Self { child, said: BufReader::new(output).lines() };
        while peer.hear()? != "ready" {}
        Ok(peer)
    }

    fn tell(&mut self) -> Result<(), String> {
        self.child.stdin.as_mut().ok_or("no way to tell it")?.write_all(b"\n").map_err(said)
    }

    fn hear(&mut self) -> Result<String, String> {
        self.said.next().ok_or("a program ended: see its message")?.map_err(said)
    }

    /// Pairs in a second, in a turn.
    fn rate(&mut self) -> Result<f64, String> {
        self.tell()?;
        let turn: serde_json::Value =
            serde_json::from_str(&self.hear()?).map_err(|error| error.to_string())?;
        let number = |field: &str| turn[field].as_f64().ok_or_else(|| format!("{field} is missing: {turn}"));
        Ok(number("pairs")? / number("seconds")?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // If it is gone, so much the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
