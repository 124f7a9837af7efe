//! `ls` on Redis: many names are remembered, few are held.

use std::{process::Command, time::Duration};

use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use test_servers::{Redis, Server};
use tidelock::{Guard, Locks, testing::Clock};

use super::{limit, runtime};
use crate::contest::machine;

/// No lock is renewed while others are listed.
const TTL: Duration = Duration::from_secs(900);
/// How many names are written in one message.
const TOGETHER: u64 = 10_000;

/// How much there is to list.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names that nobody uses, and that the server remembers
    #[arg(long, default_value_t = 1_000_000)]
    names: u64,
    /// Locks that are held
    #[arg(long, default_value_t = 20_000)]
    held: u64,
    /// A cluster of three masters instead of one server
    #[arg(long)]
    cluster: bool,
    /// Options of the URL, such as scripting=off
    #[arg(long, default_value = "")]
    options: String,
}

/// What the process that listed says.
#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    locks: usize,
    seconds: f64,
    peak_mb: f64,
}

/// Lists all locks once, and prints what that took.
pub(super) fn list(url: &str) -> Result<(), String> {
    let listed = runtime()?.block_on(async {
        let locks = Locks::connect(url).await?;
        let clock = Clock::machine();
        let began = clock.now();
        let views = locks.look_all().await?;
        let seconds = clock.now().since(began).as_secs_f64();
        Ok::<_, tidelock::Error>(Listed { locks: views.len(), seconds, peak_mb: machine::peak() / 1e6 })
    });
    let listed = listed.map_err(|error| error.to_string())?;
    println!("{}", serde_json::to_string(&listed).map_err(|error| error.to_string())?);
    Ok(())
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let said = |error: test_servers::Error| error.to_string();
    // Whatever takes longer than a tenth of a millisecond is written down.
    let server = Redis::new().config("slowlog-log-slower-than", "100").config("slowlog-max-len", "100000");
    if args.cluster {
        let cluster = server.start_cluster().map_err(said)?;
        measure(args, cluster.url(), &cluster.masters())
    } else {
        let server = server.start().map_err(said)?;
        measure(args, server.url(), &[&server])
    }
}

fn measure(args: &Args, url: &str, servers: &[&Server]) -> Result<bool, String> {
    let url = if args.options.is_empty() { url.to_owned() } else { format!("{url}?{}", args.options) };
    let runtime = runtime()?;
    eprintln!("{} names are written and {} locks acquired …", args.names, args.held);
    let held = runtime.block_on(prepare(args, &url, servers))?;
    for server in servers {
        ask(server, &["CONFIG", "RESETSTAT"])?;
        ask(server, &["SLOWLOG", "RESET"])?;
    }
    let pids: Vec<u32> = servers.iter().filter_map(|server| server.pid()).collect();
    let before = machine::worked(&pids);
    let listed = list_elsewhere(&url)?;
    let server_seconds = machine::worked(&pids) - before;
    let mut slowest: f64 = 0.0;
    for server in servers {
        slowest = slowest.max(runtime.block_on(slowest_call(server))?);
    }
    println!("Redis, {} remembered names, {} held, {} server(s):", args.names, args.held, servers.len());
    println!("  listed {} locks in {:.2} s", listed.locks, listed.seconds);
    for server in servers {
        let statistics = ask(server, &["INFO", "commandstats"])?;
        calls(&statistics).into_iter().for_each(|line| println!("  {line}"));
    }
    let kept = [
        limit("processor time of the server", server_seconds, 2.0, "s"),
        limit("longest single call", slowest / 1e3, 5.0, "ms"),
        limit("most memory of the client", listed.peak_mb, 100.0, "MB"),
        limit("locks that were missed", args.held as f64 - listed.locks as f64, 0.0, ""),
    ];
    // The server ends with all of them.
    std::mem::forget(held);
    Ok(kept.into_iter().all(|kept| kept))
}

fn list_elsewhere(url: &str) -> Result<Listed, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program).args(["growth", "list", url]).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said)
        .map_err(|_| format!("the listing failed: {}", String::from_utf8_lossy(&output.stderr)))
}

async fn prepare(args: &Args, url: &str, servers: &[&Server]) -> Result<(Locks, Vec<Guard>), String> {
    for server in servers {
        fill(&mut connect(server).await?, args.names, servers.len() == 1).await?;
    }
    let locks = Locks::connect(url).await.map_err(|error| error.to_string())?;
    let mut held = Vec::new();
    for number in 0..args.held {
        let lock = locks.mutex(format!("held/{number}")).ttl(TTL).lock().await;
        held.push(lock.map_err(|error| error.to_string())?);
    }
    Ok((locks, held))
}

/// Leaves idle names behind, as released locks do. A member of a cluster refuses those of other slots.
async fn fill(connection: &mut MultiplexedConnection, names: u64, alone: bool) -> Result<(), String> {
    let mut next = 0;
    while next < names {
        let mut message = redis::pipe();
        let end = (next + TOGETHER).min(names);
        for name in next..end {
            let key = format!("tidelock:{{idle/{name}}}");
            message.cmd("SET").arg(key).arg("I1700000000000000").arg("PX").arg(3_600_000).ignore();
        }
        next = end;
        let written = message.query_async::<()>(connection).await;
        if alone {
            written.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Writes keys of other programs.
pub(super) async fn fill_others(server: &Server, keys: u64) -> Result<(), String> {
    let mut connection = connect(server).await?;
    for first in (0..keys).step_by(TOGETHER as usize) {
        let mut message = redis::pipe();
        for key in first..(first + TOGETHER).min(keys) {
            message.cmd("SET").arg(format!("session:{key}")).arg("of somebody else").ignore();
        }
        message.query_async::<()>(&mut connection).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// How often the commands of a listing were called, and how long each took.
fn calls(statistics: &str) -> Vec<String> {
    let of = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let field = |name: &str| rest.split(',').find_map(|field| field.strip_prefix(name));
        let (calls, each) = (field("calls=")?, field("usec_per_call=")?);
        ["scan", "mget", "get"].contains(&command).then(|| format!("{calls} × {command}, {each} µs each"))
    };
    statistics.lines().filter_map(of).collect()
}

fn ask(server: &Server, command: &[&str]) -> Result<String, String> {
    server.ask(command).map_err(|error| error.to_string())
}

/// The longest call that a server wrote down, in microseconds.
async fn slowest_call(server: &Server) -> Result<f64, String> {
    let mut connection = connect(server).await?;
    let log: Vec<Vec<redis::Value>> = redis::cmd("SLOWLOG")
        .arg("GET")
        .arg(-1)
        .query_async(&mut connection)
        .await
        .map_err(|error| error.to_string())?;
    let micros = log.iter().filter_map(|entry| match entry.get(2) {
        Some(redis::Value::Int(micros)) => Some(*micros as f64),
        _ => None,
    });
    Ok(micros.fold(0.0, f64::max))
}

async fn connect(server: &Server) -> Result<MultiplexedConnection, String> {
    let client = redis::Client::open(server.url()).map_err(|error| error.to_string())?;
    client.get_multiplexed_async_connection().await.map_err(|error| error.to_string())
}
