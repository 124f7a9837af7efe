//! Redis servers that vote ("redlock"): five against one, and against peers on the same five.

use std::time::Duration;

use test_servers::{Redis, Server};
use tidelock::{Locks, Mutex, clock::Clock};
use tokio::runtime::Runtime;

use super::{
    Effort, Threads, Wanted,
    duel::Duel,
    peers::{self, Asked},
    report::Row,
};
use crate::progress::Progress;

/// No longer than servers are up when the measuring begins: only then they have a vote.
const TTL: Duration = Duration::from_secs(2);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The rows of servers that vote.
pub(super) fn rows(effort: Effort, progress: &Progress, wanted: Wanted<'_>) -> Result<Vec<Row>, String> {
    if !wanted.scenario("pair") {
        return Ok(Vec::new());
    }
    let servers = (0..5).map(|_| Redis::new().start()).collect::<Result<Vec<_>, _>>().map_err(text)?;
    let hosts: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    let url = format!("redlock://{}?longest_ttl_ms={}", hosts.join(","), TTL.as_millis());
    let runtime = Threads::One.runtime()?;
    progress.show("redlock: waiting until the servers have a vote");
    let (five, one) = runtime.block_on(async {
        let five = Locks::connect(&url).await.map_err(text)?;
        while five.concerns().iter().any(|concern| concern.contains("has no vote")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let one = Locks::connect(servers[0].url()).await.map_err(text)?;
        Ok::<_, String>((five.mutex("five").ttl(TTL), one.mutex("one").ttl(TTL)))
    })?;
    let mut rows = vec![against_one(&runtime, &five, &one, effort, progress)?];
    let servers_asked = hosts.join(",");
    let asked =
        Asked { servers: &servers_asked, name: "peer", processes: 1, tasks: 1, time: Duration::from_secs(1) };
    for peer in peers::VOTING.iter().filter(|_| wanted.peers) {
        let ours = || Ok(pairs(&runtime, &five, 2_000)?.as_secs_f64() / 2_000.0);
        let rounds = (effort.rounds / 20).max(3);
        rows.push(peer.against("redlock, five servers: lock and release", asked, rounds, progress, ours));
    }
    drop::<Vec<Server>>(servers);
    Ok(rows)
}

fn pairs(runtime: &Runtime, mutex: &Mutex, pairs: u32) -> Result<Duration, String> {
    let clock = Clock::machine();
    runtime.block_on(async {
        let start = clock.now();
        for _ in 0..pairs {
            mutex.lock().await.map_err(text)?.release().await.map_err(text)?;
        }
        Ok(clock.now().since(start))
    })
}

fn against_one(
    runtime: &Runtime,
    five: &Mutex,
    one: &Mutex,
    effort: Effort,
    progress: &Progress,
) -> Result<Row, String> {
    let label = "redlock, 1 thread: lock and release on five servers".to_owned();
    let duel =
        Duel::fight(&label, effort, progress, |n| pairs(runtime, five, n), |n| pairs(runtime, one, n))?;
    Ok(Row::duel(label, &duel, duel.cost(), "cost ≤ 2.2 × the same on one", |ratio| ratio <= 2.2))
}
