//! One leader among many processes: start it three times, and stop or kill the one that leads.
//!
//!     cargo run --example leader --features etcd -- etcd://localhost
//!
//! A leader leads until it loses the lead, and is a candidate again. `tidelock leader leader --watch` shows who leads.

use std::time::Duration;

use tidelock::{Locks, Result, Term};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or("file:".into());
    // If the leader dies without a word, the next one leads after this time.
    let locks = Locks::builder(url).ttl(Duration::from_secs(5)).connect().await?;
    let election = locks.election("leader").advertise(format!("process {}", std::process::id()));
    println!("standing by");
    // Ctrl-C gives up the lead or the place in the queue, so that nobody waits for the ttl.
    election.lead_until(tokio::signal::ctrl_c(), lead).await?;
    println!("stopped");
    Ok(())
}

/// What only the leader does. It is dropped when the lead is lost.
async fn lead(term: Term) {
    // Terms grow from leader to leader: what the leader changes can refuse an older term.
    println!("leading, term {}", term.token());
    let _stepping_down = SteppingDown(term.clone());
    while !term.is_ending() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {} // the work itself
            () = term.ending() => {}
        }
    }
}

/// Says that the work has ended, however it did.
struct SteppingDown(Term);

impl Drop for SteppingDown {
    fn drop(&mut self) {
        // Another process may lead from now on, or does already: nothing of this term goes on.
        let how = if self.0.is_leading() { "on request" } else { "the lead was lost" };
        println!("stepped down: {how}");
    }
}
