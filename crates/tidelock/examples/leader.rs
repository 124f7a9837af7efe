//! One leader among many processes: start it three times, and stop or kill the one that leads.
//!
//!     cargo run --example leader --features etcd -- etcd://localhost
//!
//! A leader leads while it holds the lock. It steps down when it loses the lock, and stands for election again.

use std::time::Duration;

use tidelock::{Holding, Locks, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or("file:".into());
    // If the leader dies without a word, the next one leads after this time.
    let locks = Locks::builder(url).ttl(Duration::from_secs(5)).connect().await?;
    let ended = tokio::select! {
        ended = stand(&locks) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    // Gives up the lead or the place in the queue, so that nobody waits for the ttl.
    locks.shutdown(Duration::from_secs(5)).await;
    println!("stopped");
    ended
}

/// Waits in the queue, leads, steps down, and starts over.
async fn stand(locks: &Locks) -> Result<()> {
    loop {
        println!("standing by");
        match locks.mutex("leader").run(lead).await {
            // Another process may lead from now on: nothing of this term goes on.
            Err(error) if error.is_lost() => println!("stepped down: {error}"),
            ended => return ended,
        }
    }
}

/// What only the leader does. It is stopped at its next await when the lock is lost.
async fn lead(held: Holding) {
    // Terms grow from leader to leader: what the leader changes can refuse an older term.
    println!("leading, term {}", held.token());
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await; // the work itself
    }
}
