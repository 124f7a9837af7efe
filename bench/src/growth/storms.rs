//! Reconnect storms: all connections of many clients end at once, again and again.

use std::time::Duration;

use test_servers::{Redis, Server};
use tidelock::{Guard, Locks};

use super::{limit, runtime};
use crate::contest::machine;

const TTL: Duration = Duration::from_secs(60);
/// From here on memory has to stay as it is: buffers and tasks of the first storms are used again.
const SETTLED: usize = 20;

/// How many, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Clients, each with a connection of its own and one lock
    #[arg(long, default_value_t = 300)]
    clients: usize,
    /// How often all connections are ended
    #[arg(long, default_value_t = 100)]
    storms: usize,
}

pub(super) fn run(args: &Args) -> Result<bool, String> {
    let server = Redis::new().start().map_err(|error| error.to_string())?;
    runtime()?.block_on(async {
        let mut clients = Vec::new();
        for number in 0..args.clients {
            clients.push(client(server.url(), number).await?);
        }
        println!("Redis, {} clients with a connection and a held lock each:", args.clients);
        let mb = || machine::memory(std::process::id()) / 1e6;
        println!("  before                {:>7.1} MB", mb());
        let (mut settled, mut most) = (f64::MAX, 0.0);
        for storm in 1..=args.storms {
            end_connections(&server)?;
            for (locks, guard) in &clients {
                serves(locks, guard).await?;
            }
            if storm == SETTLED {
                settled = mb();
            }
            most = mb();
            if storm == 1 || storm % 10 == 0 {
                println!("  after {storm:>3} storms      {most:>7.1} MB");
            }
        }
        let lost = clients.iter().filter(|(_, guard)| !guard.is_held()).count();
        let flat = limit("memory, last storm ÷ storm 20", most / settled, 1.1, "");
        Ok(limit("locks that were lost", lost as f64, 0.0, "") && flat)
    })
}

async fn client(url: &str, number: usize) -> Result<(Locks, Guard), String> {
    let locks = Locks::connect(url).await.map_err(|error| error.to_string())?;
    let guard = locks.mutex(format!("storm/{number}")).ttl(TTL).lock().await;
    Ok((locks, guard.map_err(|error| error.to_string())?))
}

/// Ends all connections but the one that says so, those that are subscribed as well.
fn end_connections(server: &Server) -> Result<(), String> {
    for kind in ["normal", "pubsub"] {
        let ended = server.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        ended.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Asks on a new connection until it is there.
async fn serves(locks: &Locks, guard: &Guard) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..100 {
        match locks.look([guard.name().as_str()]).await {
            Ok(views) if views.len() == 1 => return Ok(()),
            Ok(_) => return Err(format!("{} is not held on the server", guard.name().as_str())),
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("a client did not come back: {last}"))
}
