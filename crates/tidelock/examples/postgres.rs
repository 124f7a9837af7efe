//! A job that must run once on many machines, with the lock in PostgreSQL. Start it twice, and stop the one that works.
//!
//! `TIDELOCK_URL=postgres://user:password@host/database cargo run --example postgres --features postgres`

use std::time::Duration;

use tidelock::{Locks, fence::Fence};

#[tokio::main(flavor = "current_thread")]
async fn main() -> tidelock::Result<()> {
    let url = std::env::var("TIDELOCK_URL");
    let locks = Locks::connect(url.as_deref().unwrap_or("postgres://postgres@127.0.0.1/postgres")).await?;
    for concern in locks.concerns() {
        eprintln!("to fix: {concern}");
    }

    println!("waiting for the report");
    let report = locks.mutex("nightly-report").ttl(Duration::from_secs(10)).lock().await?;
    // What the report writes is refused where somebody wrote later: a holder that slept does no harm.
    let fence = Fence::postgres("reports", "id", "fence")?;
    println!("writing with: {}", fence.update("body = $3"));
    println!("  $1 = the id, $2 = {}, $3 = the body", report.token().as_i64());
    for page in 1..=20 {
        if !report.is_held() {
            println!("not ours any more after page {page}");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    report.release().await
}
