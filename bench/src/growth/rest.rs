//! Claims at rest: what locks that are held, and claims that wait, cost while nothing happens to them.
//!
//! The clients are in a process of their own, so that its processor time, memory and wake-ups are theirs alone.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tidelock::{Guard, Locks, testing::Clock};
use tokio::task::JoinSet;

use super::{
    limit, runtime,
    stand::{STORES, Stand, wait_for_votes},
};
use crate::contest::machine;

/// How many locks are asked for at a time.
const AT_A_TIME: u64 = 64;
/// What begins when a claim is new has ended by then.
const SETTLE: Duration = Duration::from_secs(3);

/// How many claims, and for how long they are watched.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these stores
    #[arg(long = "backend", value_name = "STORE", default_values = STORES)]
    stores: Vec<String>,
    #[command(flatten)]
    claims: Claims,
    /// For how many seconds they are watched
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// The claims of the other process.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Claims {
    /// Locks that one client holds, each with a name of its own
    #[arg(long, default_value_t = 10_000)]
    held: u64,
    /// Claims that wait
    #[arg(long, default_value_t = 0)]
    waiting: u64,
    /// Clients that wait, each with as many claims
    #[arg(long, default_value_t = 10)]
    clients: u64,
    /// Names for which they wait
    #[arg(long, default_value_t = 1)]
    lines: u64,
    /// Lease in seconds
    #[arg(long, default_value_t = 30)]
    ttl: u64,
}

/// What the process with the claims says when all are in line.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    /// Its memory before the first claim.
    before: f64,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let Claims { held, waiting, clients, lines, ttl } = args.claims;
    println!(
        "{held} held locks, {waiting} waiting claims of {clients} clients for {lines} names, ttl {ttl} s, \
         watched for {} s:",
        args.seconds
    );
    let mut kept = true;
    for store in &args.stores {
        kept &= watch(store, args).map_err(|error| format!("{store}: {error}"))?;
    }
    Ok(kept)
}

fn watch(store: &str, args: &Args) -> Result<bool, String> {
    let stand = Stand::start(store, args.claims.ttl)?;
    let (mut child, ready) = start(&stand.url, args.claims)?;
    thread::sleep(SETTLE);
    let (client, servers) = ([child.id()], stand.processes());
    let grown = machine::memory(child.id()) - ready.before;
    let clock = Clock::machine();
    let seen =
        || (clock.now(), machine::worked(&client), machine::worked(&servers), machine::wakes(child.id()));
    let (start, ours, theirs, wakes) = seen();
    thread::sleep(Duration::from_secs(args.seconds));
    let (end, ours_then, theirs_then, wakes_then) = seen();
    let seconds = end.since(start).as_secs_f64();
    // The end of its input ends it, and what it held is given back.
    drop(child.stdin.take());
    let ended = child.wait().map_err(|error| error.to_string())?;
    if !ended.success() {
        return Err("the process with the claims failed".to_owned());
    }
    let (ours, theirs) = ((ours_then - ours) / seconds * 100.0, (theirs_then - theirs) / seconds * 100.0);
    println!("{store}: client {ours:.2} %, server {theirs:.2} % of a core");
    println!("  wake-ups of the client a second    {:>9.2}", (wakes_then - wakes) / seconds);
    let mut kept = true;
    if args.claims.waiting >= 1_000 {
        kept &= limit("client and server", ours + theirs, 2.0, "%");
    } else if args.claims.held == 10_000 {
        kept &= limit("client and server", ours + theirs, 2.5, "%");
    }
    // Of fewer, what the client has anyway would count.
    if args.claims.held >= 100_000 && args.claims.waiting == 0 {
        kept &= limit("memory of a held lock", grown / args.claims.held as f64, 1_024.0, "B");
    }
    Ok(kept)
}

/// Starts the process with the claims, and waits until all are in line.
fn start(url: &str, claims: Claims) -> Result<(Child, Ready), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["growth", "claim", url]);
    let Claims { held, waiting, clients, lines, ttl } = claims;
    let numbers =
        [("held", held), ("waiting", waiting), ("clients", clients), ("lines", lines), ("ttl", ttl)];
    for (name, number) in numbers {
        command.arg(format!("--{name}={number}"));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut said = String::new();
    let output = child.stdout.take().ok_or("a process without output")?;
    BufReader::new(output).read_line(&mut said).map_err(|error| error.to_string())?;
    let ready = serde_json::from_str(&said).map_err(|error| format!("{said:?}: {error}"))?;
    Ok((child, ready))
}

/// The process with the claims.
pub(super) fn claim(url: &str, claims: Claims) -> Result<(), String> {
    runtime()?.block_on(stay(url, claims)).map_err(|error| error.to_string())
}

async fn stay(url: &str, claims: Claims) -> tidelock::Result<()> {
    let ttl = Duration::from_secs(claims.ttl);
    let locks = Locks::connect(url).await?;
    wait_for_votes(&locks).await;
    let before = machine::memory(std::process::id());
    let mut guards = hold(&locks, claims.held, ttl).await?;
    let names: Vec<_> = (0..claims.lines.min(claims.waiting)).map(|line| format!("line/{line}")).collect();
    for name in &names {
        guards.push(locks.mutex(name.as_str()).ttl(ttl).lock().await?);
    }
    let mut waiting = JoinSet::new();
    for client in 0..claims.clients.min(claims.waiting) {
        let locks = Locks::connect(url).await?;
        for claim in 0..claims.waiting / claims.clients {
            // Those who wait for a name are of different clients, as far as there are enough.
            let name = &names[((client * (claims.waiting / claims.clients) + claim) % claims.lines) as usize];
            // Tasks of a client share a claim unless each has a label of its own.
            let mutex = locks.mutex(name.as_str()).ttl(ttl).label(format!("claim {claim}"));
            waiting.spawn(async move { mutex.lock().await });
        }
    }
    let all = claims.waiting / claims.clients * claims.clients;
    while !names.is_empty() {
        let views = locks.look(names.iter().map(String::as_str)).await?;
        let in_line: usize = views.iter().map(|view| view.holders.len() + view.waiters.len()).sum();
        if in_line as u64 >= all + names.len() as u64 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{}", serde_json::json!(Ready { before }));
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    // Whatever it was: the input has ended.
    let _ = end.await;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert!(lost == 0 && waiting.try_join_next().is_none(), "{lost} locks were lost");
    // Nobody needs what is left; the servers end now.
    std::process::exit(0)
}

/// Holds locks, each with a name of its own.
async fn hold(locks: &Locks, count: u64, ttl: Duration) -> tidelock::Result<Vec<Guard>> {
    let mut tasks = JoinSet::new();
    for first in 0..AT_A_TIME.min(count) {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in (first..count).step_by(AT_A_TIME as usize) {
                guards.push(locks.mutex(format!("held/{number}")).ttl(ttl).lock().await?);
            }
            Ok::<_, tidelock::Error>(guards)
        });
    }
    let mut all = Vec::new();
    while let Some(guards) = tasks.join_next().await {
        all.extend(guards.expect("no task panics")?);
    }
    Ok(all)
}
